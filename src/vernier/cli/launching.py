"""Processes of a command: starting several of them, joining them, and what each sets for itself before it works.

The processes themselves are the business of `vernier.engine.processes`.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from vernier.config import Config, override
from vernier.engine.processes.launch import process_count, quiet_torch, run_local, topology

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
    here = topology()
    if here.world > 1:
        quiet_torch()
    procs = process_count(config.machine.procs, here)
    return override(config, "machine.procs", procs), procs if here.launcher == "single" and procs > 1 else 0


def start_processes(procs: int) -> int:
    """Run this same command in `procs` processes and return its exit code."""
    return run_local(procs, COMMAND_LINE)


def joined(config: Config) -> AbstractContextManager["World"]:
    """Connect this process with the others of the run."""
    from vernier.devices import resolve
    from vernier.engine.processes.world import join_processes

    return join_processes(topology(), resolve(config.machine.device), config.machine)


def console_of(world: "World") -> AbstractContextManager["ConsoleObserver | None"]:
    """Open the terminal output in the first process; the others print nothing."""
    from vernier.report.live.console import ConsoleObserver

    return ConsoleObserver() if world.first else nullcontext()
