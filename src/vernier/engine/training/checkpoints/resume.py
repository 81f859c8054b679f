"""Which run and checkpoint to resume from; another recipe is refused. `session` loads the checkpoint.

The same command always goes on from the newest sound state of its run. Where it cannot, or should not without being
told so, it says why and which flag decides: it never starts again from step 0 beside checkpoints that could be used.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vernier.config import DEFAULT_EXACT_THREADS, Config, config_from_tree, differences, override
from vernier.config.migrations import NewerFile
from vernier.config.settings import LOADERS
from vernier.errors import ConfigError
from vernier.plugins import plugin_names
from vernier.references import command, given, use
from vernier.store import CheckpointDir, RunDir, find_runs, unreadable_folders

Warn = Callable[[str], None]
_UNFINISHED = ("stopped", "crashed", "failed", "running", "unknown")
"""`running`: by another process, which is refused; `unknown`: run.json was lost."""


@dataclass(frozen=True)
class ResumePoint:
    """A run and the checkpoint to resume it from; without one it begins again at step 0, in the same directory."""

    run: RunDir
    checkpoint: CheckpointDir | None
    extended: bool = False
    """A new run begins with that checkpoint; `run` stays as it is."""

    @property
    def step(self) -> int:
        return self.checkpoint.step if self.checkpoint is not None else 0

    def keep_convolution(self, config: Config) -> Config:
        """The configuration with the convolutions that the run began with, unless it names some."""
        if config.machine.convolution != "auto" or self.checkpoint is None:
            return config
        was = run_config(self.run).machine.convolution
        # Runs record what was chosen; those of versions without a choice had PyTorch's.
        return override(config, "machine.convolution", "torch" if was == "auto" else was)


def run_config(run: RunDir) -> Config:
    """The configuration a run was started with; from its newest sound checkpoint where config.json is damaged."""
    try:
        return config_from_tree(run.read_config())
    except NewerFile:
        raise
    except ConfigError:
        checkpoint = run.checkpoints.newest()
        if checkpoint is None:
            raise
        from .contents import read_state  # PyTorch, which refusals do without

        return config_from_tree(read_state(checkpoint).config)


def choose_resume_point(config: Config, out: Path, resume: str | None, warn: Warn) -> ResumePoint | None:
    """What `--resume` selects; None: start a new run. Raises ConfigError.

    A path names the run; `auto` is the newest run of this recipe under `out`; `never` is none; by default it is the
    newest such run that did not finish. A run that diverged is resumed only by `auto` or its path.
    """
    if resume == "never":
        return None
    if resume in (None, "auto"):
        run = _newest_same(out, config, warn, unfinished_only=resume is None)
        if run is None:
            return None
        if resume is None:
            _refuse_diverged(run)
        return _find_resume_point(run, config, warn) or _from_the_beginning(run)
    run = RunDir.open(run_of(Path(resume)))
    if config.recipe.schedule.extends == run.path.resolve().name:
        # The same command again continues the extension that it began.
        begun = _newest_same(out, config, warn, unfinished_only=False)
        point = _find_resume_point(begun, config, warn) if begun else None
        return point or ResumePoint(run, run.checkpoints.newest(), extended=True)
    point = _find_resume_point(run, config, warn)
    if point is None:
        raise ConfigError(
            f"{run.path} has no usable checkpoint to resume from. To start a new run, omit {given('resume', resume)}."
        )
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


def _newest_same(out: Path, config: Config, warn: Warn, *, unfinished_only: bool) -> RunDir | None:
    for folder, reason in unreadable_folders(out):
        warn(f"{folder} is not considered for resuming: {reason}")
    for run in reversed(find_runs(out)):
        try:
            if unfinished_only and (run.is_bench or run.status().status not in _UNFINISHED):
                continue
            if not _changed_settings(run_config(run), config):
                return run
        except (ConfigError, OSError) as error:
            warn(f"{run.path} is not considered for resuming: {error}")
    return None


def _refuse_diverged(run: RunDir) -> None:
    """The same settings would diverge again: a person decides."""
    status = run.status()
    if status.status == "failed" and status.diverged:
        raise ConfigError(
            f"{run.path} diverged with these settings: {status.reason} Change a setting to start another run, "
            f"or use {use('resume', run.path)} to try again from its last checkpoint, or {use('resume', 'never')} to "
            "start again."
        )


def _from_the_beginning(run: RunDir) -> ResumePoint | None:
    """Step 0 of a run that ended before its first checkpoint. Raises ConfigError where all checkpoints are damaged."""
    if damaged := run.checkpoints.committed():
        raise ConfigError(
            f"Every checkpoint of {run.path} is damaged ({len(damaged)}), so the run cannot be resumed. Restore one "
            f"from a copy, or start a new run with {use('resume', 'never')}."
        )
    return ResumePoint(run, None) if run.status().status != "finished" else None


def _find_resume_point(run: RunDir, config: Config, warn: Warn) -> ResumePoint | None:
    """The newest undamaged checkpoint of a run, after checking that the recipe is the same; None when it has none."""
    if changed := _changed_settings(run_config(run), config):
        raise ConfigError(
            f"{run.path} was started with another recipe: {'; '.join(changed[:5])}. "
            "Give the same settings, or start a new run. One from these weights: "
            f"{command('export', run.path)}, then {use('model.weights', slot='FILE')}."
        )
    _note_removed_compression(run, warn)
    with run.locked():  # what looks half-written may be another process writing
        run.tidy()
    checkpoint = run.checkpoints.newest(
        lambda bad, problems: warn(f"checkpoint {bad.path} is damaged ({'; '.join(problems)}) and is skipped")
    )
    return None if checkpoint is None else ResumePoint(run, checkpoint)


def _note_removed_compression(run: RunDir, warn: Warn) -> None:
    """Nothing changes silently: runs of earlier versions may have compressed their gradients."""
    with suppress(OSError, ConfigError):
        machine = run.config_as_written().get("machine", {})
        if machine.get("gradient_compression") in ("powersgd", "bf16") or machine.get("all_reduce") == "hierarchical":
            warn(
                f"{run.path} was trained with compressed gradients or with sums within hosts, which this version does "
                "not have: it continues with whole gradients"
            )


_MACHINE_SETTINGS_OF_BITS = (
    "precision",
    "channels_last",
    "loss_scaling",
    "loss_scale",
    "loss_scale_growth_steps",
)
"""Settings of a machine that change the weights in their last bits, beside its threads."""


def describe_changes(was: Config, now: Config) -> tuple[str, ...]:
    """Notes on what of a machine differs from when the checkpoint was written and changes the arithmetic.

    Raises ConfigError where exact reduction promises the same weights and would not give them.
    """
    notes = [_check_exactness(was, now)]
    old, new = was.machine.convolution, now.machine.convolution
    if old != new and old != "auto":
        notes.append(f"machine.convolution was {old}, now {new}: convolutions are rounded differently from here on")
    return tuple(filter(None, notes))


def _check_exactness(was: Config, now: Config) -> str:
    """Refuse to resume with other arithmetic what exact reduction is to make independent of processes.

    A note where the number of processes or the reduction is another one; empty where both are the same.
    """
    old, new = was.machine, now.machine
    if old.reduction != new.reduction:
        other = "up to here" if new.reduction == "exact" else "from here on"
        return f"machine.reduction was {old.reduction}, now {new.reduction}: {other} weights depend on the processes"
    if new.reduction != "exact":
        return ""
    pairs = {name: (getattr(old, name), getattr(new, name)) for name in _MACHINE_SETTINGS_OF_BITS}
    # The other decoders give the same pixels.
    pairs["backend"] = tuple(m.backend if m.backend in plugin_names(LOADERS) else "native" for m in (old, new))
    pairs["threads"] = (old.threads or DEFAULT_EXACT_THREADS, new.threads or DEFAULT_EXACT_THREADS)
    changed = [f"machine.{name} was {a}, now {b}" for name, (a, b) in pairs.items() if a != b]
    if changed:
        raise ConfigError(
            f"{'; '.join(changed)}: with {given('machine.reduction', 'exact')} the weights would not be those of the "
            "other runs. Give the same settings, or continue without that promise: "
            f"{use('machine.reduction', 'ddp')}."
        )
    if old.procs == new.procs:
        return ""
    return (
        f"machine.procs was {old.procs} for the checkpoint, now {new.procs}: {given('machine.reduction', 'exact')} "
        "gives the same weights"
    )
