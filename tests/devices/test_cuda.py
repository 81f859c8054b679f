"""CUDA devices, against fakes."""

import contextlib

import pytest
import torch

from tests.devices.contract import check_contract
from tests.devices.fake_vendors import RecordedCallFake, fake_gpu_library
from tests.measure.telemetry.nvidia_host import SimulatedCuda, uuid_of
from vernier.devices.cuda import Cuda
from vernier.records.environment import DeviceInfo


def test_cuda_keeps_the_contract_against_a_fake(fake_cuda: RecordedCallFake) -> None:
    check_contract(Cuda(), 2)
    assert "synchronize" in fake_cuda.called()
    assert Cuda().identity()[1].uuid == "GPU-0000-fake"
    assert Cuda().torch_device(3) == torch.device("cuda", 1)


def test_cuda_computes_in_tf32_only_when_asked_against_a_fake(fake_cuda: RecordedCallFake) -> None:
    Cuda().prepare("tf32", local_rank=1)
    assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.benchmark
    assert ("set_device", (1,)) in fake_cuda.calls
    Cuda().prepare("fp32")
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


def test_cuda_deterministic_gives_up_autotuning_against_a_fake(
    fake_cuda: RecordedCallFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    Cuda().prepare(deterministic=True)
    assert not torch.backends.cudnn.benchmark
    assert torch.are_deterministic_algorithms_enabled()


def test_cuda_copies_on_a_stream_of_its_own_against_a_fake(monkeypatch: pytest.MonkeyPatch) -> None:
    side, main = RecordedCallFake(), RecordedCallFake()
    library = RecordedCallFake(Stream=side, stream=lambda _: contextlib.nullcontext(), current_stream=main)
    monkeypatch.setattr(torch, "cuda", library)
    tensor = RecordedCallFake()
    tensor._answers["to"] = tensor
    device, place = Cuda(), torch.device("cuda", 0)
    assert device.upload(tensor, place) is tensor  # type: ignore[arg-type, comparison-overlap]
    device.uploads_done()
    assert tensor.calls == [("to", (place,)), ("record_stream", (main,))]
    assert main.calls == [("wait_stream", (side,))]
    assert side.called() == ["synchronize"]


def test_an_old_gpu_refuses_bf16_and_names_fp16_against_a_fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", fake_gpu_library(capability=(7, 0)))
    why = Cuda().refuse("bf16", "eager", allow_slow=True)
    assert "7.0" in why
    assert "--precision fp16" in why


def test_a_child_process_gets_the_same_gpu_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    first = DeviceInfo(index=0, name="GPU", uuid="GPU-of-four")
    assert Cuda().environment_for(first) == {"CUDA_VISIBLE_DEVICES": "GPU-of-four"}
    assert Cuda().environment_for(DeviceInfo(index=1, name="GPU")) == {"CUDA_VISIBLE_DEVICES": "5"}


@pytest.mark.parametrize("variable", ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_on_rocm_a_child_process_gets_the_place_in_the_list_of_its_parent(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HIP reads indices only."""
    monkeypatch.setattr(torch.version, "hip", "6.4")
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    second = DeviceInfo(index=1, name="MI300X", uuid="73f1c0c5")
    assert Cuda().environment_for(second) == {"HIP_VISIBLE_DEVICES": "1"}
    monkeypatch.setenv(variable, "6,7")
    assert Cuda().environment_for(second) == {variable: "7"}


def test_a_mig_instance_has_the_uuid_that_cuda_visible_devices_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = uuid_of(7, instance=1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", instance)
    (device,) = SimulatedCuda().identity()
    assert device.uuid == instance
    assert Cuda().environment_for(device) == {"CUDA_VISIBLE_DEVICES": instance}
