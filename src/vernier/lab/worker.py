"""A process that measures or tries something: it gets its request in a file and leaves its answer in another.

`lab.measured.arm` runs inside it. Benchmarks and studies start one per repeat and wait for it, `tune` keeps several
and suspends all but one, `doctor` gives each a time limit. A worker leads a group of its own and ends with the process
that started it, also if that one is killed.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from vernier.folders import PACKAGE_PARENT
from vernier.records.codec import encode
from vernier.store import read_json, write_json

COMMAND = [sys.executable, "-P", "-m", "vernier", "bench", "arm"]
"""Part of the interface between versions: a comparison with another version starts the worker of that version."""
GRACE_S = 20.0
_KILL_S = 5.0


class Worker:
    """A started worker. `variables` are added to its environment; `source` has the code of another version."""

    def __init__(
        self, request: object, folder: Path, variables: Mapping[str, str] | None = None, source: Path | None = None
    ) -> None:
        file, self._answer, self._log = (folder / name for name in ("request.json", "answer.json", "log"))
        write_json(file, encode(request), sync=False)
        # Output goes to a file: a process that cannot be ended would keep a pipe open.
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*COMMAND, str(file), str(self._answer)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment(source), **(variables or {})},
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

    def answer(self) -> dict[str, Any] | None:
        """What it answered; None if it did not. Raises ConfigError for a damaged file."""
        return read_json(self._answer) if self._answer.exists() else None

    def last_lines(self, count: int) -> str:
        """The end of its output as one line, for messages."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " ".join([line.strip() for line in lines if line.strip()][-count:]) or "no message"

    def memory_bytes(self) -> int:
        """Memory of the worker and the processes it started."""
        total = 0
        for process in self._tree():
            with suppress(psutil.Error):
                total += process.memory_info().rss
        return total

    def suspend(self) -> None:
        """Stop it where it is, with the processes it started, so that it uses no processor."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it continue."""
        self._signal(signal.SIGCONT)

    def end(self, grace_s: float = GRACE_S) -> None:
        """End it and the processes it started: SIGTERM, so that it can end them itself, and SIGKILL after `grace_s`."""
        tree = self._tree()
        if grace_s and self._process.poll() is None:
            self._process.terminate()
            self.resume()  # a suspended process would get the signal only then
            self.ends_within(grace_s)
        for process in tree:
            with suppress(psutil.Error):
                process.kill()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.ends_within(_KILL_S)  # no longer: one that is stuck in its driver never ends

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def _tree(self) -> list[psutil.Process]:
        try:
            own = psutil.Process(self._process.pid)
            return [own, *own.children(recursive=True)]
        except psutil.Error:
            return []

    def _signal(self, number: int) -> None:
        for process in self._tree():
            with suppress(psutil.Error):
                process.send_signal(number)


def environment(source: Path | None) -> dict[str, str]:
    """The variables of a worker: PYTHONPATH leads to this version's code, or to that of another one."""
    own = str(source or PACKAGE_PARENT)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep) if source is None else []
    path = [own, *(p for p in inherited if p and p != own)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
