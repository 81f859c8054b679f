"""Running the arms of a benchmark: each repeat in a fresh process, all arms once per round, in random order.

So a disturbance of the machine affects all arms alike, and differences between processes are part of the figures.
Which arms there are, and which version of Vernier they run, is decided in `combinations`.
"""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from vernier.clock import now_s
from vernier.errors import RunFailed
from vernier.folders import PACKAGE_PARENT
from vernier.frozen import frozen
from vernier.host_memory import available_bytes
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
from vernier.records.codec import DamagedRecord, decode, encode

from .progress import read_progress

ARM_TIMEOUT_S = 24 * 3600.0
MEMORY_SHARE = 0.9
_POLL_S, _TERMINATE_S = 1.0, 20.0
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
    request = replace(arm.request, started_s=now_s())
    return _Process(
        arm.name, request, environment_of(arm.source), "progress", lambda path: on_progress(arm, read_progress(path))
    ).run(kind)


def run_study_repeat(
    name: str, request: StudyRequest, variables: dict[str, str], on_pace: OnPace | None = None
) -> RepeatResult | ArmFailure:
    """One repeat of a study in a process with these environment variables.

    `on_pace` is called once, with the process's first estimate of the seconds per iteration.
    """
    listeners = [on_pace] if on_pace else []

    def look(path: Path) -> None:
        if listeners and path.exists():
            listeners.pop()(json.loads(path.read_text(encoding="utf-8"))["seconds_per_iteration"])

    return _Process(name, request, {**environment_of(None), **variables}, "pace", look).run(RepeatResult)


@dataclass
class _Process:
    """A measuring process: its request goes through a file, and so does its answer.

    `news` is the key of the request with the file for what happens meanwhile, which `look` is called with.
    """

    name: str
    request: ArmRequest | StudyRequest
    variables: dict[str, str]
    news: str
    look: Callable[[Path], None]

    def run(self, kind: type[T]) -> T | ArmFailure:
        """The answer of this kind, or a failure. Raises RunFailed when the process failed without an answer."""
        with tempfile.TemporaryDirectory(prefix="vernier-bench-") as scratch:
            request, answer, news = (Path(scratch) / name for name in ("request", "answer", self.news))
            request.write_text(json.dumps({**encode(self.request), self.news: str(news)}), encoding="utf-8")
            began_s = now_s()
            code, output = self._wait([*_COMMAND, str(request), str(answer)], news)
            if answer.exists():
                tree = {**json.loads(answer.read_text(encoding="utf-8")), "process_s": now_s() - began_s}
                try:
                    return decode(kind, tree) if tree.get("status") == "ok" else decode(ArmFailure, tree)
                except DamagedRecord as error:
                    message = f"The process of {self.name} answered something else than a result: {error}."
                    raise RunFailed(message) from None
        if code == -signal.SIGKILL:
            why = "the process was killed, as the kernel does when memory runs out"
            return ArmFailure(status="out-of-memory", why=why)
        raise RunFailed(f"The arm {self.name} failed with exit code {code}: {' '.join(output[-3:]) or 'no message'}")

    def _wait(self, command: list[str], news: Path) -> tuple[int, list[str]]:
        """The exit code and the last output. An exception in here, such as Ctrl-C, ends the process too."""
        limit_s = now_s() + ARM_TIMEOUT_S
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.variables
        ) as process:
            try:
                while True:
                    output = _output_within(process, _POLL_S)
                    self.look(news)
                    if output is not None:
                        return process.returncode, output
                    if now_s() >= limit_s:
                        raise RunFailed(f"The arm {self.name} was not done after {ARM_TIMEOUT_S / 3600:g} hours.")
            except BaseException:
                _terminate(process)
                raise


_COMMAND = [sys.executable, "-P", "-m", "vernier", "bench", "arm"]


def _output_within(process: "subprocess.Popen[str]", seconds: float) -> list[str] | None:
    """Lines of a process that ended: its errors, or else its output; None while it runs."""
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    return (errors.strip() or out.strip()).splitlines()


def _terminate(process: "subprocess.Popen[str]") -> None:
    """SIGTERM, so that it can end the processes it started; SIGKILL after a while."""
    process.terminate()
    try:
        process.wait(timeout=_TERMINATE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def environment_of(source: Path | None) -> dict[str, str]:
    """The child's variables: PYTHONPATH leads to this version's code, or to that of another one."""
    own = str(source or PACKAGE_PARENT)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep) if source is None else []
    path = [own, *(p for p in inherited if p and p != own)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def memory_limit(device: str) -> int | None:
    """Bytes an arm may take so that the machine survives it; None for accelerators, which have memory of their own."""
    return int(available_bytes() * MEMORY_SHARE) if device in ("cpu", "auto") else None
