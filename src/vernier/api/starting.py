"""Starting a command or a call in this process: what is refused before PyTorch is imported, then joining the others.

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
    Model,
    Work,
    derive,
    describe_elsewhere,
    override,
    read_machine_file,
    refuse_other_work,
)
from vernier.cores import allowed_cores
from vernier.data.preparing.pretrained import fetch_pretrained, is_cached, is_pretrained, pretrained
from vernier.engine.processes.launch import process_count, quiet_torch, time_left_s, topology
from vernier.errors import ConfigError, did_you_mean
from vernier.models import info
from vernier.references import given, use
from vernier.requests.common import Settings
from vernier.store import RunDir

from .session import Session, in_notebook

if TYPE_CHECKING:
    from vernier.engine.processes.world import World

LOADING_S = 0.5
"""PyTorch is said to be loading when it takes longer than this."""


def limit_spinning() -> None:
    """OpenMP threads that spin long while waiting make training many times slower when other programs use the cores.

    Call it before torch is imported.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def machine_file(path: "str | os.PathLike[str] | None", work: Work) -> MachineFile | None:
    """The machine file for this work, with a note if it was tuned elsewhere. Raises ConfigError."""
    if path is None:
        return None
    from vernier.devices.cpu import cpu_name

    file = read_machine_file(Path(path).expanduser())
    refuse_other_work(file, work)
    notes = describe_elsewhere(file, f"cpu ({cpu_name()})", len(allowed_cores()))
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

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def silence_profiler() -> None:
    """Keep PyTorch's profiler from writing to standard error. Call it before torch is imported."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def count_processes(config: Config) -> tuple[Config, int]:
    """Fill in the number of processes; also give how many must be started here (0: none)."""
    here = topology()
    if here.world > 1:
        quiet_torch()
    procs = process_count(config.machine.procs, here)
    return override(config, "machine.procs", procs), procs if here.launcher == "single" and procs > 1 else 0


def refuse_unclear_batch(procs: int, session: Session) -> None:
    """With several processes `--batch` could be the batch of one or of all. Raises ConfigError."""
    if procs > 1 and "global_batch" in getattr(session.words, "typed", {}):
        raise ConfigError(
            f"With {procs} processes {given('global_batch')} could mean the batch of one or of all. Use "
            f"{use('global_batch', slot='N')} for all together, or "
            f"{use('machine.process_batch', slot='N')} for the largest batch of one."
        )


def fetch_weights(name: str, session: Session) -> Path:
    """Published weights by name, with a bar while they are fetched. Raises RunFailed, ConfigError."""
    if not is_cached(name):
        session.say(f"fetching {name} from {pretrained(name).url}")
    with session.bytes_bar(name) as progress:
        return fetch_pretrained(name, progress)


def check_weights(name: str, value: str) -> None:
    """Refuse a weights file that is not there, given by the option or setting `name`. Raises ConfigError.

    A file, the common start of a TensorFlow checkpoint's files, and a folder with one are fine; so are published
    weights, which `fetch_weights` looks up.
    """
    path = Path(value).expanduser()
    is_checkpoint = path.with_name(f"{path.name}.index").is_file() or any(path.glob("*.index"))
    if not is_pretrained(value) and not path.is_file() and not is_checkpoint:
        raise ConfigError(
            f"{given(name, value)} {'is a folder' if path.is_dir() else 'does not exist'}. Give a .safetensors, .pth, "
            ".pt or .th file, a TensorFlow checkpoint (model.ckpt-N), or published weights by name, such as "
            "torchvision:resnet50-v2."
        )


def check_before_start(config: Config, out: Path, resume: str | None, session: Session, *, detector: bool) -> None:
    """Refuse what needs neither PyTorch nor the list of images to be seen, before processes start. Raises ConfigError.

    Batch and processes, limits and layers to freeze; then what this host has: device, weights files, data, and the
    folder to write to. Published weights that a new run starts from are fetched, which may raise RunFailed.
    One of several processes leaves all that to the set-up, where a refusal ends all of them: the others would wait for
    a process that never joins.
    """
    from vernier.data.loading.bad_images import parse_limit
    from vernier.data.sources.opening import check_source
    from vernier.devices import refuse_early

    recipe, machine = config.recipe, config.machine
    derive(config, train_samples=sys.maxsize)
    parse_limit(recipe.data.max_bad_images, 1)
    time_left_s(config.limits.max_time)
    _check_freeze(recipe.model)
    if topology().world > 1:
        return
    refuse_early(machine.device, machine.precision, machine.mode, allow_slow=machine.allow_slow)
    for name in ("weights", "backbone_weights"):
        weights = getattr(recipe.model, name)
        if weights and _is_new_run(config, out, resume):
            check_weights(f"model.{name}", weights)
            if is_pretrained(weights):
                fetch_weights(weights, session)
    check_source(recipe.data.source, detector=detector)
    RunDir.check_out(out)
    _check_memory(config)


def _check_memory(config: Config) -> None:
    """Refuse training steps that surely need more memory than this host has left; its data is not known yet."""
    from vernier.devices import likely_kind
    from vernier.host_memory import available_bytes
    from vernier.measure.memory import FreeMemory, KnownData, check_memory

    if likely_kind(config.machine.device) == "cpu":
        free = FreeMemory(bytes=available_bytes(), processes=config.machine.procs)
        check_memory(config, derive(config, train_samples=sys.maxsize), free, 0, KnownData(on_cpu=True, val_images=0))


def _check_freeze(model: Model) -> None:
    """Refuse layers that the model does not have."""
    layers = info(model.name).groups
    for prefix in model.freeze:
        group = prefix.partition(".")[0]
        if group != "backbone" and not any(layer.startswith(group) for layer in layers):
            near = did_you_mean(prefix, ["backbone", *layers])
            raise ConfigError(f"{given('model.freeze', prefix)} matches no layer of {model.name}. {near}")


def _is_new_run(config: Config, out: Path, resume: str | None) -> bool:
    """Whether there is nothing to resume: a run that is resumed needs no starting weights."""
    from vernier.engine.training.checkpoints.resume import choose_resume_point

    return choose_resume_point(config, out, resume, lambda _: None) is None


def load_torch(*, quiet: bool = False) -> None:
    """Import PyTorch. That takes seconds: on a terminal a line says so while it lasts, unless `quiet`."""
    if "torch" in sys.modules or quiet or not sys.stderr.isatty() or in_notebook():
        return
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
