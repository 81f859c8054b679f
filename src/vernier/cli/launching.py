"""What commands that may run in several processes share: whether to start them, and who talks to people."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from vernier.cli.flags import COMMAND_LINE
from vernier.config import Config, override

if TYPE_CHECKING:
    from vernier.engine.processes.world import World
    from vernier.report.live.console import ConsoleObserver


def with_procs(config: Config) -> tuple[Config, int]:
    """The configuration with the processes there will be, and how many of them have to be started here (0: none)."""
    from vernier.engine.processes.launch import agreed_procs, quiet_torch, topology

    found = topology()
    if found.world > 1:
        quiet_torch()
    procs = agreed_procs(config.machine.procs, found)
    return override(config, "machine.procs", procs), procs if found.launcher == "single" and procs > 1 else 0


def start_processes(procs: int) -> int:
    """Run this very command in so many processes; its exit code."""
    from vernier.engine.processes.launch import run_local

    return run_local(procs, COMMAND_LINE)


@contextmanager
def joined(config: Config) -> Iterator["World"]:
    """This process and the others of the run."""
    from vernier.devices import resolve
    from vernier.engine.processes import world as distributed
    from vernier.engine.processes.launch import topology

    with distributed.joined(topology(), resolve(config.machine.device), config.machine) as world:
        yield world


@contextmanager
def console_of(world: "World") -> Iterator["ConsoleObserver | None"]:
    """The terminal, at the first process; the others are silent there."""
    from vernier.report.live.console import ConsoleObserver

    with ConsoleObserver() if world.first else nullcontext() as console:
        yield console
