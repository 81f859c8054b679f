"""Runs inputs in a process of their own, which may crash, hang or eat memory without harm to the others.

The process is a fork, so it starts at once with everything imported. A hang is counted in CPU time, since machines are
shared: a signal ends what runs in Python, and the parent kills what does not return from C. Memory has a limit for the
address space, and a smaller one for what is really used.
"""

import contextlib
import faulthandler
import json
import mmap
import os
import resource
import select
import signal
import struct
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from vernier.config import Model
from vernier.errors import ConfigError, RunFailed, environment_error
from vernier.models.cost import cost_of

from .targets import TARGETS
from .targets.base import Case, Target

CPU_LIMIT_S = 1.0
MEMORY_LIMIT = 512 << 20
"""Resident bytes that one input may add."""
_ADDRESS_SPACE = 4 << 30
_STUCK_S, _WAITING_S = 3.0, 300.0
_SOURCE = str(Path(__file__).parents[2] / "src" / "vernier")


class Hang(BaseException):
    """An input used too much CPU time."""


@dataclass
class Outcome:
    """What became of some inputs. `failures` has the number of the first input of each kind of failure."""

    inputs: int = 0
    typed: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    peak_bytes: int = 0
    cpu_s: float = 0.0
    slowest_s: float = 0.0


# ---------------------------------------------------------------------------------------------------------- one input


class Runner:
    """Runs inputs of a target in a folder that holds its examples. Only in a process that may be limited."""

    def __init__(self, target: Target, folder: Path) -> None:
        self._target, self._folder = target, folder
        # The first model that is counted loads PyTorch's kernels for it: a second that no file is to blame for.
        cost_of(Model(name="resnet18", width=32), px=64)
        os.environ["VERNIER_HOME"] = str(folder / "home")
        for example, files in target.sound.items():
            for path, content in files.items():
                file = folder / example / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)

    def read(self, case: Case) -> None:
        """Read the damaged file as the target does, and put the sound one back."""
        file = self._folder / case.example / case.path
        file.write_bytes(case.content)
        try:
            self._target.read(self._folder / case.example)
        finally:
            file.write_bytes(self._target.sound[case.example][case.path])

    def run(self, case: Case) -> str | None:
        """The kind of failure; "" for a typed error; None for a file that was read."""
        signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
        try:
            self.read(case)
        except (ConfigError, RunFailed):
            return ""
        except OSError as error:
            return "" if environment_error(error) else describe(error)
        except (Exception, Hang) as error:
            return describe(error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return None


def describe(error: BaseException) -> str:
    """Kind of an error, and the last line of Vernier's source that it came through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(_SOURCE)]
    where = "?"
    if frames:
        where = f"{Path(frames[-1].filename).relative_to(_SOURCE)}:{frames[-1].name}:{frames[-1].lineno}"
    return f"{type(error).__name__} in {where}"


def limit_process() -> None:
    """Limits for this process."""

    def on_time(*_: object) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, on_time)
    pages = Path("/proc/self/statm").read_text().split()[0]
    address_space = int(pages) * resource.getpagesize() + _ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (address_space, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    faulthandler.disable()  # pytest's would print a crash that is expected
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    """The resident bytes now, from which the peak is counted anew: the system may have taken memory back meanwhile."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


# ------------------------------------------------------------------------------------------------------------ processes

_STATE = struct.Struct("<qqqqd")  # number of the input that runs, inputs done, typed errors, peak bytes, slowest


def run_many(target: Target, cases: Callable[[int], Case], numbers: Iterable[int], *, until_cpu_s: float) -> Outcome:
    """Run inputs in a process; a new one takes over after a crash, a hang in C or too much memory."""
    outcome, rest = Outcome(), list(numbers)
    while rest and outcome.cpu_s < until_cpu_s:
        ended = _run_process(target, cases, rest, outcome, until_cpu_s - outcome.cpu_s)
        rest = rest[rest.index(ended) + 1 :] if ended in rest else []
    return outcome


def _run_process(
    target: Target, cases: Callable[[int], Case], numbers: list[int], outcome: Outcome, cpu_s: float
) -> int | None:
    """Run the inputs until they end or the process does; the number of the input that ended it, if one did."""
    target.sound  # noqa: B018  made before the fork, once
    state = mmap.mmap(-1, _STATE.size)
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            status = 1
            try:
                _child(target, cases, numbers, state, writing, Path(folder), cpu_s)
                status = 0
            except BaseException:
                os.write(writing, (json.dumps(["broken", traceback.format_exc(limit=-8)]) + "\n").encode())
            finally:
                os._exit(status)
        os.close(writing)
        killed = _watch(pid, reading, state, outcome)
        os.close(reading)
        _, status, usage = os.wait4(pid, 0)
    number, done, typed, peak, slowest = _STATE.unpack(state[:])
    outcome.inputs += done
    outcome.typed += typed
    outcome.cpu_s += usage.ru_utime + usage.ru_stime
    outcome.peak_bytes = max(outcome.peak_bytes, peak)
    outcome.slowest_s = max(outcome.slowest_s, slowest)
    if status == 0:
        return None
    if os.WIFSIGNALED(status):
        outcome.inputs += 1
        kind = "hang outside of Python" if killed else f"crash by {signal.Signals(os.WTERMSIG(status)).name}"
        outcome.failures.setdefault(kind, number)
    return number


def _child(
    target: Target,
    cases: Callable[[int], Case],
    numbers: list[int],
    state: mmap.mmap,
    writing: int,
    folder: Path,
    cpu_s: float,
) -> None:
    limit_process()
    # In this order: what the runner loads (PyTorch's kernels, if nothing in the parent used them) is no input's memory.
    runner = Runner(target, folder)
    before = resident_bytes()
    known: set[str] = set()
    typed, most, slowest = 0, 0, 0.0
    for done, number in enumerate(numbers):
        before = min(before, resident_bytes())
        state[:] = _STATE.pack(number, done, typed, most, slowest)
        case = cases(number)
        began_s = _cpu_s()
        kind = runner.run(case)
        spent_s = _cpu_s() - began_s
        slowest = max(slowest, spent_s)
        typed += kind == ""
        added = peak_bytes() - before
        most = max(most, added)
        if added > MEMORY_LIMIT:
            kind = "memory beyond the limit"
        if kind and kind not in known:
            known.add(kind)
            os.write(writing, (json.dumps([kind, number]) + "\n").encode())
        state[:] = _STATE.pack(number, done + 1, typed, most, slowest)
        if added > MEMORY_LIMIT:
            os._exit(3)
        if _cpu_s() > cpu_s:
            return


def _cpu_s() -> float:
    parts = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in parts)


def _watch(pid: int, reading: int, state: mmap.mmap, outcome: Outcome) -> bool:
    """Take in what the process finds until it ends; whether it was killed because one input did not end.

    A process that waits for something that never comes uses no CPU time: it has a long limit of wall time.
    """
    last, began_s, since_s, text = -1, 0.0, time.monotonic(), b""
    while True:
        if select.select([reading], [], [], 0.5)[0]:
            part = os.read(reading, 1 << 16)
            if not part:
                return False
            *lines, text = (text + part).split(b"\n")
            for line in lines:
                kind, number = json.loads(line)
                if kind == "broken":
                    raise RuntimeError(f"The fuzzer itself failed:\n{number}")
                outcome.failures.setdefault(kind, number)
        number, used_s = _STATE.unpack(state[:])[0], _cpu_of(pid)
        if number != last:
            last, began_s, since_s = number, used_s, time.monotonic()
        elif used_s - began_s > _STUCK_S or time.monotonic() - since_s > _WAITING_S:
            os.kill(pid, signal.SIGKILL)
            return True


def _cpu_of(pid: int) -> float:
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _memory_folder() -> str | None:
    """A folder in memory, where a million small files cost no disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


# ------------------------------------------------------------------------------------------------------ single inputs


def minimise(case: Case, kind: str, cpu_s: float = 5.0) -> Case:
    """A smaller input with the same error. An input that crashes or hangs stays as it is: it ends the process."""
    if " in " not in kind or kind.startswith("Hang"):
        return case
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        pid = os.fork()
        if pid == 0:
            try:
                limit_process()
                runner = Runner(TARGETS[case.target], Path(folder))
                smallest = _shrink(case, lambda smaller: _cpu_s() < cpu_s and runner.run(smaller) == kind)
                with os.fdopen(writing, "wb") as file:
                    file.write(smallest.content)
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            content = file.read()
        os.waitpid(pid, 0)
    return replace(case, content=content) if content else case


def _shrink(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Leave out chunks while it still fails: large ones first."""
    size = max(1, len(case.content) // 2)
    while size:
        at, smaller = 0, False
        while at < len(case.content):
            candidate = replace(case, content=case.content[:at] + case.content[at + size :])
            if fails(candidate):
                case, smaller = candidate, True
            else:
                at += size
        if not smaller:
            size //= 2
    return case


def probe(case: Case) -> str | None:
    """The kind of failure of one input, in a process of its own; None where it is read or refused as it should be."""
    outcome = run_many(TARGETS[case.target], lambda _: case, [0], until_cpu_s=60)
    return next(iter(outcome.failures), None)
