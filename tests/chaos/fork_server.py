"""Sessions of the `vernier` command that a test can kill: forked from a process that has imported it, or started anew.

Importing PyTorch takes two seconds of a session of half a second. The server imports it once, starts no thread, and
forks a child for each session; the child calls `vernier.__main__.main` as the installed command does. What must be the
real program from its first instruction is started by `start_command`.
"""

import atexit
import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import uuid
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol

import psutil

PRELOADED = (
    "torch",
    "torch._dynamo",
    "torch.distributed",
    "hotcoco",
    "simplejpeg",
    "PIL.Image",
    "vernier.compat.preparing.cli",
    "vernier.cli.training",
    "vernier.compat.preparing.packing",
    "vernier.compat.preparing.verify",
    "vernier.data.shapes",
    "vernier.engine.training.checkpoints.resume",
    "vernier.engine.training.session",
    "vernier.compat.trackers.sinks",
)
LEAVE_S = 60.0
"""How long the processes that a kill has orphaned may take to leave."""
_MARK = "VERNIER_TEST_SESSION"
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER


class StillRunning(AssertionError):
    """Processes of a killed session have not left."""


class Session(Protocol):
    """One run of a command: its process, or its launcher."""

    @property
    def pid(self) -> int: ...

    def running(self) -> bool:
        """Whether the process has not ended; one that waits to be reaped has."""

    def processes(self) -> list[int]:
        """All live processes of the session, the first one first."""

    def ranks(self) -> list[int]:
        """Those of them that work, without a launcher."""

    def ask_to_stop(self) -> None:
        """Send SIGTERM as a scheduler does."""

    def wait(self) -> int:
        """Wait for the end; its exit code, negative for a signal. Raises StillRunning for what it leaves behind."""


def send(number: signal.Signals, *pids: int) -> None:
    """Send a signal to those of the processes that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill(*pids: int) -> None:
    """SIGKILL, which no program can answer."""
    send(signal.SIGKILL, *pids)


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _wait_until_gone(session: Session) -> None:
    deadline_s = time.monotonic() + LEAVE_S
    while left := session.processes():
        if time.monotonic() > deadline_s:
            kill(*left)
            raise StillRunning(f"processes {left} are still there {LEAVE_S:.0f} s after the first one ended")
        time.sleep(0.02)


# ----------------------------------------------------------------------------------------------------- real commands


@dataclass
class Command:
    """A `vernier` command in a process of its own, with whatever processes it starts."""

    process: "subprocess.Popen[bytes]"
    mark: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def running(self) -> bool:
        return self.process.poll() is None

    def processes(self) -> list[int]:
        """Found by a variable in their environment: once a launcher is killed, its processes are not its children."""
        mark = f"{_MARK}={self.mark}".encode()
        return sorted(pid for pid in psutil.pids() if mark in _environment(pid) and not _has_ended(pid))

    def ranks(self) -> list[int]:
        """A launcher gives each of its processes a rank; without a launcher it is the process itself."""
        processes = self.processes()
        ranks = [pid for pid in processes if any(entry.startswith(b"RANK=") for entry in _environment(pid))]
        return ranks or [pid for pid in processes if pid == self.pid]

    def ask_to_stop(self) -> None:
        send(signal.SIGTERM, self.pid)

    def wait(self) -> int:
        code = self.process.wait()
        _wait_until_gone(self)
        return code


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def start_command(arguments: list[str], log: Path, environ: Mapping[str, str] = {}) -> Command:
    """Start `vernier ARGUMENTS` as the installed command does; its output is appended to `log`."""
    mark = uuid.uuid4().hex
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "vernier", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environ, _MARK: mark},
            start_new_session=True,
        )
    return Command(process, mark)


# ---------------------------------------------------------------------------------------------------- forked sessions


@dataclass
class Forked:
    """A child of the fork server, in a process group of its own."""

    server: "ForkServer"
    pid: int

    def running(self) -> bool:
        return not _has_ended(self.pid)

    def processes(self) -> list[int]:
        """Those of its process group, such as the pool that draws images, and what it orphaned in other groups."""
        members = {pid for pid in psutil.pids() if not _has_ended(pid) and _group_of(pid) == self.pid}
        return sorted(members | set(self.server.orphans()))

    def ranks(self) -> list[int]:
        return [self.pid] if self.running() else []

    def ask_to_stop(self) -> None:
        send(signal.SIGTERM, self.pid)

    def wait(self) -> int:
        code = self.server.reap(self.pid)
        _wait_until_gone(self)
        return code


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


@dataclass
class Ranks:
    """Two processes of one run, as srun or mpirun would start them, without the launcher."""

    sessions: list[Forked]

    @property
    def pid(self) -> int:
        return self.sessions[0].pid

    def running(self) -> bool:
        return any(session.running() for session in self.sessions)

    def processes(self) -> list[int]:
        return [pid for session in self.sessions for pid in session.processes()]

    def ranks(self) -> list[int]:
        return [pid for session in self.sessions for pid in session.ranks()]

    def ask_to_stop(self) -> None:
        send(signal.SIGTERM, *self.ranks())

    def wait(self) -> int:
        return max((session.wait() for session in self.sessions), key=abs)


@dataclass
class ForkServer:
    """The process that has imported everything. Children stay zombies until `reap`: their numbers are not reused."""

    variables: Mapping[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[str]" = field(init=False)
    _sessions: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "10000", **self.variables}
        command = [sys.executable, "-m", "tests.chaos.fork_server"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ, cwd=_repository()
        )

    def start(
        self, arguments: list[str], log: Path, environ: Mapping[str, str] = {}, host: int | None = None
    ) -> Forked:
        """Fork a session; its output is appended to `log`. `host`: in the namespaces of that process."""
        request = {"start": arguments, "log": str(log), "environ": dict(environ), "host": host}
        session = Forked(self, self._ask(request))
        self._sessions.add(session.pid)
        return session

    def orphans(self) -> list[int]:
        """Processes whose session has ended: the server adopts them."""
        with contextlib.suppress(psutil.NoSuchProcess):
            children = [child.pid for child in psutil.Process(self.process.pid).children()]
            return [pid for pid in children if pid not in self._sessions and not _has_ended(pid)]
        return []

    def start_ranks(self, arguments: list[str], log: Path, environ: Mapping[str, str] = {}) -> Ranks:
        """Fork both processes of a run."""
        world = {**environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        return Ranks([self.start(arguments, log, {**world, "RANK": rank}) for rank in "01"])

    def reap(self, pid: int) -> int:
        """Wait for a child's end; its exit code, negative for a signal."""
        return self._ask({"reap": pid})

    def _ask(self, request: dict[str, Any]) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        if not (answer := self.process.stdout.readline()):
            raise RuntimeError(f"the fork server ended with exit code {self.process.wait()}")
        return int(answer)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _repository() -> Path:
    return Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def fork_server(variables: Mapping[str, str] = {}) -> Iterator[ForkServer]:
    """A server whose process has these variables too, such as LD_PRELOAD."""
    server = ForkServer(variables)
    try:
        yield server
    finally:
        server.close()


def _serve() -> None:
    """Answer requests until the end of the input."""
    from importlib import import_module

    for name in (*PRELOADED, "tests.chaos.traced_commands"):
        import_module(name)
    gc.collect()
    gc.freeze()  # the children need not look at what they inherit
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    children: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            if not (pid := os.fork()):
                _run(request)
            children.add(answer := pid)
        else:
            children.discard(request["reap"])
            answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    kill(*children)


def _enter_host(pid: int) -> None:
    """Go on in the namespaces of a process; the one that came here waits, and ends as the other one does."""
    libc, here = ctypes.CDLL(None, use_errno=True), Path.cwd()
    spaces = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in ("net", "uts", "pid", "mnt")]
    for space in spaces:
        if libc.setns(space, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(space)
    os.chdir(here)
    if child := os.fork():  # a PID namespace is for children
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)


def finish() -> None:
    """What an interpreter does at its end, without giving back its memory, which takes half a second."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()


def _run(request: dict[str, Any]) -> NoReturn:
    """In the child: become the command."""
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if request["host"] is not None:
        _enter_host(request["host"])
    os.environ.update(request["environ"])
    import torch

    from tests.chaos.traced_commands import use_test_sets
    from vernier.lab import launcher

    torch.set_num_threads(1)
    use_test_sets()
    # What measures is forked too, in place of a new Python that imports PyTorch.
    launcher.subprocess.Popen = ForkedPopen  # type: ignore[misc]
    _become_command(request["start"])


def _become_command(arguments: list[str]) -> NoReturn:
    from vernier.__main__ import main

    sys.argv = ["vernier", *arguments]
    code = 1
    try:
        code = main()
    except BaseException:
        traceback.print_exc()
    finally:
        finish()
        os._exit(code)


class ForkedPopen(subprocess.Popen):  # type: ignore[type-arg]
    """Starts `python -m vernier ARGUMENTS` as a fork of this process; anything else as usual."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        words = [] if isinstance(args, str) else [str(word) for word in args]
        if words[1:4] != ["-P", "-m", "vernier"]:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        # As in subprocess.py of Python 3.11 to 3.14: the variables, and descriptors of the parent's and child's ends.
        environ, ends = rest[5], rest[9:15]
        streams = (ends[0], ends[3], ends[5])
        self.pid = os.fork()
        if self.pid:
            self._child_created = True
            self._close_pipe_fds(*ends)  # type: ignore[attr-defined]
            return
        os.setsid()
        for number, descriptor in enumerate(streams):
            if descriptor >= 0:
                os.dup2(descriptor, number)
        # What its parent would tidy at its end, a scratch folder among it, is not this one's.
        atexit._clear()
        weakref.finalize._registry.clear()  # type: ignore[attr-defined]
        if environ is not None:
            os.environ.clear()
            os.environ.update(environ)
        _become_command(words[4:])


if __name__ == "__main__":
    _serve()
