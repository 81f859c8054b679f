"""Intel GPUs. Untested: see docs/devices.md."""

import torch

from vernier.devices.base import YES, Answer, Device, Memory
from vernier.records.environment import DeviceInfo


class Xpu(Device):
    name = "xpu"
    visibility_variable = "ZE_AFFINITY_MASK"
    backend = "xccl"
    native_sync_bn = True

    @classmethod
    def available(cls) -> bool:
        return torch.xpu.is_available()

    def count(self) -> int:
        return torch.xpu.device_count()

    def identity(self) -> list[DeviceInfo]:
        return [self._one(index) for index in range(self.count())]

    def _one(self, index: int) -> DeviceInfo:
        properties = torch.xpu.get_device_properties(index)
        uuid = getattr(properties, "uuid", None)
        return DeviceInfo(
            index=index,
            name=properties.name,
            uuid=None if uuid is None else str(uuid),
            memory_bytes=properties.total_memory,
        )

    def answer(self, precision: str, mode: str) -> Answer:
        if precision == "tf32":
            return Answer("refused", "precision tf32 is offered on CUDA devices only", "--precision bf16")
        return YES

    def prepare(self, precision: str = "fp32", *, deterministic: bool = False, local_rank: int = 0) -> None:
        torch.xpu.set_device(self.torch_device(local_rank))
        super().prepare(precision, deterministic=deterministic)

    def synchronize(self) -> None:
        torch.xpu.synchronize()

    def memory(self) -> Memory | None:
        return Memory(
            allocated_bytes=torch.xpu.memory_allocated(),
            peak_bytes=torch.xpu.max_memory_allocated(),
            total_bytes=torch.xpu.mem_get_info()[1],
        )

    def reset_peak_memory(self) -> None:
        torch.xpu.reset_peak_memory_stats()
