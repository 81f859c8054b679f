"""Intel GPUs. Not run by us: see docs/devices.md."""

from vernier.devices.base import YES, Accelerator, Answer, stated_uuid, visible_entry
from vernier.records.environment import DeviceInfo
from vernier.references import use


class Xpu(Accelerator):
    name = "xpu"
    backend = "xccl"
    pins_memory = True
    fused_optimizer = True

    def identity(self) -> list[DeviceInfo]:
        return [self._one(index) for index in range(self.count())]

    def _one(self, index: int) -> DeviceInfo:
        import torch

        properties = torch.xpu.get_device_properties(index)
        return DeviceInfo(
            index=index,
            name=properties.name,
            uuid=stated_uuid(getattr(properties, "uuid", None)),
            memory_bytes=properties.total_memory,
        )

    def environment_for(self, device: DeviceInfo) -> dict[str, str]:
        return {"ZE_AFFINITY_MASK": visible_entry("ZE_AFFINITY_MASK", device.index, sort=True)}

    def answer(self, precision: str, mode: str) -> Answer:
        if precision == "tf32":
            return Answer("refused", "precision tf32 is offered on CUDA devices only", use("machine.precision", "bf16"))
        return YES
