"""How far a benchmark is: what a measuring process is doing now, where its time went, and how long the rest will take.

A measuring process writes its phase to a file that the benchmark's own process reads. `lab.report.progress` prints it.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vernier.clock import now_s
from vernier.lab.records.bench import Failure, MeasuringProgress, Plan, Round
from vernier.measure.estimates import rate_estimate
from vernier.records.codec import encode
from vernier.store import write_atomically

if TYPE_CHECKING:
    from vernier.engine.processes.world import World

T = TypeVar("T")

START_UP, WARM_UP, COMPILING, MEASURING, PHASES, END = (
    "start-up",
    "warm-up",
    "compiling",
    "measuring",
    "phases of a step",
    "end",
)
EVERY_S = 1.0
"""How often a process that measures writes how far it is; it does so between two steps, outside their time."""
START_UP_GUESS_S = 8.0
"""Start-up and first step of a process, before one of this benchmark has shown how long they take."""


class PhaseWatch:
    """Inside a measuring process: the seconds of each phase so far, and the file that says which it is in."""

    def __init__(
        self,
        started_s: float | None = None,
        path: Path | None = None,
        *,
        compiles: bool = False,
        world: "World | None" = None,
    ) -> None:
        self.started_s, self.compiles = now_s() if started_s is None else started_s, compiles
        self.spent_s: dict[str, float] = {}
        self.one_off_s = 0.0
        """How much longer than twice a later step the first one took, where the network is compiled in it."""
        self._path, self._phase, self._world = path, START_UP, world
        self._entered_s = self._written_s = self.started_s

    def agreed(self, value: T) -> T:
        """The value of the first process in all of them: they must take the same steps, or their collectives hang."""
        return value if self._world is None else self._world.broadcast_from_first(lambda: value)

    def enter(self, phase: str) -> None:
        """The last phase is over, and this one begins."""
        at_s = now_s()
        compiling_s = self.one_off_s if self._phase == WARM_UP else 0.0
        self.spent_s[self._phase] = self.spent_s.get(self._phase, 0.0) + at_s - self._entered_s - compiling_s
        if compiling_s:
            self.spent_s[COMPILING] = compiling_s
        self._phase, self._entered_s = phase, at_s
        self._write(MeasuringProgress(phase=phase))

    def extra_s(self) -> float:
        """Seconds since the process was started, without measuring and without compiling."""
        measuring_s = self.spent_s.get(MEASURING, 0.0)
        if self._phase == MEASURING:
            measuring_s += now_s() - self._entered_s
        return now_s() - self.started_s - measuring_s - self.one_off_s

    def show(self, step_s: Sequence[float], images: int) -> None:
        """Write how many steps the phase has had, while measuring also their rate, at most once per EVERY_S."""
        if self._path is None or now_s() - self._written_s < EVERY_S:
            return
        rate = rate_estimate(step_s, images) if self._phase == MEASURING else None
        self._write(MeasuringProgress(phase=self._phase, steps=len(step_s), rate=rate))

    def _write(self, progress: MeasuringProgress) -> None:
        if self._path is not None:
            # Renamed so that the reader never sees half a file; not synced, which would wait for the disk.
            write_atomically(self._path, json.dumps(encode(progress)), sync=False)
            self._written_s = now_s()


# ------------------------------------------------------------------------------------------- seen from the benchmark


def expected_process_s(plan: Plan) -> float:
    """Seconds of one process before any has run: start-up and some warm-up, and all the time it may measure."""
    extra_s = START_UP_GUESS_S + 0.25 * plan.warmup_max_seconds
    return min(extra_s, plan.extra_max_seconds or extra_s) + plan.max_seconds


def remaining_s(rounds: Sequence[Round], total: int, plan: Plan, running_s: float, phase: str = START_UP) -> float:
    """Seconds until all `total` processes have ended: each takes as long as those before it, or as expected.

    The one that runs now has been running for `running_s`; one that takes longer than expected makes those after it
    as long.
    """
    took_s = [r.result.process_s for r in rounds if not isinstance(r.result, Failure) and r.result.process_s]
    least_left_s = plan.max_seconds if phase in (START_UP, WARM_UP) and plan.steps is None and running_s else 0.0
    each_s = statistics.fmean(took_s) if took_s else max(expected_process_s(plan), running_s + least_left_s)
    left = total - len(rounds)
    return max(left * each_s - running_s, (left - 1) * each_s + least_left_s)


def total_spent_s(rounds: Sequence[Round], total_s: float) -> dict[str, float]:
    """Seconds of a whole benchmark by phase, longest first, with `total`; `other` is what no process accounts for."""
    spent_s: dict[str, float] = {}
    for one in rounds:
        if not isinstance(one.result, Failure):
            for phase, seconds in (one.result.spent_s or {}).items():
                spent_s[phase] = spent_s.get(phase, 0.0) + seconds
    other_s = max(0.0, total_s - sum(spent_s.values()))
    return {"total": total_s, **dict(sorted(spent_s.items(), key=lambda item: -item[1])), "other": other_s}
