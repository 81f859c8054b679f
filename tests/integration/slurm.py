"""A Slurm of one node, with its own key, ports and folders, that is started by a test and ended with it."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

PATIENCE_S = 300
SETTLED_S = 4
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "squeue", "sinfo")
CONFIGURATION = """\
ClusterName=vernier
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
ReturnToService=2
MpiDefault=none
GresTypes=gpu
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
KillWait=60
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 Gres=gpu:8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Poll until the condition holds; fails after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s"
        time.sleep(0.1)


class Slurm:
    """The commands of a running Slurm."""

    def __init__(self, folder: Path, path: str) -> None:
        self._environ = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}

    def __call__(self, *command: str) -> str:
        done = subprocess.run(command, env=self._environ, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        """What Slurm says about a job."""
        return dict(part.split("=", 1) for part in self("scontrol", "show", "job", number).split() if "=" in part)

    def start_requeued(self, number: str, restarts: int) -> None:
        """Wait until a job was queued again, and start it after some seconds: by itself Slurm waits for two minutes.

        A job that starts in the second in which it ended is refused: its permission has just been withdrawn.
        """
        seen_s: list[float] = []

        def started() -> bool:
            job = self.job(number)
            assert job["JobState"] != "FAILED", job
            if job["JobState"] == "PENDING" and job["Restarts"] == str(restarts):
                seen_s.append(time.monotonic())
                if seen_s[-1] - seen_s[0] > SETTLED_S:
                    with suppress(AssertionError):  # refused while the processes of the last start are being ended
                        self("scontrol", "update", f"JobId={number}", "StartTime=now")
            return job["JobState"] == "RUNNING" and job["Restarts"] == str(restarts)

        wait_until(started, f"requeued {restarts} times")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def _daemon(log: Path, *command: str, environ: dict[str, str]) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environ)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def one_node_slurm(folder: Path, path: str) -> Iterator[Slurm]:
    """Start Slurm in a folder; `path` is the PATH of jobs. Skips the test where Slurm is not installed."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        pytest.skip(f"Slurm is not installed (apt install slurm-wlm munge): no {missing[0]}")
    host = socket.gethostname().split(".")[0]
    for name in ("munge", "state", "spool", "log"):
        (folder / name).mkdir(mode=0o711)
    (folder / "munge" / "key").write_bytes(os.urandom(1024))
    (folder / "munge" / "key").chmod(0o600)
    gpus = [folder / f"gpu{number}" for number in range(8)]
    for gpu in gpus:
        gpu.touch()
    values = {"host": host, "user": getpass.getuser(), "folder": folder}
    ports = {"controller_port": free_port(), "node_port": free_port()}
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**values, **ports))
    (folder / "gres.conf").write_text(f"NodeName={host} Name=gpu File={folder}/gpu[0-7]\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    munge = [f"--{name}-file={folder}/munge/{name}" for name in ("key", "pid", "log", "seed")]
    environ = {**os.environ, "PATH": path}
    with ExitStack() as daemons:

        def start(*command: str) -> None:
            daemons.enter_context(_daemon(folder / "log" / command[0], *command, environ=environ))

        start("munged", "--foreground", "--force", f"--socket={folder}/munge/socket", "--num-threads=1", *munge)
        wait_until((folder / "munge" / "socket").exists, "munge")
        start("slurmctld", "-D", "-f", f"{folder}/slurm.conf")
        start("slurmd", "-D", "-N", host, "-f", f"{folder}/slurm.conf")
        slurm = Slurm(folder, path)
        try:
            wait_until(lambda: _is_idle(slurm), "a node that is idle")
        except AssertionError as error:
            logs = "\n".join(log.read_text(errors="replace")[-1500:] for log in (folder / "log").iterdir())
            pytest.skip(f"Slurm does not run here: {error}\n{logs}")
        yield slurm


def _is_idle(slurm: Slurm) -> bool:
    try:
        return slurm("sinfo", "--noheader", "--format=%T") == "idle"
    except AssertionError:
        return False  # the controller does not answer yet
