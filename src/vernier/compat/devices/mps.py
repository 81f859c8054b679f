"""Apple's GPUs through Metal. Not run by us: see docs/devices.md."""

from typing import TYPE_CHECKING, Any

from vernier.devices.base import YES, Answer, Device, Memory
from vernier.devices.cpu import cpu_name
from vernier.records.environment import DeviceInfo
from vernier.references import use

if TYPE_CHECKING:
    import torch


class Mps(Device):
    name = "mps"
    backend = None
    step_times = "device events"
    detections_on_host = True
    fused_optimizer = True
    channels_last = False  # until somebody ran the device suite with it: Metal had slow and wrong kernels for it

    @classmethod
    def available(cls) -> bool:
        import torch

        return torch.backends.mps.is_available()

    def torch_device(self, local_rank: int) -> "torch.device":
        import torch

        return torch.device("mps")

    def identity(self) -> list[DeviceInfo]:
        import torch

        memory_bytes = torch.mps.recommended_max_memory()
        return [DeviceInfo(index=0, name=f"{cpu_name()} GPU", memory_bytes=memory_bytes)]

    def answer(self, precision: str, mode: str) -> Answer:
        if precision == "tf32":
            return Answer("refused", "precision tf32 exists on CUDA devices only", use("machine.precision", "fp32"))
        if mode == "compile":
            return Answer("refused", "torch.compile for Metal is a prototype", use("machine.mode", "eager"))
        return YES

    def deterministic(self) -> Answer:
        return Answer("refused", "Metal kernels are not guaranteed to repeat bit for bit", use("machine.device", "cpu"))

    def synchronize(self) -> None:
        import torch

        torch.mps.synchronize()

    def record_event(self) -> Any:
        import torch

        event = torch.mps.Event(enable_timing=True)
        event.record()
        return event

    def elapsed_s(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) / 1000

    def free_memory(self, local_rank: int) -> int | None:
        import torch

        return max(0, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())

    def memory(self) -> Memory | None:
        """Metal records no peak: the memory the driver holds now stands in for it."""
        import torch

        held = torch.mps.driver_allocated_memory()
        return Memory(allocated_bytes=torch.mps.current_allocated_memory(), peak_bytes=held, reserved_bytes=held)
