"""How far a benchmark is: what a measuring process is doing now, where its time went, and how long the rest will take.

A measuring process writes its phase to a file that the benchmark's own process reads; versions before there was such a
file just show no phase. `lab.report.benchmark` prints it.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from vernier.clock import now_s
from vernier.frozen import frozen
from vernier.measure.estimates import rate_estimate
from vernier.records.bench import ArmFailure, ArmProgress, Plan, Round, ServingResult, StepResult
from vernier.records.codec import DamagedRecord, decode, encode

START_UP, WARM_UP, COMPILING, PROBE, MEASURING, PHASES, END = (
    "start-up",
    "warm-up",
    "compiling",
    "matrix products",
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

    def __init__(self, started_s: float | None = None, path: Path | None = None, *, compiles: bool = False) -> None:
        self.started_s, self.compiles = now_s() if started_s is None else started_s, compiles
        self.spent_s: dict[str, float] = {}
        self.one_off_s = 0.0
        """How much longer than twice a later step the first one took, where the network is compiled in it."""
        self._path, self._phase = path, START_UP
        self._entered_s = self._written_s = self.started_s

    def enter(self, phase: str) -> None:
        """The last phase is over, and this one begins."""
        at_s = now_s()
        compiling_s = self.one_off_s if self._phase == WARM_UP else 0.0
        self.spent_s[self._phase] = self.spent_s.get(self._phase, 0.0) + at_s - self._entered_s - compiling_s
        if compiling_s:
            self.spent_s[COMPILING] = compiling_s
        self._phase, self._entered_s = phase, at_s
        self._write(ArmProgress(phase=phase))

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
        self._write(ArmProgress(phase=self._phase, steps=len(step_s), rate=rate))

    def _write(self, progress: ArmProgress) -> None:
        if self._path is not None:
            # Renamed so that the reader never sees half a file; not synced, which would wait for the disk.
            draft = self._path.with_suffix(".draft")
            draft.write_text(json.dumps(encode(progress)), encoding="utf-8")
            draft.replace(self._path)
            self._written_s = now_s()


def read_progress(path: Path) -> ArmProgress | None:
    """What the process that writes this file is doing; None where it has not said."""
    try:
        return decode(ArmProgress, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, DamagedRecord):
        return None


# ------------------------------------------------------------------------------------------- seen from the benchmark


def expected_process_s(plan: Plan) -> float:
    """Seconds of one process before any has run: start-up and some warm-up, and all the time it may measure."""
    extra_s = START_UP_GUESS_S + 0.25 * plan.warmup_max_seconds
    return min(extra_s, plan.extra_max_seconds or extra_s) + plan.max_seconds


@frozen
class Running:
    """The process that runs now: its arm, for how long it has been running, and in which phase it is."""

    arm: str
    seconds: float
    phase: str = START_UP


def remaining_s(arms: Sequence[str], rounds: Sequence[Round], repeats: int, plan: Plan, now: Running) -> float:
    """Seconds until the end: an arm takes as long as it took before, else as the others, else as expected.

    A process that takes longer than expected makes those after it as long. An arm that failed is not repeated.
    """
    took_s: dict[str, list[float]] = {name: [] for name in arms}
    for one in rounds:
        if not isinstance(one.result, ArmFailure) and one.result.process_s is not None:
            took_s[one.arm].append(one.result.process_s)
    known = [s for times in took_s.values() for s in times]
    least_left_s = plan.max_seconds if now.phase in (START_UP, WARM_UP) and plan.steps is None else 0.0
    typical_s = statistics.fmean(known) if known else max(expected_process_s(plan), now.seconds + least_left_s)
    failed = {one.arm for one in rounds if isinstance(one.result, ArmFailure)}
    left_s = 0.0
    for name in arms:
        if name not in failed:
            each_s = statistics.fmean(took_s[name]) if took_s[name] else typical_s
            count = repeats - sum(one.arm == name for one in rounds) - (name == now.arm)
            left_s += count * each_s
            if name == now.arm:
                left_s += max(each_s - now.seconds, least_left_s, 0.0)
    return left_s


def total_spent_s(rounds: Sequence[Round], total_s: float) -> dict[str, float]:
    """Seconds of a whole benchmark by phase, longest first, with `total`; `other` is what no process accounts for."""
    spent_s: dict[str, float] = {}
    for one in rounds:
        if not isinstance(one.result, ArmFailure):
            for phase, seconds in (one.result.spent_s or _spent_by_an_older_version(one.result)).items():
                spent_s[phase] = spent_s.get(phase, 0.0) + seconds
    other_s = max(0.0, total_s - sum(spent_s.values()))
    return {"total": total_s, **dict(sorted(spent_s.items(), key=lambda item: -item[1])), "other": other_s}


def _spent_by_an_older_version(result: StepResult | ServingResult) -> dict[str, float]:
    if isinstance(result, ServingResult):
        return {WARM_UP: sum(result.raw.warmup_s), MEASURING: max(result.raw.planned_s, default=0.0)}
    return {WARM_UP: sum(result.raw.warmup.step_s), MEASURING: sum(result.raw.step_s)}
