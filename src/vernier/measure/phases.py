"""The phases of a step (data, copy, forward, backward, optimizer), timed with the device synchronised at both ends.

Used by benchmarks (`engine.measured.workloads`) and profiles (`measure.profile`); what a phase is, the step says.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from vernier.clock import now_s

Phase = Callable[[str], AbstractContextManager[Any]]


class PhaseClock:
    """Times named phases of a step: `with clock("forward"): ...`. A phase may occur several times per step.

    `inner` is entered within each phase, for a profiler's own marks.
    """

    def __init__(self, synchronize: Callable[[], None], inner: Phase | None = None) -> None:
        self._synchronize, self._inner = synchronize, inner
        self.steps: list[dict[str, float]] = [{}]
        self.ended_s: dict[str, float] = {}

    def __call__(self, name: str) -> "_TimedPhase":
        return _TimedPhase(self, name, None if self._inner is None else self._inner(name))

    def add(self, name: str, seconds: float) -> None:
        """Add to a phase of the current step; negative seconds move time to another phase."""
        self.steps[-1][name] = self.steps[-1].get(name, 0.0) + seconds

    def next_step(self) -> None:
        """Begin the next step."""
        self.steps.append({})

    def by_phase(self) -> dict[str, list[float]]:
        """Seconds of every phase, one value per whole step."""
        whole = [s for s in self.steps if s]
        names = list(dict.fromkeys(name for step in whole for name in step))
        return {name: [step.get(name, 0.0) for step in whole] for name in names}

    def synchronize(self) -> None:
        """Wait until the device is done."""
        self._synchronize()


class _TimedPhase:
    def __init__(self, clock: PhaseClock, name: str, inner: AbstractContextManager[Any] | None) -> None:
        self._clock, self._name, self._inner = clock, name, inner
        self._began_s = 0.0

    def __enter__(self) -> None:
        self._clock.synchronize()
        self._began_s = now_s()
        if self._inner is not None:
            self._inner.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self._inner is not None:
            self._inner.__exit__(*error)
        self._clock.synchronize()
        self._clock.ended_s[self._name] = now_s()
        self._clock.add(self._name, self._clock.ended_s[self._name] - self._began_s)
