"""The phases of a step (data, copy, forward, backward, optimizer), timed with the device synchronised at both ends.

Used by benchmarks (`lab.measured.workloads`) and profiles (`lab.profile`); what a phase is, the step says.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from vernier.clock import now_s

Phase = Callable[[str], AbstractContextManager[Any]]


class PhaseClock:
    """Times named phases of a step: `with clock("forward"): ...`. A phase may occur several times per step.

    `inner` is entered within each phase, for a profiler's own marks.
    """

    def __init__(self, synchronize: Callable[[], None], inner: Phase = nullcontext) -> None:
        self._synchronize, self._inner = synchronize, inner
        self.steps: list[dict[str, float]] = [{}]

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        # What is still queued belongs to the phase before.
        self._synchronize()
        began_s = now_s()
        try:
            with self._inner(name):
                yield
        finally:
            self._synchronize()
            self.add(name, now_s() - began_s)

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
