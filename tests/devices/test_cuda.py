"""CUDA devices, against specs of torch.cuda."""

import os
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from tests.devices.vendor_specs import UUID, called, cuda_spec, tensor_spec
from tests.lab.telemetry.nvidia_host import SimulatedCuda, uuid_of
from vernier.devices.base import Memory
from vernier.devices.cuda import Cuda
from vernier.records.environment import DeviceInfo
from vernier.references import use


def test_a_process_has_the_device_of_its_local_rank(cuda: Any) -> None:
    assert Cuda().torch_device(3) == torch.device("cuda", 1)
    Cuda().prepare(local_rank=1)
    cuda.set_device.assert_called_once_with(1)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_tf32_is_used_only_when_requested_and_everybody_can_read_the_setting(cuda: Any, precision: str) -> None:
    Cuda().prepare("tf32" if precision == "fp32" else "fp32")
    Cuda().prepare(precision)
    tf32 = precision == "tf32"
    assert torch.backends.cudnn.benchmark
    assert torch.backends.cuda.matmul.allow_tf32 is tf32  # inductor reads it
    assert torch.backends.cudnn.allow_tf32 is tf32  # torch.export reads it
    assert (torch.get_float32_matmul_precision() == "high") is tf32
    if hasattr(torch.backends.cudnn, "rnn"):  # PyTorch 2.9 on
        assert (torch.backends.cuda.matmul.fp32_precision == "tf32") is tf32
        assert (torch.backends.cudnn.conv.fp32_precision == "tf32") is tf32
        assert (torch.backends.cudnn.rnn.fp32_precision == "tf32") is tf32


def test_a_network_can_be_exported_and_compiled_after_the_settings_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch, "cuda", cuda_spec())
        Cuda().prepare("fp32")
    network, images = torch.nn.Linear(2, 2), torch.ones(1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(network, (images,)).module()
        compiled = torch.compile(network, backend="aot_eager")
    assert torch.equal(exported(images), network(images))
    assert torch.equal(compiled(images), network(images))


def test_deterministic_gives_up_autotuning(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    Cuda().prepare(deterministic=True)
    assert not torch.backends.cudnn.benchmark
    assert torch.are_deterministic_algorithms_enabled()


def test_copies_have_a_stream_of_their_own(cuda: Any) -> None:
    device, target, tensor = Cuda(), torch.device("cuda", 0), tensor_spec()
    assert device.upload(tensor, target) is tensor
    event = device.copied_event()
    main, side = cuda.current_stream.return_value, cuda.Stream.return_value
    tensor.to.assert_called_once_with(target, non_blocking=True)
    tensor.record_stream.assert_called_once_with(main)
    main.wait_stream.assert_called_once_with(side)
    event.record.assert_called_once_with(side)
    assert device.is_done(event) is bool(event.query.return_value)
    side.synchronize.assert_not_called()


def test_the_numa_node_is_that_of_the_gpu_on_the_bus(
    cuda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vernier.devices.cuda._PCI", tmp_path)
    assert Cuda().numa_node(0) is None
    for written, node in (("3\n", 3), ("-1\n", None), ("", None)):
        (tmp_path / "0000:b7:00.0").mkdir(exist_ok=True)
        (tmp_path / "0000:b7:00.0" / "numa_node").write_text(written)
        assert Cuda().numa_node(0) == node
    for name in ("pci_domain_id", "pci_bus_id", "pci_device_id"):  # before PyTorch 2.9
        delattr(cuda.get_device_properties.return_value, name)
    assert Cuda().numa_node(0) is None


def test_what_the_allocator_holds_is_known_apart_from_what_is_allocated(cuda: Any) -> None:
    assert Cuda().memory() == Memory(allocated_bytes=10, peak_bytes=30, reserved_bytes=40)


def test_sums_of_several_processes_repeat_only_if_nccl_has_one_algorithm(
    cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NCCL_ALGO", raising=False)
    Cuda().prepare_collectives(rank=0, local_rank=0, world=2)
    assert "NCCL_ALGO" not in os.environ
    Cuda().prepare_collectives(rank=0, local_rank=0, world=2, deterministic=True)
    assert os.environ["NCCL_ALGO"] == "Ring"
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    Cuda().prepare_collectives(rank=0, local_rank=0, world=2, deterministic=True)
    assert os.environ["NCCL_ALGO"] == "Tree"


@pytest.mark.parametrize(("code", "known"), [(6, False), (2, False), (4, True), (3, True)])
def test_a_mig_uuid_that_the_driver_does_not_know_is_none(
    code: int, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not found, invalid argument; no permission and not supported say nothing about the UUID."""
    pynvml = pytest.importorskip("pynvml")
    monkeypatch.setattr(torch, "cuda", cuda_spec(name="NVIDIA A100-SXM4-40GB MIG 1g.5gb", uuid=UUID))
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", Mock(side_effect=pynvml.NVMLError(code)))
    assert Cuda().identity()[0].uuid == (f"MIG-{UUID}" if known else None)


def test_an_old_gpu_refuses_bf16_and_names_fp16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", cuda_spec(capability=(7, 0)))
    why = Cuda().refuse("bf16", "eager", allow_slow=True)
    assert "7.0" in why
    assert use("machine.precision", "fp16") in why


@pytest.mark.parametrize(
    ("name", "given", "uuid"),
    [
        ("NVIDIA A100-SXM4-40GB", UUID, f"GPU-{UUID}"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", UUID, f"MIG-{UUID}"),
        ("NVIDIA A100-SXM4-40GB", f"GPU-{UUID}", f"GPU-{UUID}"),
        ("NVIDIA A100-SXM4-40GB", "None", None),
    ],
)
def test_a_gpu_has_the_uuid_that_nvml_gives_it(
    name: str, given: str, uuid: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "cuda", cuda_spec(name=name, uuid=given))
    device = Cuda().identity()[1]
    assert device.uuid == uuid
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    assert Cuda().environment_for(device) == {"CUDA_VISIBLE_DEVICES": uuid or "5"}


def test_rocm_gives_a_process_one_of_the_devices_that_are_visible(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "2,3,4")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1,2")
    device = Cuda().identity()[1]
    assert (device.uuid, device.capability) == (UUID, "gfx90a")
    assert Cuda().environment_for(device) == {"HIP_VISIBLE_DEVICES": "2"}
    assert Cuda().answer("tf32", "eager").verdict == "refused"


def test_events_of_the_device_measure_steps(cuda: Any) -> None:
    start = Cuda().record_event()
    cuda.Event.assert_called_once_with(enable_timing=True)
    start.record.assert_called_once_with()
    assert "synchronize" not in called(cuda)
    assert Cuda().elapsed_s(start, Cuda().record_event()) == 1.5


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
