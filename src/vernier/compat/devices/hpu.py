"""Intel Gaudi through habana_frameworks. Not run by us: see docs/devices.md.

Importing habana_frameworks registers the device with PyTorch, so it is imported only where the package is installed.
In lazy mode (PT_HPU_LAZY_MODE=1) operations are collected until the end of a step; otherwise they run at once, and
--mode compile uses Gaudi's own compiler. A process has one Gaudi, which PyTorch always calls `hpu`: its module id says
which. A Gaudi belongs to one process at a time, so nothing but `prepare` acquires it.
"""

import importlib
import importlib.util
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vernier.devices.base import YES, Accelerator, Answer, Device, stated_uuid
from vernier.records.environment import DeviceInfo
from vernier.records.run import Compilation
from vernier.references import use

if TYPE_CHECKING:
    import torch

_MODULE, _VISIBLE_MODULES = "HLS_MODULE_ID", "HABANA_VISIBLE_MODULES"
_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


class Hpu(Accelerator):
    name = "hpu"
    backend = "hccl"
    inference_mode = False  # Habana's scripts and vLLM use torch.no_grad
    pins_memory = True
    static_shapes = True
    detections_on_host = True
    compile_backend = "hpu_backend"
    native_sync_bn = False  # Gaudi has its kernels in lazy mode only
    channels_last = False  # nor do Intel's own scripts use it: Gaudi chooses layouts itself
    bucket_mb = 256  # as in Intel's ResNet-50

    @classmethod
    def library(cls) -> Any:
        return _import("habana_frameworks.torch.hpu")

    @classmethod
    def available(cls) -> bool:
        return _installed() and super().available()

    def torch_device(self, local_rank: int) -> "torch.device":
        _core()
        import torch

        return torch.device("hpu")

    def identity(self) -> list[DeviceInfo]:
        """From hl-smi: to name a device, the library would acquire it."""
        cards = _cards()
        modules = self._modules(cards)
        unknown = DeviceInfo(index=0, name="Intel Gaudi")
        return [replace(cards.get(module, unknown), index=index) for index, module in enumerate(modules)]

    def own_device(self, local_rank: int) -> DeviceInfo:
        """The module of HLS_MODULE_ID, or the only one; otherwise the driver gives a process any one that is free."""
        devices, modules = self.identity(), self._modules(_cards())
        module = os.environ.get(_MODULE) or (modules[0] if len(modules) == 1 else None)
        return devices[modules.index(module)] if module in modules else DeviceInfo(index=0, name=devices[0].name)

    def environment_for(self, device: DeviceInfo) -> dict[str, str]:
        """By module id, which is not the index that hl-smi gives a device."""
        module = self._modules(_cards())[device.index]
        return {_VISIBLE_MODULES: module, _MODULE: module}

    def _modules(self, cards: dict[str, DeviceInfo]) -> list[str]:
        """The module ids of the devices that this process can see."""
        visible = [entry.strip() for entry in os.environ.get(_VISIBLE_MODULES, "").split(",") if entry.strip()]
        return (visible or sorted(cards, key=int) or [str(module) for module in range(8)])[: self.count()]

    def answer(self, precision: str, mode: str) -> Answer:
        if precision in ("tf32", "fp16"):
            return Answer(
                "refused",
                f"precision {precision} cannot be used for training on Gaudi",
                use("machine.precision", "bf16"),
            )
        if mode == "trace":
            return Answer("refused", "mode trace is no longer part of Gaudi's PyTorch", use("machine.mode", "compile"))
        # Two compilers of one graph: hpu_backend is for eager mode.
        if mode == "compile" and lazy():
            return Answer("refused", "mode compile does not work with PT_HPU_LAZY_MODE=1", "PT_HPU_LAZY_MODE=0")
        return YES

    def prepare(self, precision: str = "fp32", *, deterministic: bool = False, local_rank: int = 0) -> None:
        """Acquire the process's Gaudi: its page-locked memory cannot be allocated before that."""
        _core()
        self.library().init()
        Device.prepare(self, precision, deterministic=deterministic)

    def prepare_collectives(self, *, rank: int, local_rank: int, world: int, deterministic: bool = False) -> None:
        """Register hccl, tell it of this process, whatever launched it, and choose a module if none is chosen."""
        hccl = _import("habana_frameworks.torch.distributed.hccl")
        modules = self._modules(_cards())
        # Without it the driver gives a process any module that is free, and a rank has no device of its own.
        os.environ.setdefault(_MODULE, modules[local_rank % len(modules)])
        # It overwrites these variables, from which the launcher is recognized later.
        with _restored(*_LAUNCHER):
            hccl.initialize_distributed_hpu(world_size=world, rank=rank, local_rank=local_rank)

    def pinned(self, tensor: "torch.Tensor") -> "torch.Tensor":
        """With the device's name, which newer PyTorch no longer needs: Gaudi's own PyTorch is older."""
        return tensor.pin_memory("hpu")

    def end_step(self) -> None:
        if lazy():
            _core().mark_step()

    def compilations(self) -> Compilation:
        """Graphs of lazy mode and of hpu_backend, as Habana's metrics count them, in microseconds."""
        stats = dict(_import("habana_frameworks.torch.hpu.metrics").metric_global("graph_compilation").stats())
        return Compilation(graphs=int(stats["TotalNumber"]), seconds=stats["TotalTime"] / 1e6)

    def for_inference(self, model: "torch.nn.Module") -> "torch.nn.Module":
        """Record the graph of each input shape once and replay it; lazy mode only.

        Habana's wrapper replaces the forward method of the module it is given, so it is given a new one.
        """
        if not lazy():
            return model
        import torch

        class Replayed(torch.nn.Module):
            """The outputs of a replay are the same memory each time, so they are copied."""

            def __init__(self, graph: Any) -> None:
                super().__init__()
                self.graph = graph

            def forward(self, images: torch.Tensor) -> Any:
                output = self.graph(images)
                return output.clone() if isinstance(output, torch.Tensor) else tuple(part.clone() for part in output)

        # In a Sequential, so that the model keeps its own forward.
        return Replayed(self.library().wrap_in_hpu_graph(torch.nn.Sequential(model)))


def lazy() -> bool:
    """Whether Gaudi's lazy mode is on; where the variable is not set, releases differ."""
    stated = os.environ.get("PT_HPU_LAZY_MODE")
    if stated is None and _installed():
        return bool(_core().is_lazy())
    return stated not in (None, "0")


def _installed() -> bool:
    return importlib.util.find_spec("habana_frameworks") is not None


def _core() -> Any:
    return _import("habana_frameworks.torch.core")


def _import(name: str) -> Any:
    """Import a module of Habana's. Under mpirun that sets other launchers' variables, and chooses a module."""
    # Gradients are views of their buckets; eager mode copies them unless this is set before the import.
    os.environ.setdefault("PT_HPU_EAGER_ENABLE_GRADIENT_VIEW_LAYOUT_OPT", "1")
    with _restored(*_LAUNCHER, _MODULE):
        return importlib.import_module(name)


@contextmanager
def _restored(*variables: str) -> Iterator[None]:
    """Afterwards these environment variables are as they were."""
    before = {name: os.environ.get(name) for name in variables}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


HL_SMI_TIMEOUT_S = 20.0
_COLUMNS = ("module_id", "uuid", "name", "memory.total")


def _cards() -> dict[str, DeviceInfo]:
    """All Gaudis of this host by their module id, from hl-smi; empty where it is missing or fails."""
    # hl-smi reads the driver and does not acquire a device.
    query = ["hl-smi", "-Q", ",".join(_COLUMNS), "-f", "csv,noheader"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=HL_SMI_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]
    return {
        row[0]: DeviceInfo(index=0, name=row[2], uuid=stated_uuid(row[1]), memory_bytes=_memory_bytes(row[3]))
        for row in rows
        if len(row) == len(_COLUMNS) and row[0].isdigit()
    }


def _memory_bytes(text: str) -> int | None:
    """As hl-smi writes it: 98304 MiB, or without the unit."""
    number, _, unit = text.partition(" ")
    return int(number) << 20 if number.isdigit() and unit in ("", "MiB") else None
