"""Finding the run to go on with, and refusing to go on with a different one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vernier.config import Config, differences, from_dict
from vernier.errors import ConfigError
from vernier.store import CheckpointDir, RunDir, find_runs

Warn = Callable[[str], None]


@dataclass(frozen=True)
class ResumePoint:
    """A run and the checkpoint to continue from."""

    run: RunDir
    checkpoint: CheckpointDir


def run_config(run: RunDir) -> Config:
    """The configuration a run was started with."""
    return from_dict(Config, run.read_config())


def choose(config: Config, out: Path, wish: str | None, warn: Warn) -> ResumePoint | None:
    """What `--resume` asks for: a path; `auto`, the newest run of this recipe under `out`; `never`; or, by default,
    the newest such run that a signal or a crash cut short. None: start a new run."""
    if wish == "never":
        return None
    if wish in (None, "auto"):
        run = _newest_same(out, config, unfinished_only=wish is None)
        return None if run is None else resume_point(run, config, warn)
    run = RunDir.open(run_of(Path(wish)))
    point = resume_point(run, config, warn)
    if point is None:
        raise ConfigError(f"{run.path} has no usable checkpoint to resume from. Start a new run without --resume.")
    return point


def _changed(was: Config, now: Config) -> dict[str, tuple[Any, Any]]:
    """Settings of the recipe that differ, without what is only said about it."""
    changed = differences(was.recipe, now.recipe)
    return {name: values for name, values in changed.items() if name not in ("about", "source", "published")}


def run_of(path: Path) -> Path:
    """A run directory, also when one of its checkpoints was named."""
    return path.parent.parent if path.parent.name == "checkpoints" else path


def _newest_same(out: Path, config: Config, *, unfinished_only: bool) -> RunDir | None:
    for run in reversed(find_runs(out)):
        try:
            if unfinished_only and run.status().status not in ("stopped", "crashed"):
                continue
            if not _changed(run_config(run), config):
                return run
        except ConfigError:
            continue  # a run of another version, or a broken one: not ours to judge here
    return None


def resume_point(run: RunDir, config: Config, warn: Warn) -> ResumePoint | None:
    """The newest sound checkpoint of a run, after checking that the recipe is the same; None when it has none."""
    changed = _changed(run_config(run), config)
    if changed:
        what = "; ".join(f"{name} was {old!r}, now {new!r}" for name, (old, new) in list(changed.items())[:5])
        raise ConfigError(
            f"{run.path} was started with another recipe: {what}. Give the same settings, or start a new run."
        )
    with run.locked():  # what looks half-written may be another process writing
        run.tidy_checkpoints()
    found = run.newest_checkpoint(
        lambda bad, problems: warn(f"checkpoint {bad.path} is damaged ({'; '.join(problems)}): passed over")
    )
    return None if found is None else ResumePoint(run, found)
