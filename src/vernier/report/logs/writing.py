"""Writes a run's log in the format of another tool. Any log that `reading` opens can be converted."""

import re
from collections.abc import Mapping
from pathlib import Path

from vernier.errors import ConfigError
from vernier.plugins import describe_failures
from vernier.references import given, use
from vernier.report.live import tags
from vernier.report.live.tensorboard import EventFile
from vernier.store import write_atomically

from .formats import GROUP, LogFormat, formats
from .model import RunLog


def convert_all(logs: Mapping[str, RunLog], form: str, out: Path) -> list[Path]:
    """Write each log as `form`; of several arms each gets its name between the name of `out` and its ending."""
    if len(logs) == 1:
        return convert(next(iter(logs.values())), form, out)
    names = {arm: re.sub(r"[^A-Za-z0-9.=_-]+", "-", arm) for arm in logs}
    paths = {arm: out.with_name(f"{out.stem}.{name}{out.suffix}") for arm, name in names.items()}
    for path in paths.values():
        check_target(path)
    return [written for arm, log in logs.items() for written in convert(log, form, paths[arm])]


def check_target(out: Path) -> None:
    """Raise ConfigError where something exists already: nothing is overwritten."""
    if out.exists() and (out.is_file() or any(out.iterdir())):
        raise ConfigError(f"{out} exists already. Choose another file.")


def convert(run: RunLog, form: str, out: Path) -> list[Path]:
    """Write `run` as `form` to a file or, for study and tensorboard, a directory. Returns the paths written."""
    if not run.steps:
        raise ConfigError(f"{run.path} records no steps: there is nothing to convert.")
    known = {"tensorboard": LogFormat(write_folder=_tensorboard), **formats()}.get(form, LogFormat())
    if known.each_step and not run.has_single_steps:
        raise ConfigError(
            f"{run.path} has no times of single steps, which {form} lists: its device tells only how long several "
            f"took. Convert to mllog or tensorboard, or train with {use('machine.step_times', 'each')}."
        )
    check_target(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if known.write_folder is not None:
            return known.write_folder(run, out)
        if known.write is None:
            raise ConfigError(f"No installed package writes {given('to', form)}.{describe_failures(GROUP)}")
        write_atomically(out, known.write(run))
    except OSError as error:
        raise ConfigError(f"Cannot write {out}: {error.strerror or error}.") from None
    return [out]


# --------------------------------------------------------------------------------------------------------- TensorBoard


def _tensorboard(run: RunLog, out: Path) -> list[Path]:
    """TensorBoard's event files, with the tags of live logging; the x axis is the optimiser step."""
    try:
        file = EventFile(out)
    except ImportError:
        raise ConfigError("TensorBoard's files need its package: pip install 'vernier[tensorboard]'.") from None
    start, elapsed = run.began().timestamp(), 0.0
    evals = {e.epoch: e for e in run.evals}
    last = {s.epoch: s for s in run.steps}
    number = 0
    for step in run.steps:
        elapsed += step.seconds
        number += step.steps
        values = tags.training(
            loss=step.loss,
            lr=step.lr,
            step_s=step.seconds / step.steps,
            wait_s=step.wait_s / step.steps,
            samples=step.samples / step.steps,
        )
        if step is last[step.epoch] and step.epoch in evals:
            values |= tags.evaluation(evals[step.epoch].values)
        file.scalars(number, values, start + elapsed)
    file.close()
    return sorted(out.glob("events.out.tfevents.*"))
