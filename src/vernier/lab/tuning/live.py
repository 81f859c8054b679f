"""Processes that take turns: each is started once per race, made ready, and stopped (SIGSTOP) except during its turns.

So arms alternate within seconds without starting again, and a process that waits uses no processor, not even to load
images ahead. All are ended with the context, and by the kernel if this process dies.
"""

import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import psutil

from vernier.clock import now_s
from vernier.config import Config, Work, to_dict
from vernier.errors import ConfigError
from vernier.lab.bench.arms import memory_limit
from vernier.lab.worker import Worker
from vernier.records.bench import ArmFailure, Ready, Turn, TurnsRequest
from vernier.records.codec import decode
from vernier.references import use
from vernier.store import read_record

from .search import Arm, Failed

TURN_S = 0.5
MEMORY_SHARE = 0.85
_POLL_S = 0.004
_TURN_LIMIT_S, _TURN_FACTOR = 60.0, 30
_END_S = 10.0
_SILENCE_S = 86_400.0
"""machine.rank_timeout_s of arms: their processes are stopped for as long as others have their turns."""


T = TypeVar("T")


class LiveArm:
    """One process, or several of one training."""

    ready: Ready

    def __init__(self, request: TurnsRequest) -> None:
        self._request, self._turns = request, 0
        self._worker = Worker(request, request.folder)

    def is_ready(self) -> bool:
        """Whether it waits for its first turn; it is suspended then. Raises Failed."""
        if not self._request.ready_file.exists():
            self._check()
            return False
        self.ready = _read(Ready, self._request.ready_file)
        self._worker.suspend()
        return True

    def turn(self) -> float:
        """Images per second of one turn. Raises Failed."""
        limit_s = _TURN_LIMIT_S + _TURN_FACTOR * self.ready.step_s * self.ready.steps_per_turn
        answer, began_s = self._request.answer_file(self._turns), now_s()
        self._request.turn_file(self._turns).touch()
        self._turns += 1
        self._worker.resume()
        while not answer.exists():
            self._check()
            if now_s() - began_s > limit_s:
                raise Failed(f"no answer within {limit_s:.0f} s")
            threading.Event().wait(_POLL_S)
        self._worker.suspend()
        return _read(Turn, answer).images_per_s

    def memory_bytes(self) -> int:
        """Memory of all its processes now."""
        return self._worker.memory_bytes()

    def end(self) -> None:
        """End all its processes."""
        self._worker.end(_END_S)

    def _check(self) -> None:
        """Raise Failed if the process has ended."""
        code = self._worker.code
        if code is None:
            return
        try:
            answer = self._worker.answer()
        except ConfigError as error:
            raise Failed(f"its answer cannot be read: {error}") from None
        if answer is not None:
            raise Failed(decode(ArmFailure, answer).why)
        if code == -signal.SIGKILL:
            raise Failed("its process was killed, as the kernel does when memory runs out")
        raise Failed(f"its process ended with exit code {code}: {self._worker.last_lines(2)}")


def _read(kind: type[T], path: Path) -> T:
    try:
        return read_record(kind, path)
    except (OSError, ConfigError) as error:
        raise Failed(f"its answer cannot be read: {error}") from None


class LiveStable:
    """Starts processes for arms of some work, as many side by side as memory allows."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._memory_bytes = 0
        """The most that a process of this search has needed."""

    def now_s(self) -> float:
        return now_s()

    @contextmanager
    def open(self, arms: Mapping[str, Config], limit_s: float) -> Iterator[Mapping[str, Arm | Failed]]:
        """Start these, side by side; each is ready, or failed, within the limit. All end with the context."""
        with tempfile.TemporaryDirectory(prefix="vernier-tune-") as scratch:
            started: dict[str, LiveArm] = {}
            try:
                opened: dict[str, Arm | Failed] = dict(self._start(arms, Path(scratch), started))
                opened |= _wait_until_ready(started, now_s() + limit_s)
                yield {name: opened[name] for name in arms}
                for arm in started.values():
                    self._memory_bytes = max(self._memory_bytes, arm.memory_bytes())
            finally:
                for arm in started.values():
                    arm.end()

    def _start(
        self, arms: Mapping[str, Config], scratch: Path, started: dict[str, LiveArm]
    ) -> Iterator[tuple[str, Failed]]:
        """Start as many as fit into memory; give those that do not."""
        free_bytes = psutil.virtual_memory().available
        most = int(MEMORY_SHARE * free_bytes / self._memory_bytes) if self._memory_bytes else len(arms)
        for number, (name, config) in enumerate(arms.items()):
            if number >= most:
                each = f"{self._memory_bytes / 2**30:.1f} GiB"
                yield name, Failed(f"free memory is enough for {most} processes of {each}: reduce {use('batch')}")
                continue
            folder = scratch / str(number)
            folder.mkdir()
            limit = memory_limit(config.machine.device)
            machine = replace(config.machine, telemetry_hz=0.0, rank_timeout_s=_SILENCE_S)
            started[name] = LiveArm(
                TurnsRequest(
                    work=self._work,
                    config=to_dict(replace(config, machine=machine)),
                    folder=folder,
                    turn_s=TURN_S,
                    memory_limit_bytes=None if limit is None else limit // min(most, len(arms)),
                ),
            )


def _wait_until_ready(started: Mapping[str, LiveArm], end_s: float) -> dict[str, Arm | Failed]:
    """Every arm once it is ready, or why it is not; one that is late is ended."""
    answers: dict[str, Arm | Failed] = {}
    began_s = now_s()
    while len(answers) < len(started):
        for name, arm in started.items():
            if name in answers:
                continue
            try:
                if arm.is_ready():
                    answers[name] = arm
                elif now_s() > end_s:
                    answers[name] = Failed(f"not ready after {end_s - began_s:.0f} s: raise {use('time')}")
                    arm.end()
            except Failed as failure:
                answers[name] = failure
        threading.Event().wait(_POLL_S)
    return answers
