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

from .base import YES, Accelerator, Answer, visible_entry

if TYPE_CHECKING:
    import torch


_VISIBLE_MODULES, _OWN_MODULE = "HABANA_VISIBLE_MODULES", "HLS_MODULE_ID"
HL_SMI_TIMEOUT_S = 20.0


class Hpu(Accelerator):
    name = "hpu"
    backend = "hccl"
    static_shapes = True
    detections_on_host = True
    compile_backend = "hpu_backend"

    @classmethod
    def library(cls) -> Any:
        return importlib.import_module("habana_frameworks.torch.hpu")

    @classmethod
    def available(cls) -> bool:
        return importlib.util.find_spec("habana_frameworks") is not None and super().available()

    def identity(self) -> list[DeviceInfo]:
        """The visible modules in the order in which processes take them, by local rank."""
        uuids = _uuid_by_module()
        modules = _visible_modules() or sorted(uuids)
        return [
            DeviceInfo(
                index=i,
                name=self.library().get_device_name(i),
                uuid=uuids.get(modules[i]) if i < len(modules) else None,
            )
            for i in range(self.count())
        ]

    def own_device(self, local_rank: int) -> DeviceInfo:
        """The module of HLS_MODULE_ID, or the only one; otherwise the driver gives a process any module that is free.

        Importing hccl sets HLS_MODULE_ID where there are several processes.
        """
        devices, module = self.identity(), os.environ.get(_OWN_MODULE, "")
        if not module and len(devices) == 1:
            return devices[0]
        uuid = _uuid_by_module().get(int(module)) if module.isdigit() else None
        return next((d for d in devices if uuid and d.uuid == uuid), DeviceInfo(index=0, name=devices[0].name))

    def environment_for(self, device: DeviceInfo) -> dict[str, str]:
        """By module id, which does not change; `device.index` counts the visible modules only."""
        module = next((m for m, uuid in _uuid_by_module().items() if uuid == device.uuid), None)
        own = visible_entry(_VISIBLE_MODULES, device.index) if module is None else str(module)
        return {_VISIBLE_MODULES: own, _OWN_MODULE: own}

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


def _visible_modules() -> list[int]:
    """The module ids this process may use, in the order given; empty: all."""
    return [int(entry) for entry in os.environ.get(_VISIBLE_MODULES, "").split(",") if entry.strip().isdigit()]


def _uuid_by_module() -> dict[int, str]:
    """The UUID of every module of this machine, from hl-smi; empty if that is missing, fails or does not answer."""
    tool = shutil.which("hl-smi")
    if tool is None:
        return {}
    query = [tool, "-Q", "module_id,uuid", "-f", "csv,noheader"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=HL_SMI_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    cells = [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]
    return {int(row[0]): row[1] for row in cells if len(row) == 2 and row[0].isdigit() and row[1]}
