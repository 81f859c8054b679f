"""Where processes come from: what torchrun, srun, mpirun or PMI say about this process, or N local ones on request.

The only file that reads launchers' variables. Local processes are started by PyTorch's own launcher and run the same
command again; which group they then form is `engine.distributed`'s business, and their cores are `engine.affinity`'s.
"""

import json
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vernier.clock import wall_s
from vernier.errors import EXIT_DONE, EXIT_FAILED, EXIT_STOPPED, ConfigError
from vernier.folders import PACKAGE_PARENT

Launcher = Literal["single", "torchrun", "slurm", "openmpi", "pmi"]

STOP_WAIT_S = 120
"""How long local processes may take to save and end once they were asked to; then they are killed."""


@dataclass(frozen=True, kw_only=True)
class Topology:
    """This process among the processes of a run."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    host: str = "localhost"
    address: str = "127.0.0.1"
    """Where the processes meet: a host all of them reach, and a port on it."""
    port: int = 0
    launcher: Launcher = "single"
    launcher_keeps_store: bool = False
    """torchrun serves the meeting place itself, else the first process does."""
    restarts: int = 0

    @property
    def first(self) -> bool:
        """Whether this process writes the run directory and talks to people."""
        return self.rank == 0

    def where(self) -> str:
        """For people: which process, on which host."""
        return f"rank {self.rank} of {self.world} on {self.host}"


def topology(environ: Mapping[str, str] = os.environ) -> Topology:
    """What the environment says; a launcher that is half there is a ConfigError that says what is missing."""
    host = socket.gethostname()
    if "RANK" in environ and "WORLD_SIZE" in environ:
        return _from_torchrun(environ, host)
    if "SLURM_PROCID" in environ and "SLURM_STEP_NUM_TASKS" in environ:
        return _from_slurm(environ, host)
    if "OMPI_COMM_WORLD_RANK" in environ:
        return _from_openmpi(environ, host)
    if "PMI_RANK" in environ and "PMI_SIZE" in environ:
        return _from_pmi(environ, host)
    return Topology(host=host)


def quiet_torch() -> None:
    """No stack traces of PyTorch's own beside Vernier's messages. Only before torch is imported."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name)
    if text is None and default is not None:
        return default
    if text is None or not re.fullmatch(r"\d+", text.strip()):
        raise ConfigError(
            f"The launcher's variable {name} is {'missing' if text is None else repr(text)}: "
            "start Vernier through torchrun, srun, mpirun, or with --procs N alone."
        )
    return int(text)


def _from_torchrun(environ: Mapping[str, str], host: str) -> Topology:
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in environ:
            raise ConfigError(f"RANK and WORLD_SIZE are set but {name} is not. Use torchrun, or unset RANK.")
    rank, world = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    return _checked(
        Topology(
            rank=rank, world=world, host=host, launcher="torchrun",
            local_rank=_number(environ, "LOCAL_RANK", rank), local_world=_number(environ, "LOCAL_WORLD_SIZE", world),
            address=environ["MASTER_ADDR"], port=_number(environ, "MASTER_PORT"),
            launcher_keeps_store=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            restarts=_number(environ, "TORCHELASTIC_RESTART_COUNT", 0),
        )
    )  # fmt: skip


def _from_slurm(environ: Mapping[str, str], host: str) -> Topology:
    hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    job = f"{environ.get('SLURM_JOB_ID', '')}.{environ.get('SLURM_STEP_ID', '')}"
    world = _number(environ, "SLURM_STEP_NUM_TASKS")
    return _checked(
        Topology(
            rank=_number(environ, "SLURM_PROCID"), world=world, host=host, launcher="slurm",
            local_rank=_number(environ, "SLURM_LOCALID"), local_world=_tasks_here(environ, world),
            address=environ.get("MASTER_ADDR") or first_host(hosts) or "127.0.0.1",
            port=_number(environ, "MASTER_PORT", _port_for(job)),
        )
    )  # fmt: skip


def _tasks_here(environ: Mapping[str, str], world: int) -> int:
    """Tasks of this node from Slurm's list, such as `4(x2),3`: two nodes of four, then one of three."""
    listed: list[int] = []
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", environ.get("SLURM_TASKS_PER_NODE", "")).split(","):
        if match := re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip()):
            listed += [int(match[1])] * int(match[2] or 1)
    node = _number(environ, "SLURM_NODEID", 0)
    return listed[node] if node < len(listed) else world


def _from_openmpi(environ: Mapping[str, str], host: str) -> Topology:
    world, local = _number(environ, "OMPI_COMM_WORLD_SIZE"), _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE")
    job = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid", "")
    return _checked(
        Topology(
            rank=_number(environ, "OMPI_COMM_WORLD_RANK"), world=world, host=host, launcher="openmpi",
            local_rank=_number(environ, "OMPI_COMM_WORLD_LOCAL_RANK"), local_world=local,
            address=_meeting_host(environ, alone=local == world, launcher="mpirun", how="-x MASTER_ADDR=FIRST_HOST"),
            port=_number(environ, "MASTER_PORT", _port_for(job)),
        )
    )  # fmt: skip


def _from_pmi(environ: Mapping[str, str], host: str) -> Topology:
    rank, world = _number(environ, "PMI_RANK"), _number(environ, "PMI_SIZE")
    local_rank = environ.get("MPI_LOCALRANKID") or environ.get("PALS_LOCAL_RANKID") or str(rank)
    local_world = environ.get("MPI_LOCALNRANKS") or environ.get("PALS_LOCAL_SIZE") or str(world)
    given = {"MPI_LOCALRANKID": local_rank, "MPI_LOCALNRANKS": local_world}
    alone = _number(given, "MPI_LOCALNRANKS") == world
    return _checked(
        Topology(
            rank=rank, world=world, host=host, launcher="pmi",
            local_rank=_number(given, "MPI_LOCALRANKID"), local_world=_number(given, "MPI_LOCALNRANKS"),
            address=_meeting_host(environ, alone=alone, launcher="mpiexec", how="-env MASTER_ADDR FIRST_HOST"),
            port=_number(environ, "MASTER_PORT", _port_for(_pmi_job(environ, alone=alone))),
        )
    )  # fmt: skip


def _pmi_job(environ: Mapping[str, str], *, alone: bool) -> str:
    """What all processes of a PMI job know and others do not. Hydra gives no job a number: on one host that of its proxy will do."""
    for name in ("PMI_JOBID", "PALS_APID"):
        if name in environ:
            return environ[name]
    return str(_job_starter()) if alone else environ.get("MASTER_ADDR", "")


def _job_starter() -> int:
    """The nearest process above this one that is not of the job itself, as a shell between the two is."""
    import psutil

    for parent in psutil.Process().parents():
        try:
            if "PMI_RANK" not in parent.environ():
                return parent.pid
        except psutil.Error:
            return parent.pid
    return os.getppid()


def _meeting_host(environ: Mapping[str, str], *, alone: bool, launcher: str, how: str) -> str:
    if address := environ.get("MASTER_ADDR"):
        return address
    if not alone:
        raise ConfigError(
            f"{launcher} started processes on several hosts: say where they meet with `{launcher} {how}`."
        )
    return "127.0.0.1"


def _port_for(job: str) -> int:
    """The same for every process of a job, most likely another one for another job. MASTER_PORT overrides it."""
    return 20_000 + zlib.crc32(job.encode()) % 20_000


def first_host(listed: str) -> str:
    """The first of Slurm's hosts: `gpu[007-9,12],login1` gives gpu007."""
    match = re.match(r"([^\[,]+)(?:\[(\d+)[^\]]*\])?", listed.strip())
    return f"{match[1]}{match[2] or ''}" if match else ""


def _checked(found: Topology) -> Topology:
    if not (found.rank < found.world and found.local_rank < found.local_world <= found.world):
        raise ConfigError(
            f"{found.launcher} describes an impossible process: rank {found.rank} of {found.world}, "
            f"local rank {found.local_rank} of {found.local_world}."
        )
    return found


def agreed_procs(asked: int, found: Topology) -> int:
    """Processes of the run: as asked when alone, else those the launcher started, which --procs must not contradict."""
    if found.launcher == "single" or asked in (1, found.world):
        return asked if found.launcher == "single" else found.world
    raise ConfigError(
        f"--procs {asked}, but {found.launcher} started {found.world} process(es). Leave --procs out, or make them equal."
    )


# --------------------------------------------------------------------------------------------------- local processes


def run_local(procs: int, arguments: list[str]) -> int:
    """Run this command again in `procs` processes of this machine; the exit code is the first one's, or the culprit's.

    The first process has the terminal. The others write to the run directory once there is one; what they said before is shown
    when one of them fails.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in [n for n in logging.root.manager.loggerDict if n.startswith("torch.distributed.elastic")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # `_explain` says it for people
    quiet_torch()
    logs = tempfile.TemporaryDirectory(prefix="vernier-logs-")
    redirects = {rank: Std.ALL if rank else Std.NONE for rank in range(procs)}
    launch = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=procs, run_id=f"vernier-{os.getpid()}", rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", max_restarts=0, monitor_interval=0.1, signals_to_handle="SIGHUP,SIGQUIT",
        shutdown_timeout=STOP_WAIT_S, logs_specs=DefaultLogsSpecs(log_dir=logs.name, redirects=redirects),
    )  # fmt: skip
    with logs, _Forwarder():
        try:
            elastic_launch(launch, sys.executable)(*_module_flags(), *arguments)
        except ChildFailedError as error:
            return _explain(error.failures, Path(logs.name))
    return EXIT_DONE


def _module_flags() -> list[str]:
    """How Python finds Vernier and never, in its place or the library's, a `random.py` of the folder it is started in."""
    inside = Path.cwd() == PACKAGE_PARENT  # started from its own source folder
    return ["-m", "vernier"] if inside else ["-P", "-m", "vernier"]


class _Forwarder:
    """While entered, passes SIGTERM, SIGINT and SIGUSR1 on to the processes, which save and end; the launcher waits."""

    _signals = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, self._forward) for number in self._signals}

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _forward(self, number: int, frame: Any) -> None:
        import psutil

        for child in psutil.Process().children():
            child.send_signal(number)


def _explain(failures: dict[int, Any], logs: Path) -> int:
    """Say which process failed first and why, unless the first process has said it; the exit code that follows."""
    codes = {rank: failure.exitcode for rank, failure in failures.items()}
    if EXIT_STOPPED in codes.values():
        return EXIT_STOPPED
    culprit = min(failures, key=lambda rank: (_suspicion(codes[rank]), failures[rank].timestamp, rank))
    failure = failures[culprit]
    recorded = _recorded(failure)
    if (culprit == 0 and codes[0] > 0) or (recorded and recorded in _on_terminal(logs)):
        return int(failure.exitcode)
    said = f"ended by {failure.signal_name()}" if failure.exitcode < 0 else _last_words(failure, logs, culprit)
    sys.stderr.write(f"vernier: rank {culprit} of this run on {socket.gethostname()} {said}\n")
    return int(failure.exitcode) if failure.exitcode > 0 else EXIT_FAILED


def _suspicion(code: int) -> int:
    """Who is to blame, most likely first: one that was killed, one that failed, one that the launcher then ended."""
    return 2 if code == -signal.SIGTERM else 0 if code < 0 else 1


def _recorded(failure: Any) -> str | None:
    """What `record_failure` left."""
    message = failure.error_file_data.get("message")
    return message if isinstance(message, str) and message != "<NONE>" else None


def _on_terminal(logs: Path) -> str:
    """What the first process recorded, and so has said, also where the launcher had given it up by then."""
    return "\n".join(json.loads(p.read_text())["message"] for p in logs.glob("*/attempt_*/0/error.json"))


def _last_words(failure: Any, logs: Path, rank: int) -> str:
    """The error a process recorded, or the end of what it wrote."""
    if recorded := _recorded(failure):
        return f"failed: {recorded}"
    written = [p.read_text(errors="replace") for p in sorted(logs.glob(f"*/attempt_*/{rank}/stderr.log"))]
    tail = "\n".join("".join(written).splitlines()[-15:])
    return f"failed with exit code {failure.exitcode}. Its last words:\n{tail}"


def write_to(log: Path) -> None:
    """Append what this process says from now on to a file: only the first process has the terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("a", encoding="utf-8") as f:
        os.dup2(f.fileno(), 1)
        os.dup2(f.fileno(), 2)


def record_failure(message: str, environ: Mapping[str, str] = os.environ) -> None:
    """Leave an error where PyTorch's launcher looks for it, so that it can say which process failed and why."""
    path = environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        Path(path).write_text(json.dumps({"message": message, "timestamp": int(wall_s())}), encoding="utf-8")
