"""Processes of a command: starting several of them, joining them, and what each sets for itself before it works.

The processes themselves are the business of `vernier.engine.processes`.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from vernier.config import Config, override

if TYPE_CHECKING:
    from vernier.engine.processes.world import World
    from vernier.report.live.console import ConsoleObserver

COMMAND_LINE: list[str] = []
"""The arguments of this command, set once by `vernier.cli.main`: other processes are started with the same ones.

Not `sys.argv`, because `main` can also be called with a list of arguments."""


def silence_profiler() -> None:
    """Keep PyTorch's profiler from writing to standard error. Call it before torch is imported."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """While entered, SIGTERM acts like Ctrl-C: child processes are ended and finished results are kept."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def with_procs(config: Config) -> tuple[Config, int]:
    """Fill in the number of processes; also give how many must be started here (0: none)."""
    from vernier.engine.processes.launch import process_count, quiet_torch, topology

    here = topology()
    if here.world > 1:
        quiet_torch()
    procs = process_count(config.machine.procs, here)
    return override(config, "machine.procs", procs), procs if here.launcher == "single" and procs > 1 else 0


def start_processes(procs: int) -> int:
    """Run this same command in `procs` processes and return its exit code."""
    from vernier.engine.processes.launch import run_local

    return run_local(procs, COMMAND_LINE)


@contextmanager
def joined(config: Config) -> Iterator["World"]:
    """Connect this process with the others of the run."""
    from vernier.devices import resolve
    from vernier.engine.processes import world as distributed
    from vernier.engine.processes.launch import topology

    with distributed.join_processes(topology(), resolve(config.machine.device), config.machine) as world:
        yield world


@contextmanager
def console_of(world: "World") -> Iterator["ConsoleObserver | None"]:
    """Open the terminal output in the first process; the others print nothing."""
    from vernier.report.live.console import ConsoleObserver

    with ConsoleObserver() if world.first else nullcontext() as console:
        yield console
