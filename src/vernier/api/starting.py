"""Starting a command or a call in this process: machine file, processes, weights, PyTorch, then joining the others.

Shared by the command line and the functions of `vernier.api`. The processes themselves are the business of
`vernier.engine.processes`.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vernier import recipes
from vernier.config import (
    MACHINE_FILE,
    Changed,
    Config,
    MachineFile,
    Work,
    override,
    read_machine_file,
)
from vernier.cores import allowed_cores
from vernier.data.downloads import fetch_pretrained, is_cached, pretrained
from vernier.engine.processes.launch import quiet_torch, topology
from vernier.requests.common import Settings

from .session import Session, in_notebook

if TYPE_CHECKING:
    from vernier.engine.processes.world import World

LOADING_S = 0.5
"""PyTorch is said to be loading when it takes longer than this."""


def limit_spinning() -> None:
    """OpenMP threads that spin long while waiting make training many times slower when other programs use the cores.

    Call it before torch is imported.
    """
    # Of GNU OpenMP. A default: whoever set it measured something.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def machine_file(path: "str | os.PathLike[str] | None", work: Work) -> MachineFile | None:
    """The machine file for this work, with a note if it was tuned elsewhere. Raises ConfigError."""
    if path is None:
        return None
    from vernier.devices.cpu import cpu_name

    file = read_machine_file(Path(path).expanduser())
    file.refuse_other_work(work)
    # The CPU only: the name of an accelerator is not known before PyTorch is imported.
    notes = file.notes_on(f"cpu ({cpu_name()})", len(allowed_cores()))
    return replace(file, notes=notes if file.tuned is not None and file.tuned.device.startswith("cpu") else ())


def change(
    start: Config,
    request: Settings,
    work: Work,
    more: Mapping[str, object] | None = None,
    *,
    small: bool = False,
) -> Changed:
    """The configuration `start` with everything that a request changes: its machine file, options and settings.

    `more` has settings that follow from other options. `small`: shrunk for a smoke run first. Raises ConfigError.
    """
    values = {MACHINE_FILE: machine_file(request.machine, work), **request.changes(), **(more or {})}
    return recipes.change(start, values, request.settings, small=small)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """While entered, SIGTERM acts like Ctrl-C: child processes are ended and finished results are saved.

    Only the main thread can catch signals; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    # As KeyboardInterrupt, which the callers handle already.
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def silence_profiler() -> None:
    """Keep PyTorch's profiler from writing to standard error. Call it before torch is imported."""
    # Kineto writes to standard error, where the progress bar is.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def count_processes(config: Config) -> tuple[Config, int]:
    """Fill in the number of processes; also give how many must be started here (0: none)."""
    here = topology()
    # Before PyTorch is imported: it reads the variables then.
    if here.world > 1:
        quiet_torch()
    procs = here.process_count(config.machine.procs)
    return override(config, "machine.procs", procs), procs if here.launcher == "single" and procs > 1 else 0


def fetch_weights(name: str, session: Session) -> Path:
    """Published weights by name, with a bar while they are fetched. Raises RunFailed, ConfigError."""
    if not is_cached(name):
        session.say(f"fetching {name} from {pretrained(name).url}")
    with session.bytes_bar(name) as progress:
        return fetch_pretrained(name, progress)


def load_torch(*, quiet: bool = False) -> None:
    """Import PyTorch, which can take seconds: a terminal shows a line meanwhile, unless `quiet`."""
    if "torch" in sys.modules or quiet or not sys.stderr.isatty() or in_notebook():
        return
    # A timer: if its files are in the page cache, PyTorch loads before a line is needed.
    timer = threading.Timer(LOADING_S, lambda: sys.stderr.write("loading PyTorch ...") and sys.stderr.flush())
    timer.start()
    try:
        import torch  # noqa: F401
    finally:
        timer.cancel()
        timer.join()
        sys.stderr.write("\r\x1b[K")


@contextmanager
def unchanged_torch() -> Iterator[None]:
    """While entered, PyTorch is set up as Vernier needs it; afterwards threads and random numbers are as before."""
    limit_spinning()
    load_torch()
    import torch

    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    # devices=(): forking the generators of accelerators would initialize them.
    with torch.random.fork_rng(devices=()):
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(deterministic)


def joined(config: Config, *, quiet: bool = False) -> AbstractContextManager["World"]:
    """Connect this process with the others of the run."""
    load_torch(quiet=quiet)
    from vernier.devices import resolve
    from vernier.engine.processes.world import join_processes

    return join_processes(topology(), resolve(config.machine.device), config.machine)
