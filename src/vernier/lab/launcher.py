"""Starts processes that measure or try something: a request in one file, an answer in another.

`lab.measured` runs inside them. `run` starts one and waits for its end: benchmarks, studies, profiles. `live` keeps
several, which measure whenever they are asked to and are stopped (SIGSTOP) in between, loader threads included: so
`tune` compares configurations within seconds, without starting them again. A process leads a group of its own and ends
with the process that started it, also if that one is killed.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psutil

from vernier.clock import now_s
from vernier.errors import ConfigError, RunFailed
from vernier.folders import PACKAGE_PARENT
from vernier.frozen import frozen
from vernier.host_memory import available_bytes
from vernier.records.codec import DamagedRecord, decode, encode
from vernier.store import read_json, read_record, write_json

from .records.bench import Failure, LiveRequest, Measurement, MeasuringProgress, Ready, Request

COMMAND = [sys.executable, "-P", "-m", "vernier", "bench", "arm"]
LIMIT_S = 24 * 3600.0
GRACE_S, LIVE_GRACE_S, _KILL_S = 20.0, 10.0, 5.0
MEMORY_SHARE = 0.9
_POLL_S, _LIVE_POLL_S = 1.0, 0.004
_ANSWER_S, _ANSWER_FACTOR = 60.0, 30
_KILLED = "the process was killed, as the kernel does when memory runs out"

T = TypeVar("T")
Answer = dict[str, Any]
"""What a process answers, as its file has it: a record that `decode` reads."""
OnProgress = Callable[[MeasuringProgress | None], None]
"""Called about once per second with what the process is doing; None: it has not said."""


class Process:
    """A started process. `variables` are added to its environment."""

    def __init__(self, request: Request, folder: Path, variables: Mapping[str, str] | None = None) -> None:
        file, self._answer, self._log, self._progress = (
            folder / name for name in ("request.json", "answer.json", "log", "progress")
        )
        self.request = replace(request, progress=self._progress, started_s=now_s())
        # The process reads it within a second: waiting for the disk would only delay its start.
        write_json(file, encode(self.request), sync=False)
        # Output goes to a file: a process that cannot be ended would keep a pipe open.
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*COMMAND, str(file), str(self._answer)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**_environment(), **(variables or {})},
                # A group of its own, so that Ctrl-C in the terminal reaches this process alone, which then ends the
                # group in order.
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end, at most so long."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=seconds)
        return self._process.poll() is not None

    def answer(self) -> Answer | None:
        """What it answered; None if it did not. Raises ConfigError for a damaged file."""
        return read_json(self._answer) if self._answer.exists() else None

    def progress(self) -> MeasuringProgress | None:
        """What it is doing now; None where it has not said."""
        try:
            return decode(MeasuringProgress, read_json(self._progress))
        except (OSError, ConfigError, DamagedRecord):
            return None

    def last_lines(self, count: int) -> str:
        """The end of its output as one line, for messages."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " ".join([line.strip() for line in lines if line.strip()][-count:]) or "no message"

    def memory_bytes(self) -> int:
        """Memory of the process and those that it started."""
        total = 0
        for process in self._tree():
            with suppress(psutil.Error):
                total += process.memory_info().rss
        return total

    def signal(self, number: int) -> None:
        """Send a signal to it and to what it started: SIGSTOP, so that they use no processor, or SIGCONT."""
        for process in self._tree():
            with suppress(psutil.Error):
                process.send_signal(number)

    def end(self, grace_s: float = GRACE_S) -> None:
        """End it and the processes it started: SIGTERM, so that it can end them itself, and SIGKILL after `grace_s`."""
        # Before the signal: children of a process that has ended cannot be found from it any more.
        tree = self._tree()
        if grace_s and self._process.poll() is None:
            self._process.terminate()
            self.signal(signal.SIGCONT)  # a stopped process would get the other signal only then
            self.ends_within(grace_s)
        for process in tree:
            with suppress(psutil.Error):
                process.kill()
        # Loader workers that were started meanwhile are in no tree, but in the group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.ends_within(_KILL_S)  # no longer: one that is stuck in its driver never ends

    def _tree(self) -> list[psutil.Process]:
        try:
            own = psutil.Process(self._process.pid)
            return [own, *own.children(recursive=True)]
        except psutil.Error:
            return []


def _environment() -> dict[str, str]:
    """The variables of a process: PYTHONPATH leads to this code first."""
    own, inherited = str(PACKAGE_PARENT), os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [own, *(p for p in inherited if p and p != own)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def memory_limit(device: str) -> int | None:
    """Bytes that one may take so that the machine survives it; None for accelerators, with memory of their own."""
    return int(available_bytes() * MEMORY_SHARE) if device in ("cpu", "auto") else None


# ------------------------------------------------------------------------------------------------------- run to the end


@frozen
class Ended:
    """How a process ended. `code` is None if it had to be ended; `output` are its last lines as one."""

    tree: Answer | None
    code: int | None
    seconds: float
    output: str

    def result(self, kind: type[T], name: str) -> T | Failure:
        """The answer of this kind, or a failure, also if the kernel killed it. Raises RunFailed for any other end."""
        if self.tree is not None:
            try:
                answered = {**self.tree, "process_s": self.seconds}
                return decode(kind, answered) if answered.get("status") == "ok" else decode(Failure, answered)
            except DamagedRecord as error:
                raise RunFailed(f"The process of {name} answered something else than a result: {error}.") from None
        if self.code == -signal.SIGKILL:
            return Failure(status="out-of-memory", why=_KILLED)
        if self.code is None:
            raise RunFailed(f"The process of {name} was not done after {self.seconds / 3600:.0f} hours.")
        raise RunFailed(f"The process of {name} failed with exit code {self.code}: {self.output}")


def run(
    request: Request,
    *,
    variables: Mapping[str, str] | None = None,
    on_progress: OnProgress = lambda _: None,
) -> Ended:
    """Run one process to its end, at most for a day; whatever it started ends with it."""
    with tempfile.TemporaryDirectory(prefix="vernier-measuring-") as scratch:
        process, began_s = Process(request, Path(scratch), variables), now_s()
        try:
            # The wait itself is the pause between two looks at the progress, and ends at once with the process.
            while not process.ends_within(_POLL_S) and now_s() - began_s < LIMIT_S:
                on_progress(process.progress())
            code, seconds = process.code, now_s() - began_s
            on_progress(process.progress())
        finally:
            process.end()
        return Ended(tree=process.answer(), code=code, seconds=seconds, output=process.last_lines(3))


# -------------------------------------------------------------------------------------------- measuring when asked to


class Failed(Exception):
    """A live process that cannot run here or did not answer in time; the text says why. Using it raises it."""

    @property
    def ready(self) -> Ready:
        raise self

    def measure(self) -> Measurement:
        raise self


class LiveProcess(Process):
    """A process that waits, stopped, until it is asked to measure."""

    ready: Ready
    _count = 0

    def is_ready(self) -> bool:
        """Whether it waits to be asked; it is stopped then. Raises Failed."""
        file = self._file("ready")
        if not file.exists():
            self._check()
            return False
        self.ready = _read(Ready, file)
        self.signal(signal.SIGSTOP)
        return True

    def measure(self) -> Measurement:
        """One measurement. Raises Failed."""
        # One that takes this much longer than it announced is stuck in a driver or in a collective.
        limit_s = _ANSWER_S + _ANSWER_FACTOR * self.ready.seconds
        question, began_s = self._file(str(self._count)), now_s()
        answer = question.with_suffix(".json")
        # Asked before it is continued, so that it measures as soon as it wakes.
        question.touch()
        self._count += 1
        self.signal(signal.SIGCONT)
        while not answer.exists():
            self._check()
            if now_s() - began_s > limit_s:
                raise Failed(f"no answer within {limit_s:.0f} s")
            threading.Event().wait(_LIVE_POLL_S)
        self.signal(signal.SIGSTOP)
        return _read(Measurement, answer)

    def _file(self, name: str) -> Path:
        assert isinstance(self.request, LiveRequest)
        return self.request.file(name)

    def _check(self) -> None:
        """Raise Failed if the process has ended."""
        if self.code is None:
            return
        try:
            answer = self.answer()
        except ConfigError as error:
            raise Failed(f"its answer cannot be read: {error}") from None
        if answer is not None:
            raise Failed(decode(Failure, answer).why)
        if self.code == -signal.SIGKILL:
            raise Failed(_KILLED)
        raise Failed(f"its process ended with exit code {self.code}: {self.last_lines(2)}")


def _read(kind: type[T], path: Path) -> T:
    try:
        return read_record(kind, path)
    except (OSError, ConfigError) as error:
        raise Failed(f"its answer cannot be read: {error}") from None


@contextmanager
def live(requests: Mapping[str, LiveRequest], limit_s: float = LIMIT_S) -> Iterator[dict[str, LiveProcess | Failed]]:
    """Start these side by side; each is ready, or failed, within the limit. All end with the context."""
    started: dict[str, LiveProcess] = {}
    with tempfile.TemporaryDirectory(prefix="vernier-measuring-") as scratch:
        try:
            for number, (name, request) in enumerate(requests.items()):
                folder = Path(scratch) / str(number)
                folder.mkdir()
                started[name] = LiveProcess(request, folder)
            # All start at once: starting takes seconds of one core each, mostly for importing PyTorch.
            yield _wait_until_ready(started, limit_s)
        finally:
            for process in started.values():
                process.end(LIVE_GRACE_S)


def _wait_until_ready(started: Mapping[str, LiveProcess], limit_s: float) -> dict[str, LiveProcess | Failed]:
    answers: dict[str, LiveProcess | Failed] = {}
    began_s = now_s()
    while len(answers) < len(started):
        for name, process in started.items():
            if name in answers:
                continue
            try:
                if process.is_ready():
                    answers[name] = process
                elif now_s() - began_s > limit_s:
                    answers[name] = Failed(f"not ready after {limit_s:.0f} s")
                    process.end(LIVE_GRACE_S)
            except Failed as failure:
                answers[name] = failure
        threading.Event().wait(_LIVE_POLL_S)
    return answers
