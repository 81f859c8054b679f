"""A Slurm of several nodes: the controller and a daemon on node1, a daemon on every other host."""

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.integration.slurm import CONFIGURATION, PROGRAMS, wait_until

from .machines import Hosts

CONTROLLER_PORT, NODE_PORT = 26817, 26818
LOST_AFTER_S = 20
"""The controller takes a node that is silent for so long to be down; 300 by default."""


def missing_programs() -> list[str]:
    return [program for program in (*PROGRAMS, "srun") if shutil.which(program) is None]


def _configuration(hosts: Hosts, folder: Path) -> str:
    """That of the one-node Slurm of the tests, with every host as a node."""
    values = {"host": "node1", "user": getpass.getuser(), "folder": folder}
    text = CONFIGURATION.format(**values, controller_port=CONTROLLER_PORT, node_port=NODE_PORT)
    lines = [line for line in text.splitlines() if not line.startswith(("NodeName", "GresTypes"))]
    lines += [f"SlurmdTimeout={LOST_AFTER_S}"]
    lines += [f"NodeName={host.name} NodeAddr={host.address} CPUs=2 State=UNKNOWN" for host in hosts]
    text = "\n".join(lines) + "\n"
    for old, new in (
        ("(127.0.0.1)", "(10.77.0.1)"),
        (f"{folder}/spool", f"{folder}/spool-%n"),
        ("slurmd.pid", "slurmd-%n.pid"),
    ):
        text = text.replace(old, new)
    return text


@contextmanager
def several_nodes(hosts: Hosts, folder: Path) -> Iterator[dict[str, str]]:
    """While entered, Slurm runs on the hosts; the variables that its commands need."""
    for name in ("munge", "state", *(f"spool-{host.name}" for host in hosts), "log"):
        (folder / name).mkdir(mode=0o711, parents=True)
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    configuration = folder / "slurm.conf"
    configuration.write_text(_configuration(hosts, folder))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    environ = {**os.environ, "SLURM_CONF": str(configuration)}
    files = [f"--{name}-file={folder}/munge/{name}" for name in ("key", "pid", "log", "seed")]
    munged = ["munged", "--foreground", "--force", f"--socket={folder}/munge/socket", "--num-threads=1", *files]
    commands = [munged]  # outside the hosts: they reach its socket on the shared disk
    commands.append(hosts[1].command("slurmctld", "-D", "-f", str(configuration)))
    commands += [host.command("slurmd", "-D", "-N", host.name, "-f", str(configuration)) for host in hosts]

    def idle() -> bool:
        asked = hosts[1].command("sinfo", "--noheader", "--format=%T %D")
        done = subprocess.run(asked, env=environ, capture_output=True, text=True, timeout=60)
        return done.stdout.strip() == f"idle {len(list(hosts))}"

    with ExitStack() as stack:
        for number, command in enumerate(commands):
            log = stack.enter_context((folder / "log" / str(number)).open("wb"))
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environ)
            stack.callback(process.wait)
            stack.callback(process.kill)
            if number == 0:
                wait_until((folder / "munge" / "socket").exists, "munge")
        wait_until(idle, "nodes that are idle")
        yield environ
