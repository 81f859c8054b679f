"""The contract of what profiles training steps. The profiler plugs in, as the entry point of `vernier.profilers`."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from vernier.measure.profiles import StepRange
from vernier.measure.sensors import Lines
from vernier.plugins import needed_plugin
from vernier.records.profile import ProfileSummary
from vernier.records.what_ran import WhatRan


class Profiler(Protocol):
    """Profiles some of the steps of a run: `begin` and `end` are called around every step, `close` at the end."""

    def begin(self, step: int) -> None:
        """Take note that a step begins, counted from 1."""
        ...

    def end(self, step: int) -> None:
        """Take note that a step is done."""
        ...

    def phase(self, name: str) -> AbstractContextManager[object]:
        """The part of a step that is computed in the context."""
        ...

    def close(self, ran: WhatRan | None, telemetry: Callable[[], Lines]) -> ProfileSummary | None:
        """End the profile; None if no step of the range was reached."""
        ...


def open_profiler(steps: StepRange, folder: Path, synchronize: Callable[[], None], rank: int) -> Profiler:
    """A profiler of some steps that writes its files to a folder. Raises ConfigError if none is installed."""
    profiler: Profiler = needed_plugin("vernier.profilers", "profile_steps", f"{steps.first}:{steps.last}")(
        steps, folder, synchronize, rank
    )
    return profiler
