"""Train two processes for half an hour with a fault every 30 seconds, restarted as a scheduler would; compare the end.

    python -m tests.chaos.soak                            30 minutes, then the undisturbed run of as many steps
    python -m tests.chaos.soak --minutes 5 --every 10

The training has no end of its own: it is asked to stop after its time, resumed to that step, and compared with a run of
the same steps that nobody disturbed: all checkpoints, each step's loss, each evaluation, bit for bit. Also told: how
much of the time was useful, what each kind of fault cost, and whether memory, descriptors or threads grow.
"""

import argparse
import contextlib
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.conftest import TINY
from vernier.measure.estimates import _t_quantile
from vernier.records.events import StepEvent
from vernier.store import find_runs

from .disturbances import FAULTS, CannotDisturb, Scene, Stage, stage
from .fork_server import Session, kill, start_command
from .results import differences, training_result
from .scenarios import settings

WARM_UP_S = 10.0
"""A process's memory, descriptors and threads are looked at from here on."""
RESTART_PAUSE_S = 1.0
EXIT_STOPPED = 75
SETTINGS = settings(
    schedule__kind="constant",
    schedule__warmup_epochs="0",
    augment__mixup="0.2",
    ema__decay="0.99",
    checkpoint__every_epochs="0",
    checkpoint__every_steps="100",
    eval__every_epochs="50",
    limits__log_every_steps="1",
    machine__rank_timeout_s="20",
)
Starter = Callable[[list[str], Path, dict[str, str]], Session]


@dataclass(frozen=True)
class Sample:
    """One look at a process that trains."""

    pid: int
    at_s: float
    """Since its session began to train."""
    rss_mb: float
    descriptors: int
    threads: int


@dataclass
class Record:
    """What happened."""

    faults: Counter[str] = field(default_factory=Counter)
    exits: Counter[int] = field(default_factory=Counter)
    progress: list[tuple[float, str, int]] = field(default_factory=list)
    """Seconds since the start, the fault that begins, and the step reached."""
    samples: list[Sample] = field(default_factory=list)
    wall_s: float = 0.0
    steps: int = 0
    runs: int = 0
    undisturbed_step_s: float = 0.0
    differences: list[str] = field(default_factory=list)


@dataclass
class Supervisor:
    """Keeps a training going: starts the same command again whenever it ends before its time."""

    arguments: list[str]
    start: Starter
    stage: Stage
    log: Path
    record: Record
    session: Session | None = None
    _started_s: float = 0.0  # wall clock, as file times are
    _training_s: float | None = None
    _sampled_s: float = 0.0

    def look(self) -> None:
        """Start a session where there is none; sample the one that runs."""
        if self.session is None:
            self.session = self.start(self.arguments, self.log, dict(self.stage.environ()))
            self._started_s, self._training_s = time.time(), None
        elif not self.session.running():
            self.note_end(self.session.wait())
            time.sleep(RESTART_PAUSE_S)
        elif self.is_training() and time.monotonic() - self._sampled_s > 1.0:
            self._sample(self.session)

    def is_training(self) -> bool:
        """Whether there is a session and it has logged something."""
        if self.session is None:
            return False
        if self._training_s is None:
            written_s = [path.stat().st_mtime for path in self.stage.disk.glob("*/events.jsonl")]
            if max(written_s, default=0.0) > self._started_s:
                self._training_s = time.monotonic()
        return self._training_s is not None

    def note_end(self, code: int) -> None:
        self.record.exits[code] += 1
        self.session = None
        if code == 0:
            raise AssertionError(f"a training without an end has ended:\n{self.log_tail()}")

    def _sample(self, session: Session) -> None:
        assert self._training_s is not None
        self._sampled_s = time.monotonic()
        for pid in session.ranks():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                age_s, rss_mb = self._sampled_s - self._training_s, process.memory_info().rss / 1e6
                self.record.samples.append(Sample(pid, age_s, rss_mb, process.num_fds(), process.num_threads()))

    def stop(self, limit_s: float = 300.0) -> None:
        """Ask the training to save and end, until it does."""
        deadline_s = time.monotonic() + limit_s
        while time.monotonic() < deadline_s:
            self.look()
            if self.session is not None and self.is_training() and self.session.running():
                self.session.ask_to_stop()
                code = self.session.wait()
                self.record.exits[code] += 1
                self.session = None
                if code == EXIT_STOPPED:
                    return
            time.sleep(0.1)
        raise AssertionError(f"the training does not stop:\n{self.log_tail()}")

    def log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-25:])

    def end(self) -> None:
        if self.session is not None:
            kill(*self.session.processes())
            self.session.wait()


def current_step(out: Path) -> int:
    """The last step that the run has logged."""
    runs = find_runs(out)
    if not runs:
        return 0
    steps = [event.step for event in runs[-1].history() if isinstance(event, StepEvent)]
    return steps[-1] if steps else 0


# --------------------------------------------------------------------------------------------------------- the session


def training_arguments(data: Path, out: Path, *more: str) -> list[str]:
    command = ["train", "--data", str(data), "--out", str(out), *TINY, *SETTINGS, "--epochs", "1000000"]
    return [*command, "--no-tensorboard", *more]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long to train, and which faults come how often."""

    seconds: float
    every_s: float
    fault_s: float
    """How long a fault lasts that has a length."""
    faults: tuple[str, ...] = tuple(FAULTS)
    least: int = 1
    """Go on beyond the time until there were so many faults."""


def soak(stage: Stage, data: Path, start: Starter, plan: Plan, *more: str) -> Record:
    """Train under faults, then compare. `more` are further arguments of `vernier train`."""
    record, dice = Record(), random.Random(1)
    log = stage.folder / "training.log"
    supervisor = Supervisor(training_arguments(data, stage.disk, *more), start, stage, log, record)
    try:
        _disturb(supervisor, plan, dice)
        stage.disturb(delay_us=0, offset_s=0)
        supervisor.stop()
    finally:
        supervisor.end()
    record.steps, record.runs = current_step(stage.disk), len(find_runs(stage.disk))
    limit = ["--max-steps", str(record.steps)]
    _run_to_end(start, [*training_arguments(data, stage.disk, *more), *limit], log)
    reference = stage.folder / "reference"
    _run_to_end(start, [*training_arguments(data, reference, *more), *limit], log)
    record.differences = differences(training_result(stage.disk), training_result(reference))
    record.undisturbed_step_s = _step_s(reference)
    return record


def _disturb(supervisor: Supervisor, plan: Plan, dice: random.Random) -> None:
    record, out, began_s = supervisor.record, supervisor.stage.disk, time.monotonic()
    turn, next_s = _turns(plan.faults, dice), plan.every_s
    record.progress.append((0.0, "start", 0))
    while (now_s := time.monotonic() - began_s) < plan.seconds or record.faults.total() < plan.least:
        if now_s > 20 * plan.seconds:
            raise AssertionError(f"too slow for {plan.least} faults:\n{supervisor.log_tail()}")
        supervisor.look()
        if now_s >= next_s and supervisor.is_training() and supervisor.session is not None:
            fault = next(turn)
            record.faults[fault] += 1
            record.progress.append((now_s, fault, current_step(out)))
            FAULTS[fault](Scene(supervisor.stage, supervisor.session, dice, plan.fault_s))
            next_s += plan.every_s
        time.sleep(0.1)
    record.wall_s = time.monotonic() - began_s
    record.progress.append((record.wall_s, "end", current_step(out)))


def _turns(faults: tuple[str, ...], dice: random.Random) -> Iterator[str]:
    """All kinds, in another order each round."""
    first = True
    while True:
        yield from faults if first else dice.sample(faults, len(faults))
        first = False


def _run_to_end(start: Starter, arguments: list[str], log: Path) -> None:
    if code := start(arguments, log, {}).wait():
        raise AssertionError(f"an undisturbed session ended with {code}:\n{log.read_text()[-3000:]}")


def _step_s(out: Path) -> float:
    """Wall time per step of an undisturbed run, with its evaluations and checkpoints."""
    steps = [event for event in find_runs(out)[-1].history() if isinstance(event, StepEvent)]
    first, last = steps[0], steps[-1]
    assert first.t_s is not None
    assert last.t_s is not None
    return (last.t_s - first.t_s) / max(1, last.step - first.step)


# -------------------------------------------------------------------------------------------------------------- report


def settled(samples: list[Sample]) -> list[list[Sample]]:
    """Per process, from its warm-up until shortly before its end, where it is long enough."""
    by_process: dict[int, list[Sample]] = {}
    for sample in samples:
        by_process.setdefault(sample.pid, []).append(sample)
    groups = ([s for s in group[:-2] if s.at_s > WARM_UP_S] for group in by_process.values())
    return [group for group in groups if len(group) >= 5]


def memory_slope(samples: list[Sample]) -> tuple[float, float] | None:
    """MB per hour within processes, and half of its 95 % interval; None where there is too little to say.

    Each process has a level of its own; the interval takes each as one observation, as its samples are not independent.
    """
    sums = []
    for group in settled(samples):
        mean_s, mean_mb = statistics.fmean(s.at_s for s in group), statistics.fmean(s.rss_mb for s in group)
        xx = sum((s.at_s - mean_s) ** 2 for s in group)
        xy = sum((s.at_s - mean_s) * (s.rss_mb - mean_mb) for s in group)
        sums.append((xx, xy))
    total = sum(xx for xx, _ in sums)
    if len(sums) < 3 or not total:
        return None
    slope = sum(xy for _, xy in sums) / total
    spread = sum((xy - slope * xx) ** 2 for xx, xy in sums) ** 0.5 / total * (len(sums) / (len(sums) - 1)) ** 0.5
    return 3600 * slope, 3600 * spread * _t_quantile(0.95, len(sums) - 1)


def growth(samples: list[Sample], name: str) -> tuple[int, int, int]:
    """Smallest and largest number of descriptors or threads, and the largest growth within a process."""
    groups = [[getattr(sample, name) for sample in group] for group in settled(samples)]
    if not groups:
        return 0, 0, 0
    return min(map(min, groups)), max(map(max, groups)), max(group[-1] - group[0] for group in groups)


def lost_seconds(record: Record) -> dict[str, list[float]]:
    """Per fault: the time until the next one, minus what the steps gained in it take undisturbed."""
    lost: dict[str, list[float]] = {}
    for (began_s, fault, step), (ended_s, _, later) in zip(record.progress, record.progress[1:], strict=False):
        lost.setdefault(fault, []).append(ended_s - began_s - (later - step) * record.undisturbed_step_s)
    return lost


def report(record: Record) -> str:
    """For people, and for the documentation."""
    useful = record.steps * record.undisturbed_step_s / record.wall_s
    slope = memory_slope(record.samples)
    memory = f"{slope[0]:+.1f} MB per hour, 95 % interval {slope[1]:.1f} to either side" if slope else "too few samples"
    endings = ", ".join(f"{n} with {code}" for code, n in sorted(record.exits.items()))
    lines = [
        f"{record.steps:,} steps in {record.wall_s / 60:.1f} minutes, {record.faults.total()} faults",
        f"run directories: {record.runs}",
        f"sessions that ended: {endings}",
        f"useful time: {100 * useful:.1f} % ({1000 * record.undisturbed_step_s:.1f} ms per undisturbed step)",
        f"memory (RSS) within a process: {memory}; {len(settled(record.samples))} processes",
        *(
            f"{name}: {low} to {high}, largest growth within a process {most}"
            for name in ("descriptors", "threads")
            for low, high, most in [growth(record.samples, name)]
        ),
        "",
        "| fault | number | seconds lost, median | most |",
        "|---|---:|---:|---:|",
    ]
    for fault, seconds in lost_seconds(record).items():
        lines.append(f"| {fault} | {len(seconds)} | {statistics.median(seconds):.1f} | {max(seconds):.1f} |")
    answer = "identical with the undisturbed run" if not record.differences else "DIFFERENT"
    return "\n".join([*lines, "", f"result: {answer}", *record.differences[:10]])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="time under faults (default: 30)")
    parser.add_argument("--every", type=float, default=30.0, help="seconds from fault to fault (default: 30)")
    flags = parser.parse_args()
    plan = Plan(seconds=60 * flags.minutes, every_s=flags.every, fault_s=flags.every / 6)
    work = Path(tempfile.mkdtemp(prefix="vernier-soak-"))
    make = f"data make shapes --out {work / 'data'} --train 320 --val 80 --size-px 32"
    _run_to_end(start_command, make.split(), work / "making.log")
    try:
        with stage(work / "stage") as ready:
            record = soak(ready, work / "data", start_command, plan, "--procs", "2")
            sys.stdout.write(f"{report(record)}\n")
            if record.differences:
                shutil.copytree(ready.disk, work / "disk")
                sys.stdout.write(f"what differs is in {work}\n")
                return 1
    except CannotDisturb as reason:
        sys.stdout.write(f"skipped: {reason}\n")
        return 0
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
