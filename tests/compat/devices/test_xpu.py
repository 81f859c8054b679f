"""Intel GPUs, against specs of torch.xpu."""

from typing import Any

import pytest
import torch

from tests.devices.vendor_specs import UUID, property_names, xpu_spec
from vernier.compat.devices.xpu import Xpu
from vernier.records.environment import DeviceInfo


@pytest.mark.skipif("uuid" not in property_names("Xpu"), reason="this PyTorch reads no UUIDs of Intel GPUs")
@pytest.mark.parametrize(("given", "uuid"), [(UUID, UUID), (None, None), ("None", None), ("0" * 8, None)])
def test_an_intel_gpu_without_a_uuid_has_none(given: object, uuid: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "xpu", xpu_spec(uuid=given))
    assert [device.uuid for device in Xpu().identity()] == [uuid, uuid]


def test_events_of_the_device_measure_steps(xpu: Any) -> None:
    """Times of torch.xpu.Event are milliseconds, as those of torch.cuda."""
    start = Xpu().record_event()
    xpu.Event.assert_called_once_with(enable_timing=True)
    assert Xpu().elapsed_s(start, Xpu().record_event()) == 1.5


@pytest.mark.parametrize(
    ("mask", "index", "of_the_child"), [("", 1, "1"), ("2,3", 1, "3"), ("3,2", 0, "2"), ("0.1,1.0", 1, "1.0")]
)
def test_a_child_process_gets_the_same_intel_gpu(
    mask: str, index: int, of_the_child: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Level Zero numbers devices in the machine's order, not in that of the mask."""
    monkeypatch.setenv("ZE_AFFINITY_MASK", mask)
    assert Xpu().environment_for(DeviceInfo(index=index, name="GPU")) == {"ZE_AFFINITY_MASK": of_the_child}
