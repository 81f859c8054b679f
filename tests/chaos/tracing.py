"""Records the file operations of trainings, and makes chosen ones fail: the Python side of `tracer.c`.

`Server` runs command lines in forks of one traced process (`traced_server`); `read_trace` reads what was recorded.
"""

import enum
import errno
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType

SOURCE = Path(__file__).with_name("tracer.c")
REPO = SOURCE.parents[2]


class Operation(enum.IntFlag):
    """Kinds of file operations, as in tracer.c."""

    OPEN_READ = 1
    OPEN_WRITE = 2
    READ = 4
    WRITE = 8
    TRUNCATE = 16
    SYNC = 32
    RENAME = 64
    LINK = 128
    UNLINK = 256
    MKDIR = 512
    RMDIR = 1024
    CLOSE = 2048
    LIST = 4096
    OTHER = 8192


EVERY = Operation(16383)
CHANGES = EVERY & ~(Operation.OPEN_READ | Operation.READ | Operation.CLOSE | Operation.LIST)


class Request(enum.IntEnum):
    """What a process asks the tracer for, as in tracer.c."""

    FAULT = 0x56524E01
    RECORD = 0x56524E02
    COUNT = 0x56524E03


class Mode(enum.IntEnum):
    """How an operation fails, as in tracer.c."""

    NONE = 0
    ERROR = 1
    SHORT_WRITE = 2
    KILL = 3


@dataclass(frozen=True)
class Plan:
    """Which operations of a process fail, and how; or that all of them are recorded."""

    mode: Mode = Mode.NONE
    error: int = 0
    operations: Operation = EVERY
    first: int = 0
    persistent: bool = False
    record: bool = False

    def words(self) -> list[int]:
        """The arguments of prctl."""
        request = Request.RECORD if self.record else Request.FAULT
        return [request, self.operations, self.mode << 16 | self.error, self.first, int(self.persistent)]


@dataclass(frozen=True)
class Record:
    """One operation of a trace; `offset` holds the flags of an open and the size of a truncate."""

    operation: str
    pid: int
    result: int
    fault: int
    offset: int
    path: str
    other: str
    content: bytes = field(repr=False)

    @property
    def error(self) -> str:
        return errno.errorcode.get(-self.result, "") if self.result < 0 else ""


def read_trace(path: Path, begin: int = 0) -> Iterator[Record]:
    """The records of a trace from a byte on."""
    with path.open("rb") as f:
        f.seek(begin)
        while line := f.readline():
            operation, pid, result, fault, offset, length, *paths = line.rstrip(b"\n").split(b"\t")
            content = f.read(int(length))
            f.read(1)
            path_, other = (os.path.normpath(os.fsdecode(p)) if p else "" for p in paths)
            yield Record(operation.decode(), int(pid), int(result), int(fault), int(offset), path_, other, content)


@cache
def missing() -> str:
    """Why operations cannot be traced here; empty where they can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "the tracer is written for Linux on x86_64"
    if shutil.which("gcc") is None:
        return "gcc is not installed"
    try:
        subprocess.run([tracer(), "/", os.devnull, "true"], check=True, capture_output=True, timeout=60)
    except subprocess.CalledProcessError as error:
        return f"processes cannot be traced here: {error.stderr.decode().strip()}"
    return ""


@cache
def tracer() -> str:
    """The compiled tracer; in memory where that is possible, the file vanishes with the process."""
    handle = os.memfd_create("tracer")
    subprocess.run(
        ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", f"/proc/{os.getpid()}/fd/{handle}", str(SOURCE)],
        check=True,
    )
    return f"/proc/{os.getpid()}/fd/{handle}"


@dataclass(frozen=True)
class Ending:
    """How the processes of a command ended, what they printed, and how many operations each of them counted."""

    codes: tuple[int, ...]
    counts: tuple[int, ...]
    output: str
    records: tuple[Record, ...] = field(repr=False)

    @property
    def code(self) -> int:
        return self.codes[0]


class Server:
    """A traced process that has imported Vernier, and runs commands in forks of itself."""

    def __init__(self, folder: Path, scratch: Path, module: str = "vernier.cli") -> None:
        """Operations below `folder` are seen; `scratch` holds the trace and the output; `module` has a `main`."""
        scratch.mkdir(parents=True, exist_ok=True)
        self._trace, self._output, self._position = scratch / "trace", scratch / "output", 0
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [tracer(), str(folder), str(self._trace), sys.executable, "-m", "tests.chaos.traced_server", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPO,
            env={**os.environ, **one_thread},
        )

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if error is not None:
            self._process.kill()
        self._process.wait(timeout=60)

    def run(self, *arguments: str, plan: Plan | None = None, environments: Sequence[dict[str, str]] = ({},)) -> Ending:
        """Run a command to its end, in one process per environment; `plan` is about each of them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._output.unlink(missing_ok=True)
        words = (plan or Plan()).words()
        commands = [{"arguments": arguments, "environment": each, "request": words} for each in environments]
        self._process.stdin.write(json.dumps({"commands": commands, "output": str(self._output)}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the fork server ended")
        reply = json.loads(line)
        records = tuple(read_trace(self._trace, self._position))
        self._position = self._trace.stat().st_size
        output = self._output.read_text(errors="replace") if self._output.exists() else ""
        return Ending(tuple(reply["codes"]), tuple(reply["counts"]), output, records)
