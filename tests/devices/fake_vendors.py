"""FAKES of vendors' libraries for hardware that is not here: they record what was called and answer with fixed values.

They show the calls a device file makes, their order and their values. They answer every attribute, so they do not show
that the vendor's library has a function of that name, nor that it then does the right thing: that needs the device.
"""

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import torch


class RecordedCallFake:
    """Any attribute is a function that notes its name and arguments and returns the value prepared for it."""

    def __init__(self, **answers: Any) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append((name, arguments))
            answer = self._answers.get(name)
            ready = callable(answer) and not isinstance(answer, RecordedCallFake)
            return answer(*arguments) if ready else answer

        return call

    def called(self) -> list[str]:
        return [name for name, _ in self.calls]


PROPERTIES = SimpleNamespace(
    name="Fake GPU", uuid="0000-fake", total_memory=80 << 30, major=8, minor=0, gcnArchName="gfx-fake"
)


def fake_gpu_library(capability: tuple[int, int] = (8, 0), count: int = 2) -> RecordedCallFake:
    """Stands in for torch.cuda or torch.xpu."""
    return RecordedCallFake(
        is_available=True,
        device_count=count,
        get_device_properties=PROPERTIES,
        get_device_capability=capability,
        memory_allocated=10,
        max_memory_allocated=30,
        mem_get_info=(50, 100),
    )


def fake_metal_library() -> RecordedCallFake:
    """Stands in for torch.mps."""
    return RecordedCallFake(recommended_max_memory=100, current_allocated_memory=10, driver_allocated_memory=30)


@contextlib.contextmanager
def fake_habana_frameworks() -> Iterator[RecordedCallFake]:
    """Puts fake habana_frameworks modules where the real ones would be imported from."""
    library = RecordedCallFake(
        is_available=True,
        device_count=8,
        get_device_name="Fake Gaudi",
        memory_allocated=10,
        max_memory_allocated=30,
        wrap_in_hpu_graph=lambda model: torch.nn.Sequential(model),
    )
    names = ["habana_frameworks", "habana_frameworks.torch", "habana_frameworks.torch.distributed"]
    modules: dict[str, Any] = {name: ModuleType(name) for name in names}
    modules["habana_frameworks"].__spec__ = SimpleNamespace(name="habana_frameworks")
    for leaf in ("core", "hpu", "distributed.hccl"):
        modules[f"habana_frameworks.torch.{leaf}"] = library
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield library
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
