"""NVIDIA GPUs, and AMD's through ROCm, which PyTorch calls by the same name. Not run by us: see docs/devices.md."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vernier.records.environment import DeviceInfo
from vernier.references import use

from .base import YES, Accelerator, Answer, stated_uuid, visible_entry

if TYPE_CHECKING:
    import torch

# Ampere, the first generation with bf16 and TF32.
_BF16_CAPABILITY = (8, 0)
_PCI = Path("/sys/bus/pci/devices")
_HIP_VARIABLES = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""HIP reads the first of them that is set, after ROCR_VISIBLE_DEVICES, which a child inherits as it is."""


class Cuda(Accelerator):
    name = "cuda"
    backend = "nccl"
    connects_early = True
    pins_memory = True
    fused_optimizer = True

    def __init__(self) -> None:
        self._copies: Any = None

    def identity(self) -> list[DeviceInfo]:
        return [self._one(index) for index in range(self.count())]

    def _one(self, index: int) -> DeviceInfo:
        import torch

        properties = torch.cuda.get_device_properties(index)
        return DeviceInfo(
            index=index,
            name=properties.name,
            uuid=_uuid(properties),
            memory_bytes=properties.total_memory,
            capability=properties.gcnArchName if _is_rocm() else f"{properties.major}.{properties.minor}",
        )

    def environment_for(self, device: DeviceInfo) -> dict[str, str]:
        """By UUID: indices are those of the visible devices, not of the machine's. HIP knows indices only."""
        if not _is_rocm():
            return {"CUDA_VISIBLE_DEVICES": device.uuid or visible_entry("CUDA_VISIBLE_DEVICES", device.index)}
        variable = next((name for name in _HIP_VARIABLES if os.environ.get(name)), _HIP_VARIABLES[0])
        return {variable: visible_entry(variable, device.index)}

    def answer(self, precision: str, mode: str) -> Answer:
        if precision == "tf32" and _is_rocm():
            return Answer(
                "refused", "precision tf32 is NVIDIA's and this is a ROCm build", use("machine.precision", "bf16")
            )
        if (
            precision in ("tf32", "bf16")
            and self.available()
            and not _is_rocm()
            and self._capability() < _BF16_CAPABILITY
        ):
            have = ".".join(map(str, self._capability()))
            why = f"precision {precision} needs compute capability 8.0 (A100 or newer) and this GPU has {have}"
            return Answer("refused", why, use("machine.precision", "fp16"))
        return YES

    def _capability(self) -> tuple[int, int]:
        import torch

        return min(torch.cuda.get_device_capability(index) for index in range(self.count()))

    def prepare(self, precision: str = "fp32", *, deterministic: bool = False, local_rank: int = 0) -> None:
        """TF32 only if requested; cuDNN autotunes its algorithms unless the run is deterministic."""
        import torch

        from vernier.torch_private import allow_tf32

        allow_tf32(precision == "tf32")
        # Autotuning may choose another algorithm in each run.
        torch.backends.cudnn.benchmark = not deterministic
        if deterministic:
            # cuBLAS is deterministic only with workspaces of a fixed size.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        super().prepare(precision, deterministic=deterministic, local_rank=local_rank)

    def prepare_collectives(self, *, rank: int, local_rank: int, world: int, deterministic: bool = False) -> None:
        """NCCL chooses an algorithm by what it measured at start-up, which may add in another order the next time."""
        if deterministic:
            os.environ.setdefault("NCCL_ALGO", "Ring")

    def upload(self, tensor: "torch.Tensor", target: "torch.device") -> "torch.Tensor":
        """Copy on a separate stream, while the previous step still computes."""
        import torch

        if self._copies is None:
            self._copies = torch.cuda.Stream(target)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._copies):
            moved = tensor.to(target, non_blocking=True)
        torch.cuda.current_stream(target).wait_stream(self._copies)
        # Otherwise the allocator could give the memory to the next copy while the step still reads it.
        moved.record_stream(torch.cuda.current_stream(target))
        return moved

    def copied_event(self) -> Any:
        """On the stream of the copies: an event of the other stream would wait for the step before as well."""
        import torch

        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._copies)
        return event

    def numa_node(self, local_rank: int) -> int | None:
        """As the kernel knows it by the GPU's address on the PCI bus."""
        import torch

        gpu: Any = torch.cuda.get_device_properties(self.torch_device(local_rank))  # PyTorch's types lack the address
        if not hasattr(gpu, "pci_bus_id"):  # PyTorch 2.8
            return None
        # Both vendors' GPUs are function 0 of their slot; PyTorch does not say which function.
        address = f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"
        try:
            node = int((_PCI / address / "numa_node").read_text())
        except (OSError, ValueError):
            return None
        return node if node >= 0 else None  # -1: the kernel knows none, as in many virtual machines


def _uuid(properties: Any) -> str | None:
    """As NVIDIA's driver writes UUIDs: CUDA adds the profile to the name of a MIG instance, "A100 MIG 1g.10gb"."""
    uuid = stated_uuid(properties.uuid)
    if uuid is None or _is_rocm() or uuid.startswith(("GPU-", "MIG-")):
        return uuid
    if " MIG " not in properties.name:
        return f"GPU-{uuid}"
    # Should a driver report the UUID of the whole GPU, "MIG-" before it names no device: none is better than that.
    return f"MIG-{uuid}" if _driver_knows(f"MIG-{uuid}") else None


def _driver_knows(uuid: str) -> bool:
    """Whether NVML finds this UUID; yes, if NVML is not installed."""
    try:
        import pynvml
    except ImportError:
        return True
    try:
        pynvml.nvmlInit()
        pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError as error:
        return not isinstance(error, pynvml.NVMLError_NotFound | pynvml.NVMLError_InvalidArgument)
    return True


def _is_rocm() -> bool:
    """Whether this PyTorch was built for AMD's GPUs."""
    import torch

    return torch.version.hip is not None
