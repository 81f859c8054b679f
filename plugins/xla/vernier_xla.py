"""XLA as a device of Vernier: TPUs, and PJRT's client for the CPU, through torch_xla.

Operations are collected until the end of a step, compiled as one program, and run behind the host's back. The client is
chosen by PJRT_DEVICE, TPU or CPU. The CPU's is for tests: `make test-xla`. TPUs were not run by us.
"""

import importlib.util
import os
from typing import TYPE_CHECKING, Any

from vernier.devices.base import YES, Answer, Device, Memory
from vernier.records.environment import DeviceInfo
from vernier.records.run import Compilation

if TYPE_CHECKING:
    import torch

_ON_TPU = os.environ.get("PJRT_DEVICE") == "TPU"


class Xla(Device):
    name = "xla"
    # The CPU's client has no collectives between processes: gradients are then averaged in host memory.
    backend = "xla" if _ON_TPU else None
    exchange = "after backward"  # buckets and their hooks would cut the program of a step
    shared = not _ON_TPU
    step_times = "windows"
    inference_mode = False  # torch_xla makes views of tensors that inference mode forbids
    static_shapes = True
    detections_on_host = True
    compile_backend = "openxla"
    compile_dynamic = False
    channels_last = False  # XLA chooses layouts itself

    @classmethod
    def available(cls) -> bool:
        return bool(os.environ.get("PJRT_DEVICE")) and importlib.util.find_spec("torch_xla") is not None

    def count(self) -> int:
        return int(_runtime().addressable_device_count())

    def torch_device(self, local_rank: int) -> "torch.device":
        _library()
        import torch

        return torch.device("xla", 0)  # a process has one, which XLA numbers from 0 in each

    def identity(self) -> list[DeviceInfo]:
        kind = os.environ.get("PJRT_DEVICE", "?")
        return [DeviceInfo(index=0, name=f"XLA {kind}", uuid=f"xla-{kind}-0" if self.shared else None)]

    def answer(self, precision: str, mode: str) -> Answer:
        if precision in ("tf32", "fp16"):
            return Answer("refused", f"precision {precision} is not offered on XLA", "--precision bf16")
        if mode == "trace":
            return Answer("refused", "torch.jit.trace cannot record operations of XLA", "--mode eager")
        return YES

    def prepare(self, precision: str = "fp32", *, deterministic: bool = False, local_rank: int = 0) -> None:
        _library()
        super().prepare(precision, deterministic=deterministic)

    def prepare_collectives(self, *, rank: int, local_rank: int, world: int, deterministic: bool = False) -> None:
        """Give this process a chip, as `torch_xla.launch` does, and register the backend."""
        if not _ON_TPU:
            return
        import torch_xla.distributed.xla_backend  # noqa: F401  (registers "xla" with torch.distributed)
        from torch_xla._internal import pjrt

        pjrt.initialize_multiprocess(local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", world)))

    def synchronize(self) -> None:
        self.end_step()
        import torch_xla.core.xla_model as xm

        xm.wait_device_ops()

    def end_step(self) -> None:
        _library().sync()

    def compilations(self) -> Compilation:
        """Programs that were not in torch_xla's cache; the metric is in nanoseconds."""
        import torch_xla.debug.metrics as met

        times = met.metric_data("CompileTime")
        seconds = times[1] / 1e9 if times else 0.0
        return Compilation(graphs=met.counter_value("UncachedCompile") or 0, seconds=seconds)

    def memory(self) -> Memory | None:
        import torch_xla.core.xla_model as xm

        try:
            info = xm.get_memory_info(self.torch_device(0))
        except RuntimeError:  # the CPU's client does not count
            return None
        used = info["bytes_used"]
        return Memory(allocated_bytes=used, peak_bytes=info.get("peak_bytes_used", used))

    def free_memory(self, local_rank: int) -> int | None:
        import torch_xla.core.xla_model as xm

        try:
            info = xm.get_memory_info(self.torch_device(local_rank))
        except RuntimeError:
            return None
        return max(0, info["bytes_limit"] - info["bytes_used"])


def _library() -> Any:
    import torch_xla

    return torch_xla


def _runtime() -> Any:
    from torch_xla import runtime

    return runtime
