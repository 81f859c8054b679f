"""Intel GPUs, against fakes."""

from types import SimpleNamespace

from tests.devices.contract import check_contract
from tests.devices.fake_vendors import RecordedCallFake
from vernier.devices.xpu import Xpu


def test_xpu_keeps_the_contract_against_a_fake(fake_xpu: RecordedCallFake) -> None:
    check_contract(Xpu(), 2)
    assert "synchronize" in fake_xpu.called()


def test_an_intel_gpu_without_a_uuid_has_none_against_a_fake(fake_xpu: RecordedCallFake) -> None:
    assert Xpu().identity()[0].uuid == "0000-fake"
    fake_xpu._answers["get_device_properties"] = SimpleNamespace(name="Fake GPU", total_memory=1)
    assert Xpu().identity()[0].uuid is None
