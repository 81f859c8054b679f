"""Processes of a command: starting several of them, and what each sets for itself before it works.

What is checked before, and joining the others, is shared with the Python interface: `vernier.api.starting`. The
processes themselves are the business of `vernier.engine.processes`.
"""

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vernier.api import starting
from vernier.api.starting import count_processes, silence_profiler
from vernier.config import Config
from vernier.data.preparing.pretrained import fetch_pretrained, is_cached, pretrained
from vernier.engine.processes.launch import run_local
from vernier.errors import ConfigError

from .output import bytes_bar, is_quiet, say
from .usage.aliases import BATCHES

if TYPE_CHECKING:
    from vernier.engine.processes.world import World
    from vernier.report.live.console import ConsoleObserver

__all__ = [
    "COMMAND_LINE",
    "check_before_start",
    "console_of",
    "fetch_with_bar",
    "joined",
    "load_torch",
    "refuse_unclear_batch",
    "sigterm_as_interrupt",
    "silence_profiler",
    "start_processes",
    "with_procs",
]

COMMAND_LINE: list[str] = []
"""The arguments of this command, set once by `vernier.cli.main`: other processes are started with the same ones.

Not `sys.argv`, because `main` can also be called with a list of arguments."""


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
    config, to_start = count_processes(config)
    refuse_unclear_batch(config.machine.procs)
    return config, to_start


def check_before_start(config: Config, out: Path, resume: str | None, *, detector: bool) -> None:
    """Refuse what can be refused before processes start, and fetch published weights, with a bar."""
    starting.check_before_start(config, out, resume, detector=detector, fetch=fetch_with_bar)


def fetch_with_bar(name: str) -> Path:
    """Published weights by name, with a bar while they are fetched. Raises RunFailed, ConfigError."""
    if not is_cached(name):
        say(f"fetching {name} from {pretrained(name).url}")
    with bytes_bar(name) as progress:
        return fetch_pretrained(name, progress)


def refuse_unclear_batch(procs: int) -> None:
    """With several processes `--batch` could be the batch of one or of all. Raises ConfigError."""
    flag = next((word.partition("=")[0] for word in COMMAND_LINE if word.partition("=")[0] in BATCHES), "")
    if flag and procs > 1 and COMMAND_LINE[0] == "train":
        raise ConfigError(
            f"With {procs} processes {flag} could mean the batch of one or of all. Use --global-batch N for all "
            "together, or --set machine.process_batch=N for the largest batch of one."
        )


def start_processes(procs: int) -> int:
    """Run this same command in `procs` processes and return its exit code."""
    return run_local(procs, COMMAND_LINE).code


def load_torch() -> None:
    """Import PyTorch; on a terminal, and without --quiet, a line says so while it lasts."""
    starting.load_torch(quiet=is_quiet())


def joined(config: Config) -> "AbstractContextManager[World]":
    """Connect this process with the others of the run."""
    return starting.joined(config, quiet=is_quiet())


def console_of(world: "World") -> "AbstractContextManager[ConsoleObserver | None]":
    """Open the terminal output in the first process; the others print nothing."""
    return starting.console_of(world, quiet=is_quiet())
