"""Which run and checkpoint to resume from; another recipe is refused. `session` loads the checkpoint."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vernier.config import Config, config_from_tree, differences
from vernier.errors import ConfigError
from vernier.store import CheckpointDir, RunDir, find_runs

Warn = Callable[[str], None]


@dataclass(frozen=True)
class ResumePoint:
    """A run and the checkpoint to resume it from."""

    run: RunDir
    checkpoint: CheckpointDir


def run_config(run: RunDir) -> Config:
    """The configuration a run was started with."""
    return config_from_tree(run.read_config())


def choose_resume_point(config: Config, out: Path, resume: str | None, warn: Warn) -> ResumePoint | None:
    """What `--resume` selects; None: start a new run.

    A path names the run; `auto` is the newest run of this recipe under `out`; `never` is none; by default it is the
    newest such run that a signal or a crash interrupted.
    """
    if resume == "never":
        return None
    if resume in (None, "auto"):
        run = _newest_same(out, config, unfinished_only=resume is None)
        return None if run is None else find_resume_point(run, config, warn)
    run = RunDir.open(run_of(Path(resume)))
    point = find_resume_point(run, config, warn)
    if point is None:
        raise ConfigError(f"{run.path} has no usable checkpoint to resume from. Start a new run without --resume.")
    return point


def _changed_settings(was: Config, now: Config) -> list[str]:
    """The recipe's settings that differ, in words, without its descriptive ones."""
    changed = differences(was.recipe, now.recipe)
    return [
        f"{name} was {old!r}, now {new!r}"
        for name, (old, new) in changed.items()
        if name not in ("name", "about", "source", "published")
    ]


def run_of(path: Path) -> Path:
    """The run directory of a path that may also be one of its checkpoints."""
    return path.parent.parent if path.parent.name == "checkpoints" else path


def _newest_same(out: Path, config: Config, *, unfinished_only: bool) -> RunDir | None:
    for run in reversed(find_runs(out)):
        try:
            if unfinished_only and run.status().status not in ("stopped", "crashed"):
                continue
            if not _changed_settings(run_config(run), config):
                return run
        except ConfigError:
            continue  # a run of another version or a damaged one cannot be the same recipe
    return None


def find_resume_point(run: RunDir, config: Config, warn: Warn) -> ResumePoint | None:
    """The newest undamaged checkpoint of a run, after checking that the recipe is the same; None when it has none."""
    if changed := _changed_settings(run_config(run), config):
        raise ConfigError(
            f"{run.path} was started with another recipe: {'; '.join(changed[:5])}. "
            "Give the same settings, or start a new run."
        )
    with run.locked():  # what looks half-written may be another process writing
        run.checkpoints.tidy()
    checkpoint = run.checkpoints.newest(
        lambda bad, problems: warn(f"checkpoint {bad.path} is damaged ({'; '.join(problems)}) and is skipped")
    )
    return None if checkpoint is None else ResumePoint(run, checkpoint)
