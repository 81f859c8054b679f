"""Processes of a command: starting several of them, joining them, and what each sets for itself before it works.

The processes themselves are the business of `vernier.engine.processes`.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vernier.config import Config, Model, derive, override
from vernier.engine.processes.launch import process_count, quiet_torch, run_local, topology
from vernier.errors import ConfigError, did_you_mean
from vernier.models import layer_groups
from vernier.store import RunDir

from .usage.aliases import BATCHES

if TYPE_CHECKING:
    from vernier.engine.processes.world import World
    from vernier.report.live.console import ConsoleObserver

LOADING_S = 0.5
"""PyTorch is said to be loading when it takes longer than this."""

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
    refuse_unclear_batch(procs)
    return override(config, "machine.procs", procs), procs if here.launcher == "single" and procs > 1 else 0


def check_before_start(config: Config, out: Path, resume: str | None, *, detector: bool) -> None:
    """Refuse what needs neither PyTorch nor the list of images to be seen, before processes start. Raises ConfigError.

    Batch and processes, limits and layers to freeze; then what this host has: device, weights files, data, and the
    folder to write to. One of several processes leaves the latter to the set-up, where a refusal ends all of them: the
    others would wait for a process that never joins.
    """
    from vernier.data.loading.bad_images import parse_limit
    from vernier.data.sources.opening import check_source
    from vernier.devices import refuse_early

    recipe, machine = config.recipe, config.machine
    derive(config, train_samples=sys.maxsize)
    parse_limit(recipe.data.max_bad_images, 1)
    _check_freeze(recipe.model)
    if topology().world > 1:
        return
    refuse_early(machine.device, machine.precision, machine.mode, allow_slow=machine.allow_slow)
    for flag, file in (("--weights", recipe.model.weights), ("--backbone-weights", recipe.model.backbone_weights)):
        if file and not _has_weights(Path(file).expanduser()) and _is_new_run(config, out, resume):
            problem = "is a folder" if Path(file).expanduser().is_dir() else "does not exist"
            raise ConfigError(
                f"{flag} {file} {problem}. Give a .safetensors, .pth, .pt or .th file, or a TensorFlow checkpoint "
                "(model.ckpt-N)."
            )
    check_source(recipe.data.source, detector=detector)
    RunDir.check_out(out)


def _has_weights(path: Path) -> bool:
    """Whether a path is a file, the common start of a TensorFlow checkpoint's files, or a folder with one."""
    return path.is_file() or path.with_name(f"{path.name}.index").is_file() or any(path.glob("*.index"))


def _check_freeze(model: Model) -> None:
    """Refuse layers that the network does not have."""
    layers = layer_groups(model.name)
    for prefix in model.freeze:
        group = prefix.partition(".")[0]
        if group != "backbone" and not any(layer.startswith(group) for layer in layers):
            near = did_you_mean(prefix, ["backbone", *layers])
            raise ConfigError(f"--freeze {prefix!r} matches no layer of {model.name}. {near}")


def _is_new_run(config: Config, out: Path, resume: str | None) -> bool:
    """Whether there is nothing to resume: a run that is resumed needs no starting weights."""
    from vernier.engine.training.resume import choose_resume_point

    return choose_resume_point(config, out, resume, lambda _: None) is None


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
    return run_local(procs, COMMAND_LINE)


def load_torch() -> None:
    """Import PyTorch. That takes seconds: on a terminal a line says so while it lasts."""
    if "torch" in sys.modules or not sys.stderr.isatty():
        return
    timer = threading.Timer(LOADING_S, lambda: sys.stderr.write("loading PyTorch ...") and sys.stderr.flush())
    timer.start()
    try:
        import torch  # noqa: F401
    finally:
        timer.cancel()
        timer.join()
        sys.stderr.write("\r\x1b[K")


def joined(config: Config) -> AbstractContextManager["World"]:
    """Connect this process with the others of the run."""
    load_torch()
    from vernier.devices import resolve
    from vernier.engine.processes.world import join_processes

    return join_processes(topology(), resolve(config.machine.device), config.machine)


def console_of(world: "World") -> AbstractContextManager["ConsoleObserver | None"]:
    """Open the terminal output in the first process; the others print nothing."""
    from vernier.report.live.console import ConsoleObserver

    return ConsoleObserver() if world.first else nullcontext()
