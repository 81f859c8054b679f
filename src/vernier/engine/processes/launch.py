"""Launching: what torchrun, srun, mpirun or PMI say about this process, or N local processes on request.

The only file that reads launchers' variables. Local processes are started by PyTorch's own launcher and run the same
command again. The process group is `world`'s, CPU binding `affinity`'s.
"""

import json
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from vernier import signals
from vernier.clock import wall_s
from vernier.config import UNTIL_JOB_ENDS
from vernier.errors import EXIT_DONE, EXIT_FAILED, EXIT_STOPPED, ConfigError
from vernier.folders import PACKAGE_PARENT
from vernier.frozen import frozen
from vernier.quantities import parse_duration
from vernier.references import given, use
from vernier.wording import plural, printable

Launcher = Literal["single", "torchrun", "slurm", "openmpi", "pmi"]

STOP_WAIT_S = 120
"""Local processes that were asked to stop are killed after this time."""
FORWARD_EVERY_S = 0.1
FOLLOW_EVERY_S = 0.5
_COLOURS = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables by which programs are told that they write to a terminal."""


@frozen
class Topology:
    """This process among the processes of a run."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    host: str = "localhost"
    address: str = "127.0.0.1"
    """The rendezvous: a host that all processes reach, and a port on it."""
    port: int = 0
    launcher: Launcher = "single"
    launcher_serves_store: bool = False
    """torchrun serves the rendezvous store itself; otherwise the first process does."""
    restarts: int = 0

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes the run directory and has the terminal."""
        return self.rank == 0

    @property
    def rendezvous(self) -> str:
        """Address and port; an IPv6 address has brackets."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    def describe(self) -> str:
        """Which process, on which host."""
        return f"rank {self.rank} of {self.world} on {self.host}"

    def process_count(self, requested: int) -> int:
        """Processes of the run: as requested, or as many as the launcher started, which a request must not contradict.

        Raises ConfigError.
        """
        if self.launcher == "single":
            return requested
        if requested not in (1, self.world):
            raise ConfigError(
                f"{given('machine.procs', requested)}, but {self.launcher} started {plural(self.world, 'process')}. "
                f"Omit {given('machine.procs')}, or make them equal."
            )
        return self.world


def topology(environ: Mapping[str, str] = os.environ) -> Topology:
    """The process as the launcher's variables describe it. Raises ConfigError that names a missing or wrong one."""
    # In this order: torchrun within srun leaves the variables of Slurm in place, and it is torchrun that decides.
    readers = {
        ("RANK", "WORLD_SIZE"): _from_torchrun,
        # Of a step: in an sbatch script without srun there are SLURM_PROCID and SLURM_NTASKS, but only one process.
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"): _from_slurm,
        ("OMPI_COMM_WORLD_RANK",): _from_openmpi,
        ("PMI_RANK", "PMI_SIZE"): _from_pmi,
    }
    read = next((read for names, read in readers.items() if all(name in environ for name in names)), None)
    process = replace(read(environ) if read else Topology(), host=socket.gethostname())
    # Variables set by hand, or left by another launcher: the first collective would wait forever.
    if not (process.rank < process.world and process.local_rank < process.local_world <= process.world):
        raise ConfigError(
            f"{process.launcher} describes an impossible process: rank {process.rank} of {process.world}, "
            f"local rank {process.local_rank} of {process.local_world}."
        )
    return process


def quiet_torch() -> None:
    """Hide PyTorch's own stack traces; works only before torch is imported.

    Packages of devices are not loaded with torch but when their device is used: Gaudi's would set RANK and MASTER_ADDR
    under mpirun, as if torchrun had started this process.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name)
    if text is None and default is not None:
        return default
    if text is None or not re.fullmatch(r"\d+", text.strip()):
        raise ConfigError(
            f"The launcher's variable {name} is {'missing' if text is None else repr(text)}: "
            f"start Vernier with torchrun, srun or mpirun, or just with {use('machine.procs', slot='N')}."
        )
    return int(text)


def _from_torchrun(environ: Mapping[str, str]) -> Topology:
    # People set RANK by hand for other programs, and forget it in their shell.
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in environ:
            raise ConfigError(f"RANK and WORLD_SIZE are set but {name} is not. Use torchrun, or unset RANK.")
    rank, world = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    return Topology(
        rank=rank,
        world=world,
        launcher="torchrun",
        # Without torchrun, people set RANK and WORLD_SIZE by hand, for processes of one host.
        local_rank=_number(environ, "LOCAL_RANK", rank),
        local_world=_number(environ, "LOCAL_WORLD_SIZE", world),
        address=environ["MASTER_ADDR"],
        port=_number(environ, "MASTER_PORT"),
        launcher_serves_store=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        restarts=_number(environ, "TORCHELASTIC_RESTART_COUNT", 0),
    )


def _from_slurm(environ: Mapping[str, str]) -> Topology:
    hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    # With the step: several steps of a job may run at a time, each with a rendezvous of its own.
    job = f"{environ.get('SLURM_JOB_ID', '')}.{environ.get('SLURM_STEP_ID', '')}"
    world = _number(environ, "SLURM_STEP_NUM_TASKS")
    return Topology(
        rank=_number(environ, "SLURM_PROCID"),
        world=world,
        launcher="slurm",
        local_rank=_number(environ, "SLURM_LOCALID"),
        local_world=_tasks_here(environ, world),
        address=environ.get("MASTER_ADDR") or _first_host(hosts) or "127.0.0.1",
        port=_number(environ, "MASTER_PORT", _port_for(job)),
    )


def _tasks_here(environ: Mapping[str, str], world: int) -> int:
    """Tasks on this node from Slurm's list; `4(x2),3` is two nodes of four tasks, then one of three."""
    listed: list[int] = []
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", environ.get("SLURM_TASKS_PER_NODE", "")).split(","):
        if match := re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip()):
            listed += [int(match[1])] * int(match[2] or 1)
    node = _number(environ, "SLURM_NODEID", 0)
    return listed[node] if node < len(listed) else world


def _from_openmpi(environ: Mapping[str, str]) -> Topology:
    world, local = _number(environ, "OMPI_COMM_WORLD_SIZE"), _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE")
    job = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid", "")
    return Topology(
        rank=_number(environ, "OMPI_COMM_WORLD_RANK"),
        world=world,
        launcher="openmpi",
        local_rank=_number(environ, "OMPI_COMM_WORLD_LOCAL_RANK"),
        local_world=local,
        address=_rendezvous_host(environ, one_host=local == world, launcher="mpirun", how="-x MASTER_ADDR=FIRST_HOST"),
        port=_number(environ, "MASTER_PORT", _port_for(job)),
    )


def _from_pmi(environ: Mapping[str, str]) -> Topology:
    rank, world = _number(environ, "PMI_RANK"), _number(environ, "PMI_SIZE")
    # Hydra's variables (MPICH, Intel MPI), then those of HPE's PALS; without either, one host.
    local = {
        "MPI_LOCALRANKID": environ.get("MPI_LOCALRANKID") or environ.get("PALS_LOCAL_RANKID") or str(rank),
        "MPI_LOCALNRANKS": environ.get("MPI_LOCALNRANKS") or environ.get("PALS_LOCAL_SIZE") or str(world),
    }
    local_world = _number(local, "MPI_LOCALNRANKS")
    one_host = local_world == world
    return Topology(
        rank=rank,
        world=world,
        launcher="pmi",
        local_rank=_number(local, "MPI_LOCALRANKID"),
        local_world=local_world,
        address=_rendezvous_host(environ, one_host=one_host, launcher="mpiexec", how="-env MASTER_ADDR FIRST_HOST"),
        port=_number(environ, "MASTER_PORT", _port_for(_pmi_job(environ, one_host=one_host))),
    )


def _pmi_job(environ: Mapping[str, str], *, one_host: bool) -> str:
    """An identifier shared by the processes of a PMI job. Hydra has no job numbers: on one host its proxy's PID."""
    for name in ("PMI_JOBID", "PALS_APID"):
        if name in environ:
            return environ[name]
    return str(_job_starter()) if one_host else environ.get("MASTER_ADDR", "")


def _job_starter() -> int:
    """PID of the nearest ancestor outside the job; a shell in between has the job's variables too."""
    import psutil

    for parent in psutil.Process().parents():
        try:
            if "PMI_RANK" not in parent.environ():
                return parent.pid
        except psutil.Error:
            # Its environment cannot be read, as that of another user: it is outside the job.
            return parent.pid
    return os.getppid()


def _rendezvous_host(environ: Mapping[str, str], *, one_host: bool, launcher: str, how: str) -> str:
    if address := environ.get("MASTER_ADDR"):
        return address
    if not one_host:
        raise ConfigError(f"{launcher} started processes on several hosts: name the first one with `{launcher} {how}`.")
    # One host: no name has to be resolved.
    return "127.0.0.1"


def _port_for(job: str) -> int:
    """One port per job, derived from its identifier. MASTER_PORT overrides it."""
    # Not `hash`: Python seeds it differently in every process, and all of them must find the same port.
    return 20_000 + zlib.crc32(job.encode()) % 20_000


def _first_host(listed: str) -> str:
    """The first host of a Slurm host list: `gpu[007-9,12],login1` gives gpu007."""
    match = re.match(r"([^\[,]+)(?:\[(\d+)[^\]]*\])?", listed.strip())
    return f"{match[1]}{match[2] or ''}" if match else ""


def time_left_s(limit: str | None, environ: Mapping[str, str] = os.environ) -> float | None:
    """Seconds until a time limit is over, counted from the start of the command; None without a limit.

    `auto` is the end of the Slurm job. Raises ConfigError outside of one.
    """
    if limit is None:
        return None
    if limit == UNTIL_JOB_ENDS:
        if "SLURM_JOB_END_TIME" not in environ:
            raise ConfigError(
                f"{given('limits.max_time', limit)}: the variable SLURM_JOB_END_TIME is missing. Outside of a Slurm "
                f"job, give the time, such as {use('limits.max_time', '3h50m')}."
            )
        return _number(environ, "SLURM_JOB_END_TIME") - wall_s()
    import psutil

    # Of the launcher, if it started this process: the limit is that of the command.
    started_s = float(environ.get(_STARTED) or psutil.Process().create_time())
    return parse_duration(limit) - (wall_s() - started_s)


_STARTED = "VERNIER_STARTED_S"
"""When the launcher of local processes was started, in seconds since 1970: their time limit counts from then."""


# --------------------------------------------------------------------------------------------------- local processes


@contextmanager
def time_counted_from_now() -> Iterator[None]:
    """While entered, time limits count from the beginning of this block: a Python session may have run for days."""
    before = os.environ.get(_STARTED)
    os.environ[_STARTED] = str(wall_s())
    try:
        yield
    finally:
        os.environ.pop(_STARTED)
        if before is not None:
            os.environ[_STARTED] = before


@frozen
class LocalRun:
    """How local processes ended: the exit code of the one that failed first, and what it said.

    `output` is the standard output of the first process, where it was captured; `stopped_by` the signal that came.
    """

    code: int = EXIT_DONE
    reason: str = ""
    output: str = ""
    stopped_by: str | None = None


def run_local(
    procs: int, arguments: list[str], *, capture: bool = False, on_line: Callable[[str], None] | None = None
) -> LocalRun:
    """Run a command in `procs` local processes.

    The first process has the terminal, without its standard output with `capture`; with `on_line` it has none, and
    every line of its messages is passed on as it comes. The others write to the run directory once it exists; their
    output before that is shown when one of them fails.
    """
    import psutil
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    from vernier.torch_private import launch_config

    for name in [n for n in logging.root.manager.loggerDict if n.startswith("torch.distributed.elastic")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # `_explain` says it in plain words
    quiet_torch()
    # The processes inherit it, since each of them starts later than the command did.
    os.environ.setdefault(_STARTED, str(psutil.Process().create_time()))
    logs = tempfile.TemporaryDirectory(prefix="vernier-logs-")
    first = Std.ALL if on_line is not None else Std.OUT if capture else Std.NONE
    redirects = {rank: Std.ALL if rank else first for rank in range(procs)}
    settings = {
        "min_nodes": 1,
        "max_nodes": 1,
        "nproc_per_node": procs,
        "run_id": f"vernier-{os.getpid()}",
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "localhost:0",  # a free port, so that several runs can share a host
        # The same command resumes a run; a restart would hide why it failed.
        "max_restarts": 0,
        "monitor_interval": 0.1,  # the main thread sleeps so long, and runs no handler of a signal meanwhile
        "logs_specs": DefaultLogsSpecs(log_dir=logs.name, redirects=redirects),
    }
    # In this order: `launch_config` keeps PyTorch's launcher from replacing the handlers that it finds.
    with logs, _forwarded_signals() as received, launch_config(set(signals.SIGNALS), STOP_WAIT_S, **settings) as launch:
        ended = LocalRun()
        try:
            with _followed(Path(logs.name), on_line):
                elastic_launch(launch, sys.executable)(*_module_flags(), *arguments)
        except ChildFailedError as error:
            ended = _explain(error.failures, Path(logs.name))
        # A signal that came after the last step stopped nothing.
        stopped_by = signal.Signals(received[0]).name if received and ended.code == EXIT_STOPPED else None
        return replace(ended, output=_read_logs(Path(logs.name), 0, "stdout"), stopped_by=stopped_by)


@contextmanager
def _followed(logs: Path, on_line: Callable[[str], None] | None) -> Iterator[None]:
    """While entered, passes on the lines that the first process writes to its log of messages.

    They come without colours and moving lines, which the kernel of a notebook asks for in its environment.
    """
    if on_line is None:
        yield
        return
    done, shown = threading.Event(), 0
    before = {name: os.environ.get(name) for name in _COLOURS}
    os.environ.update(dict.fromkeys(_COLOURS, ""))

    def pass_on(*, to_the_end: bool) -> None:
        nonlocal shown
        text = _read_logs(logs, 0, "stderr")
        # The process may be in the middle of a line; the end of it comes with the next reading.
        complete = text if to_the_end else text[: text.rfind("\n") + 1]
        for line in complete[shown:].splitlines():
            on_line(line)
        shown = len(complete)

    def follow() -> None:
        while not done.wait(FOLLOW_EVERY_S):
            pass_on(to_the_end=False)

    follower = threading.Thread(target=follow, name="vernier-messages", daemon=True)
    follower.start()
    try:
        yield
    finally:
        done.set()
        follower.join()
        pass_on(to_the_end=True)
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})


def _module_flags() -> list[str]:
    """`-P` keeps the current folder off sys.path, so that a user's random.py cannot shadow the library."""
    inside = Path.cwd() == PACKAGE_PARENT  # without it Vernier would not be found in its own source folder
    return ["-m", "vernier"] if inside else ["-P", "-m", "vernier"]


@contextmanager
def _forwarded_signals() -> Iterator[list[int]]:
    """While entered, forwards signals that stop to the processes, which save and end; the launcher waits.

    Gives the signals that came.

    A signal would kill a process that has no handlers yet, so processes start with these signals blocked: they inherit
    that from this thread. The other thread takes the signals, and forwards them to processes that start later.
    """
    # From here on the processes decide when the run ends: the thread of `signals` must not end their launcher.
    to_the_end = signals.end_of_start()
    received: list[int] = []
    sent: set[tuple[int, int]] = set()
    done = threading.Event()

    def forward() -> None:
        while not done.wait(FORWARD_EVERY_S):
            _send_unsent(received, sent)

    # Started before the mask is set: a thread inherits the mask of its creator, and this one must leave signals
    # unblocked, or nobody takes them. Python runs the handlers in the main thread, whichever thread took the signal.
    taker = threading.Thread(target=forward, name="vernier-signals", daemon=True)
    taker.start()
    before = {n: signal.signal(n, lambda number, _: received.append(number)) for n in signals.caught()}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals.SIGNALS)
    try:
        yield received
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        done.set()
        taker.join()
        for number, handler in before.items() if not to_the_end else ():
            signal.signal(number, handler)


def _send_unsent(received: list[int], sent: set[tuple[int, int]]) -> None:
    """Send every signal to every local process that has not had it."""
    import psutil

    for index, number in enumerate(received):
        # PyTorch gives each process a session of its own, so Ctrl-C at a terminal reaches the launcher alone.
        for child in psutil.Process().children():
            # By position in `received`, not by number: a second Ctrl-C has to arrive as a second one.
            if (child.pid, index) not in sent:
                sent.add((child.pid, index))
                with suppress(psutil.Error):
                    child.send_signal(number)


def _explain(failures: dict[int, Any], logs: Path) -> LocalRun:
    """Print which process failed first and why, unless the first process printed it."""
    codes = {rank: failure.exitcode for rank, failure in failures.items()}
    # After a stop codes may differ: as soon as one process has ended with 75, the launcher sends SIGTERM to the others.
    if EXIT_STOPPED in codes.values():
        return LocalRun(code=EXIT_STOPPED)
    culprit = min(failures, key=lambda rank: (_blame_order(codes[rank]), failures[rank].timestamp, rank))
    failure = failures[culprit]
    message = failure.error_file_data.get("message")  # what `record_failure` wrote in that process
    if not isinstance(message, str) or message == "<NONE>":  # PyTorch's word for no error file
        message = None
    # Rank 0 has the terminal. It has printed its own error, and one of another rank that reached it as a verdict.
    if not ((culprit == 0 and codes[0] > 0) or (message and message in _messages_of_first(logs))):
        if failure.exitcode < 0:
            ending = f"ended by {failure.signal_name()}"
        elif message:
            ending = f"failed: {message}"
        else:
            ending = f"failed with exit code {failure.exitcode}. Its last output:\n{_output_tail(logs, culprit)}"
        text = printable(f"vernier: rank {culprit} of this run on {socket.gethostname()} {ending}", lines=True)
        sys.stderr.write(f"{text}\n")
    return LocalRun(code=int(failure.exitcode) if failure.exitcode > 0 else EXIT_FAILED, reason=message or "")


def _blame_order(code: int) -> int:
    """Killed processes first, then failed ones, then those that the launcher ended in turn."""
    # A killed process reports nothing, and the others fail because it is gone: their errors are consequences.
    return 2 if code == -signal.SIGTERM else 0 if code < 0 else 1


def _messages_of_first(logs: Path) -> str:
    """What the first process recorded and so has printed, even where the launcher did not wait for it."""
    return "\n".join(json.loads(p.read_text())["message"] for p in logs.glob("*/attempt_*/0/error.json"))


def _output_tail(logs: Path, rank: int) -> str:
    return "\n".join(_read_logs(logs, rank, "stderr").splitlines()[-15:])


def _read_logs(logs: Path, rank: int, stream: str) -> str:
    """What a process wrote to a stream that was redirected to a file."""
    # Libraries may write any bytes.
    return "".join(p.read_text(errors="replace") for p in sorted(logs.glob(f"*/attempt_*/{rank}/{stream}.log")))


def record_failure(message: str, environ: Mapping[str, str] = os.environ) -> None:
    """Write an error where PyTorch's launcher looks for it, so that it can name the failed process and the reason."""
    path = environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        with suppress(OSError):  # a full disk: the message is also printed
            Path(path).write_text(json.dumps({"message": message, "timestamp": int(wall_s())}), encoding="utf-8")
