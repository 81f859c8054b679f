"""Writes a run's log in the format of another tool. Any log that `reading` opens can be converted."""

import re
from collections.abc import Mapping
from pathlib import Path

from vernier.errors import ConfigError
from vernier.plugins import describe_failures
from vernier.references import given, use
from vernier.store import write_atomically

from .formats import GROUP, LogFormat, formats
from .model import RunLog


def convert_all(logs: Mapping[str, RunLog], form: str, out: Path) -> list[Path]:
    """Write each log as `form`; of several configurations each gets its name between the name of `out` and its
    ending."""
    if len(logs) == 1:
        return convert(next(iter(logs.values())), form, out)
    # Configurations are called `batch=4 scenario=server`: spaces and slashes do not belong into names of files.
    names = {configuration: re.sub(r"[^A-Za-z0-9.=_-]+", "-", configuration) for configuration in logs}
    paths = {configuration: out.with_name(f"{out.stem}.{name}{out.suffix}") for configuration, name in names.items()}
    for path in paths.values():
        _check_target(path)
    return [written for configuration, log in logs.items() for written in convert(log, form, paths[configuration])]


def _check_target(out: Path) -> None:
    """Raise ConfigError where something exists already: nothing is overwritten."""
    if out.exists() and (out.is_file() or any(out.iterdir())):
        raise ConfigError(f"{out} exists already. Choose another file.")


def convert(run: RunLog, form: str, out: Path) -> list[Path]:
    """Write `run` as `form` to a file or, for study and tensorboard, a directory. Returns the paths written."""
    if not run.steps:
        raise ConfigError(f"{run.path} records no steps: there is nothing to convert.")
    known = formats().get(form, LogFormat())
    # Dividing a window evenly would produce steps without noise, which no reader could tell from measured ones.
    if known.each_step and not run.has_single_steps:
        raise ConfigError(
            f"{run.path} has no times of single steps, which {form} lists: its device tells only how long several "
            f"took. Convert to mllog or tensorboard, or train with {use('machine.step_times', 'each')}."
        )
    _check_target(out)
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
