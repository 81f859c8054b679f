"""Running the arms of a benchmark: each repeat in a fresh process, all arms once per round, in random order.

So a disturbance of the machine affects all arms alike, and differences between processes are part of the figures.
Which arms there are, and which version of Vernier they run, is decided in `combinations`.
"""

import itertools
import random
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from vernier.clock import now_s
from vernier.errors import RunFailed
from vernier.frozen import frozen
from vernier.host_memory import available_bytes
from vernier.lab.worker import Worker
from vernier.records.bench import (
    ArmFailure,
    ArmLabels,
    ArmProgress,
    ArmRequest,
    ArmResult,
    RepeatResult,
    Round,
    ServingResult,
    StepResult,
    StudyRequest,
)
from vernier.records.codec import DamagedRecord, decode
from vernier.store import read_json

from .progress import read_progress

ARM_TIMEOUT_S = 24 * 3600.0
MEMORY_SHARE = 0.9
_POLL_S = 1.0
T = TypeVar("T")


@frozen
class Arm:
    """One load to measure. `labels` tell it from the others, `request` goes to its process, `source` is its code."""

    name: str
    labels: ArmLabels
    request: ArmRequest
    source: Path | None = None


OnPace = Callable[[float], None]
OnProgress = Callable[[Arm, ArmProgress | None], None]
"""Called about once per second with the arm that runs, and what its process is doing; None: it has not said."""


def run_arms(
    arms: Sequence[Arm], *, repeats: int, seed: int, on_progress: OnProgress = lambda *_: None
) -> Iterator[Round]:
    """Run every arm `repeats` times, and yield each result as soon as it is there."""
    generator, order, failures = random.Random(seed), itertools.count(), dict[str, ArmFailure]()
    for number in range(repeats):
        for arm in generator.sample(list(arms), len(arms)):
            failure = failures.get(arm.name) or _expected_failure(arm, arms, failures)
            result = failure or run_in_process(arm, on_progress)
            if isinstance(result, ArmFailure):
                failures[arm.name] = result
            yield Round(arm=arm.name, round=number, order=next(order), result=result)


def _expected_failure(arm: Arm, arms: Sequence[Arm], failures: dict[str, ArmFailure]) -> ArmFailure | None:
    """Out of memory, when a smaller batch of an otherwise equal arm did not fit."""
    for other in arms:
        batch = other.labels.batch
        full = other.name in failures and failures[other.name].status == "out-of-memory"
        if full and batch < arm.labels.batch and replace(arm.labels, batch=batch) == other.labels:
            return ArmFailure(status="out-of-memory", why=f"not tried: batch {batch} did not fit either")
    return None


# ------------------------------------------------------------------------------------------------------------ processes


def run_in_process(arm: Arm, on_progress: OnProgress = lambda *_: None) -> ArmResult:
    """One arm in a process of its own; a process that the kernel killed is an out-of-memory result."""
    kind: type[StepResult | ServingResult] = ServingResult if arm.request.scenario == "server" else StepResult
    with tempfile.TemporaryDirectory(prefix="vernier-bench-") as scratch:
        progress = Path(scratch) / "progress"
        request = replace(arm.request, started_s=now_s(), progress=progress)
        with Worker(request, Path(scratch), source=arm.source) as worker:
            return _wait(worker, arm.name, kind, lambda: on_progress(arm, read_progress(progress)))


def run_study_repeat(
    name: str, request: StudyRequest, variables: dict[str, str], on_pace: OnPace | None = None
) -> RepeatResult | ArmFailure:
    """One repeat of a study in a process with these environment variables.

    `on_pace` is called once, with the process's first estimate of the seconds per iteration.
    """
    with tempfile.TemporaryDirectory(prefix="vernier-bench-") as scratch:
        pace = Path(scratch) / "pace"
        listeners = [on_pace] if on_pace else []

        def look() -> None:
            if listeners and pace.exists():
                listeners.pop()(read_json(pace)["seconds_per_iteration"])

        with Worker(replace(request, pace=pace), Path(scratch), variables) as worker:
            return _wait(worker, name, RepeatResult, look)


def _wait(worker: Worker, name: str, kind: type[T], look: Callable[[], None]) -> T | ArmFailure:
    """The answer of this kind, or a failure. Raises RunFailed if the process failed without an answer.

    `look` is called about once per second.
    """
    began_s = now_s()
    while not worker.ends_within(_POLL_S):
        look()
        if now_s() - began_s >= ARM_TIMEOUT_S:
            raise RunFailed(f"The arm {name} was not done after {ARM_TIMEOUT_S / 3600:g} hours.")
    look()
    tree = worker.answer()
    if tree is not None:
        try:
            tree = {**tree, "process_s": now_s() - began_s}
            return decode(kind, tree) if tree.get("status") == "ok" else decode(ArmFailure, tree)
        except DamagedRecord as error:
            raise RunFailed(f"The process of {name} answered something else than a result: {error}.") from None
    if worker.code == -signal.SIGKILL:
        why = "the process was killed, as the kernel does when memory runs out"
        return ArmFailure(status="out-of-memory", why=why)
    raise RunFailed(f"The arm {name} failed with exit code {worker.code}: {worker.last_lines(3)}")


def memory_limit(device: str) -> int | None:
    """Bytes an arm may take so that the machine survives it; None for accelerators, which have memory of their own."""
    return int(available_bytes() * MEMORY_SHARE) if device in ("cpu", "auto") else None
