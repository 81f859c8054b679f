"""`torch/hpu/__init__.py`, `events.py`, `memory.py` and, in lazy mode, `graphs.py`.

The real one also has `graphs` in lazy mode only; here it is present always, and its use without lazy mode raises.
`init` acquires the device, as does whatever needs a device: `get_device_name`, memory figures, `synchronize`.
"""

import os
from collections.abc import Callable
from typing import Any

import torch

from habana_frameworks.torch.utils.internal import is_lazy

calls: list[str] = []
"""Not Habana's: functions that were called, and the module that was acquired."""


def init() -> None:
    """Initialises the state of the HPU; raises where no device is free."""
    calls.append(f"acquire module {os.environ.get('HLS_MODULE_ID')}")


def _acquired(name: str) -> None:
    if not any(call.startswith("acquire") for call in calls):
        init()
    calls.append(name)


def is_available() -> bool:
    return True


def device_count() -> int:
    """Devices of the host, or those of HABANA_VISIBLE_MODULES; needs no device of its own."""
    visible = os.environ.get("HABANA_VISIBLE_MODULES")
    return len(visible.split(",")) if visible else 8


def get_device_name(device: Any = None) -> str:
    _acquired("get_device_name")
    return "GAUDI2"


def current_device() -> int:
    _acquired("current_device")
    return 0


def set_device(device: Any) -> None:
    """Sets HLS_MODULE_ID; a process has one device, which PyTorch calls hpu:0."""
    calls.append("set_device")


def synchronize() -> None:
    _acquired("synchronize")


def memory_allocated(device: Any = None) -> int:
    _acquired("memory_allocated")
    return 10


def max_memory_allocated(device: Any = None) -> int:
    _acquired("max_memory_allocated")
    return 30


def reset_peak_memory_stats(device: Any = None) -> None:
    _acquired("reset_peak_memory_stats")


def mem_get_info(device: Any = None) -> tuple[int, int]:
    _acquired("mem_get_info")
    return 50, 100


class Event:
    """`events.py`: times in milliseconds, as with torch.cuda."""

    def __new__(cls, enable_timing: bool = False) -> "Event":
        return super().__new__(cls)

    def record(self, stream: Any = None) -> None:
        calls.append("Event.record")

    def wait(self, stream: Any = None) -> None:
        calls.append("Event.wait")

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: "Event") -> float:
        return 1500.0

    def synchronize(self) -> None:
        calls.append("Event.synchronize")


def wrap_in_hpu_graph(
    module: torch.nn.Module,
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
    max_graphs: int | None = None,
) -> torch.nn.Module:
    """`graphs.py`: "This function modifies the input module by replacing its forward method."

    The first call of each shape records; later ones replay: they read the weights that were recorded, and answer in the
    memory of the first answer.
    """
    if not is_lazy():
        raise AttributeError("module 'habana_frameworks.torch.hpu' has no attribute 'wrap_in_hpu_graph'")
    recorded: dict[torch.Size, Callable[[torch.Tensor], torch.Tensor]] = {}
    forward = module.forward

    def replay(images: torch.Tensor) -> torch.Tensor:
        if images.shape not in recorded:
            weights = {name: t.data for name, t in (*module.named_parameters(), *module.named_buffers())}
            output = forward(images)

            def run(again: torch.Tensor) -> torch.Tensor:
                module.forward = forward  # type: ignore[method-assign]
                try:
                    return output.copy_(torch.func.functional_call(module, weights, (again,)))
                finally:
                    module.forward = replay  # type: ignore[method-assign]

            recorded[images.shape] = run
            return output
        return recorded[images.shape](images)

    module.forward = replay  # type: ignore[method-assign]
    return module
