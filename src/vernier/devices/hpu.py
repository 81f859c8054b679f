"""Intel Gaudi through habana_frameworks. Untested: see docs/devices.md.

Importing habana_frameworks registers the device with PyTorch, so it is imported only where the package is installed.
Lazy mode (PT_HPU_LAZY_MODE=1) collects operations until `mark_step`; otherwise operations run at once, and --mode
compile uses Gaudi's own compiler.
"""

import importlib
import importlib.util
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from vernier.records.environment import DeviceInfo

from .base import YES, Accelerator, Answer

if TYPE_CHECKING:
    import torch


class Hpu(Accelerator):
    name = "hpu"
    backend = "hccl"
    static_shapes = True
    compile_backend = "hpu_backend"

    @classmethod
    def library(cls) -> Any:
        return importlib.import_module("habana_frameworks.torch.hpu")

    @classmethod
    def available(cls) -> bool:
        return importlib.util.find_spec("habana_frameworks") is not None and super().available()

    def identity(self) -> list[DeviceInfo]:
        uuids = _uuids()
        return [
            DeviceInfo(index=i, name=self.library().get_device_name(i), uuid=uuids[i] if i < len(uuids) else None)
            for i in range(self.count())
        ]

    def environment_for(self, device: DeviceInfo) -> dict[str, str]:
        return {"HABANA_VISIBLE_MODULES": str(device.index)}

    def answer(self, precision: str, mode: str) -> Answer:
        if precision in ("tf32", "fp16"):
            return Answer("refused", f"precision {precision} cannot be used for training on Gaudi", "--precision bf16")
        if mode == "trace":
            return Answer("refused", "mode trace is no longer part of Gaudi's PyTorch", "--mode compile")
        if mode == "compile" and lazy():
            return Answer("refused", "mode compile does not work with PT_HPU_LAZY_MODE=1", "PT_HPU_LAZY_MODE=0")
        return YES

    def prepare(self, precision: str = "fp32", *, deterministic: bool = False, local_rank: int = 0) -> None:
        _core()
        importlib.import_module("habana_frameworks.torch.distributed.hccl")  # registers the backend
        super().prepare(precision, deterministic=deterministic, local_rank=local_rank)

    def torch_device(self, local_rank: int) -> "torch.device":
        _core()
        return super().torch_device(local_rank)

    def mark_step(self) -> None:
        if lazy():
            _core().mark_step()

    def for_inference(self, model: "torch.nn.Module") -> "torch.nn.Module":
        """Record the graph of each input shape once and replay it; lazy mode only."""
        if not lazy():
            return model
        wrapped: torch.nn.Module = self.library().wrap_in_hpu_graph(model)
        return wrapped


def lazy() -> bool:
    """Whether Gaudi's lazy mode is on; since release 1.22 it is off by default."""
    return os.environ.get("PT_HPU_LAZY_MODE", "0") == "1"


def _core() -> Any:
    return importlib.import_module("habana_frameworks.torch.core")


def _uuids() -> list[str]:
    """Read the uuids from hl-smi, in the order of its indices; empty if it is missing or fails."""
    tool = shutil.which("hl-smi")
    if tool is None:
        return []
    query = [tool, "-Q", "index,uuid", "-f", "csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=30)
    rows = [line.split(",") for line in done.stdout.splitlines() if line.count(",") == 1]
    return [uuid.strip() for _, uuid in sorted((int(index), uuid) for index, uuid in rows)]
