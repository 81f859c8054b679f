"""Intel GPUs, against fakes."""

from types import SimpleNamespace

import pytest

from tests.devices.contract import check_contract
from tests.devices.fake_vendors import RecordedCallFake
from vernier.devices.xpu import Xpu
from vernier.records.environment import DeviceInfo


def test_xpu_keeps_the_contract_against_a_fake(fake_xpu: RecordedCallFake) -> None:
    check_contract(Xpu(), 2)
    assert "synchronize" in fake_xpu.called()


def test_an_intel_gpu_without_a_uuid_has_none_against_a_fake(fake_xpu: RecordedCallFake) -> None:
    assert Xpu().identity()[0].uuid == "0000-fake"
    fake_xpu._answers["get_device_properties"] = SimpleNamespace(name="Fake GPU", total_memory=1)
    assert Xpu().identity()[0].uuid is None


@pytest.mark.parametrize(
    ("mask", "index", "of_the_child"), [("", 1, "1"), ("2,3", 1, "3"), ("3,2", 0, "2"), ("0.1,1.0", 1, "1.0")]
)
def test_a_child_process_gets_the_same_intel_gpu(
    mask: str, index: int, of_the_child: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Level Zero numbers devices in the machine's order, not in that of the mask."""
    monkeypatch.setenv("ZE_AFFINITY_MASK", mask)
    assert Xpu().environment_for(DeviceInfo(index=index, name="GPU")) == {"ZE_AFFINITY_MASK": of_the_child}
