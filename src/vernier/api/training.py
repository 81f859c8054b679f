"""Training from a recipe: what was asked for, checked and carried out, for `vernier train` and for `vernier.train`.

`build_request` turns flags into a request, `run_request` trains in this process; both do so for the command too. The
training itself is `engine.training`'s, several processes are `engine.processes`'.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Unpack, cast

from vernier import recipes as book
from vernier.config import (
    MACHINE_FILE,
    Changed,
    Config,
    check_batch_rule,
    check_config,
    config_warnings,
    describe_target,
    load_file,
    override,
)
from vernier.engine.processes.launch import run_local, time_counted_from_now
from vernier.errors import EXIT_DONE, EXIT_STOPPED, EXIT_USAGE, ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.measure.profile.summary import StepRange
from vernier.models import is_detector
from vernier.report.exports import check_exports, write_exports
from vernier.signals import StopRequested, caught
from vernier.store import RunDir, parse_json

from .options import (
    StrPath,
    TrainFlags,
    TrainOptions,
    assignments,
    check_names,
    command_words,
    given_flags,
    plain,
    signature_with,
    texts,
    to_path,
)
from .runs import Run
from .starting import (
    check_before_start,
    console_of,
    count_processes,
    in_notebook,
    joined,
    limit_spinning,
    machine_file,
    silence_profiler,
    unchanged_torch,
)
from .words import Interrupted, errors_in_python_words

if TYPE_CHECKING:
    from vernier.engine.processes.world import World
    from vernier.engine.training.checkpoints.resume import ResumePoint
    from vernier.engine.training.session import Outcome
    from vernier.report.live.console import ConsoleObserver

SETTINGS = {
    "data": "data.source",
    "device": "machine.device",
    "procs": "machine.procs",
    "precision": "machine.precision",
    "mode": "machine.mode",
    "allow_slow": "machine.allow_slow",
    "deterministic": "machine.deterministic",
    "model": "model.name",
    "global_batch": "global_batch",
    "epochs": "schedule.epochs",
    "lr": "optim.lr",
    "seed": "seed",
    "workers": "machine.workers",
    "max_bad_images": "data.max_bad_images",
    "max_steps": "limits.max_steps",
    "steps": "schedule.steps",
    "max_eval_steps": "limits.max_eval_steps",
    "max_time": "limits.max_time",
    "train_accuracy": "limits.train_accuracy",
    "print_every": "limits.log_every_steps",
    "on_divergence": "limits.on_divergence",
    "weights": "model.weights",
    "backbone_weights": "model.backbone_weights",
    "reset_head": "model.reset_head",
    "freeze": "model.freeze",
}
"""Flags that are settings."""
WARNING = "warning: "
"""How the line of a warning begins."""
_NO_CHECKPOINTS = {
    "checkpoint.every_epochs": 0,
    "checkpoint.every_steps": 0,
    "checkpoint.keep_best": False,
    "checkpoint.at_end": False,
}


# ------------------------------------------------------------------------------------------------------------ requests


@frozen
class TrainRequest:
    """A training that was asked for, with its settings checked. `resume` is what `--resume` selects."""

    changed: Changed
    warnings: tuple[str, ...]
    out: Path
    resume: str | None = None
    profile: StepRange | None = None
    track: tuple[str, ...] = ()
    tensorboard: bool = True

    @property
    def config(self) -> Config:
        return self.changed.config

    @property
    def detector(self) -> bool:
        return is_detector(self.config.recipe.model.name)

    @property
    def notes(self) -> tuple[str, ...]:
        """What followed from the flags, and what ends the training early."""
        return tuple(filter(None, (*self.changed.notes, describe_target(self.config.recipe))))

    def with_config(self, config: Config) -> "TrainRequest":
        return replace(self, changed=replace(self.changed, config=config))


def build_request(recipe: str | None, given: TrainFlags, settings: Sequence[str]) -> TrainRequest:
    """The request of a recipe, flags and `--set` assignments. Raises ConfigError for what does not fit together."""
    flags = {name: plain(value) for name, value in given.items()}
    flags["freeze"] = texts(flags.get("freeze"))
    smoke = bool(flags.get("smoke"))
    foreign, resume = _split_resume(flags.get("resume"), recipe or flags.get("config"))
    start = _starting_config(recipe, flags.get("model"), flags.get("config"), resume)
    values = {setting: _setting_value(flags.get(name)) for name, setting in SETTINGS.items()}
    if isinstance(bad_images := values["data.max_bad_images"], int):
        values["data.max_bad_images"] = str(bad_images)
    values[MACHINE_FILE] = machine_file(flags.get("machine"), "train")
    values |= {"eval.every_epochs": 0 if flags.get("train_only") else None, "model.checkpoint": foreign}
    values |= {} if flags.get("checkpoints", True) else _NO_CHECKPOINTS
    changed = book.change(start, values, settings, small=smoke)
    detector = is_detector(changed.config.recipe.model.name)
    check_config(changed.config, detector=detector)
    if not smoke:
        check_batch_rule(changed.config.recipe, start.recipe, changed.named)
    return TrainRequest(
        changed=changed,
        warnings=config_warnings(changed.config, detector=detector),
        out=to_path(flags.get("out", "runs"), "--out"),
        resume=resume,
        profile=_steps_to_profile(flags.get("profile_steps")),
        track=texts(flags.get("track")),
        tensorboard=bool(flags.get("tensorboard", True)),
    )


def _setting_value(value: object) -> object:
    """The value of a flag; None for one that was not given: a switch that is off, or a list without entries."""
    return None if value is False or value == () else value


def _steps_to_profile(text: str | None) -> StepRange | None:
    if text is None:
        return None
    steps = StepRange.parse(text, "--profile-steps")
    silence_profiler()
    return steps


def _split_resume(resume: str | None, named: str | None) -> tuple[str | None, str | None]:
    """The checkpoint file of another program that --resume names, or what it names otherwise; one of them is None."""
    if resume is None or not Path(resume).is_file():
        return None, resume
    if named is None:
        raise ConfigError(
            f"--resume {resume}: with which recipe? vernier train RECIPE --resume {resume} (see `vernier recipes`)."
        )
    return resume, None


def _starting_config(recipe: str | None, model: str | None, config: str | None, resume: str | None) -> Config:
    """The recipe or configuration that the flags change."""
    if recipe is not None and config is not None:
        raise ConfigError(f"Give a recipe ({recipe}) or --config ({config}), not both.")
    if recipe is None and config is None and resume not in (None, "auto", "never"):
        from vernier.engine.training.checkpoints.resume import run_config, run_of

        return run_config(RunDir.open(run_of(Path(resume))))
    if config is not None and not Path(config).is_file():
        raise ConfigError(f"--config {config}: there is no such file. Give a run's config.json, or a .toml file.")
    if recipe is None and config is None and model is not None and is_detector(model):
        return override(book.load(model), "data.source", "shapes")
    return load_file(Path(config)) if config is not None else book.load(recipe or book.DEFAULT)


def run_request(
    request: TrainRequest,
    terminal: "Callable[[World], AbstractContextManager[ConsoleObserver | None]]" = console_of,
    *,
    quiet: bool = False,
) -> "Outcome":
    """Train in this process and the others of the run; the console that `terminal` opens shows it."""
    from vernier.report.live.trackers import trackers

    config = request.config
    with (
        joined(config, quiet=quiet) as world,
        terminal(world) as console,
        trackers(request.track, request.tensorboard, console.warn if console else None) as tracked,
    ):
        from vernier.engine.training.checkpoints.resume import choose_resume_point
        from vernier.engine.training.session import train as run_training

        def choose() -> "ResumePoint | None":
            assert console is not None
            point = choose_resume_point(config, request.out, request.resume, console.warn)
            if point is not None and request.resume is None:
                console.say(f"Resuming {point.run.path}, which was interrupted (--resume never starts a new run).")
            return point

        return run_training(
            config,
            request.out,
            world.broadcast_from_first(choose),
            [*([console] if console else []), *tracked],
            reference=book.reference(config.recipe),
            world=world,
            profile=request.profile,
            notes=request.notes,
            warnings=request.warnings,
        )


# -------------------------------------------------------------------------------------------------------- from Python


@errors_in_python_words
def train(recipe: StrPath | None = None, **options: Unpack[TrainOptions]) -> Run:
    """Train a model with a recipe, as `vernier train` does, and return the run.

    `recipe` is a built-in recipe, a network or a .toml file; without one, the built-in data set is trained on, about a
    minute on two cores. The other arguments are the flags of `vernier train` in snake case, `settings`, a mapping such
    as `{"optim.lr": 0.1}` for everything else, and `quiet`, which prints warnings only.

    The same call resumes a training that was interrupted. Ctrl-C saves and raises Interrupted; SIGTERM, which
    schedulers send, saves and ends the program with exit code 75. A training that `max_time` ended is returned with
    the status `stopped`. Raises ConfigError for what cannot be trained, and RunFailed where the training fails.
    """
    check_names("train", options, TrainOptions.__annotations__)
    quiet, settings = options.pop("quiet", False), assignments(options.pop("settings", None))
    flags = cast(TrainFlags, given_flags(options))
    named = None if recipe is None else str(to_path(recipe, "train()"))
    limit_spinning()
    with time_counted_from_now():
        return _train(named, flags, settings, quiet=quiet)


train.__signature__ = signature_with(  # type: ignore[attr-defined]
    Parameter("recipe", Parameter.POSITIONAL_OR_KEYWORD, default=None), TrainOptions, Run
)


def _train(recipe: str | None, flags: TrainFlags, settings: tuple[str, ...], *, quiet: bool) -> Run:
    from vernier.report.live.trackers import require_installed

    request = build_request(recipe, flags, settings)
    require_installed(request.track)
    exports = {name: cast(str | None, flags.get(name)) for name in ("raport", "dllogger")}
    check_exports(exports)
    config, to_start = count_processes(request.config)
    check_before_start(config, request.out, request.resume, detector=request.detector)
    if to_start:
        return run_in_processes(to_start, command_words("train", recipe, flags, settings), quiet=quiet)
    run = train_here(request.with_config(config), quiet=quiet)
    if run.status == "finished":
        write_exports(run.path, exports)
    return run


def train_here(request: TrainRequest, *, quiet: bool) -> Run:
    """Train in this process, with its progress in the session. Raises Interrupted after Ctrl-C."""
    with _stop_before_first_step(), unchanged_torch():
        outcome = run_request(request, lambda world: _console(world, quiet=quiet), quiet=quiet)
    run = Run(outcome.run.path)
    if outcome.stopped_by is not None:
        _end_after_signal(outcome.stopped_by, run)
    return run


def _end_after_signal(name: str, run: Run | None) -> NoReturn:
    """Ctrl-C raises Interrupted; any other signal ends the program as it ends `vernier train`."""
    if name != signal.SIGINT.name:
        raise SystemExit(EXIT_STOPPED)
    if run is None:
        raise Interrupted("Training interrupted before its first step: there was nothing to save.", None)
    where = f"at step {run.summary.step or 0:,} and saved in {run.path}"
    raise Interrupted(f"Training interrupted {where}. The same call resumes it.", run.path)


@contextmanager
def _stop_before_first_step() -> Iterator[None]:
    """While entered, signals leave nothing behind before the first step; afterwards the training has them."""

    def stop(number: int, _: object) -> None:
        raise StopRequested(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in caught()}
    try:
        yield
    except StopRequested as request:
        _end_after_signal(str(request), None)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _console(world: "World", *, quiet: bool) -> "AbstractContextManager[ConsoleObserver | None]":
    from .progress import SessionConsole

    return SessionConsole(quiet=quiet) if world.first else console_of(world)


def _line_printer(*, quiet: bool) -> Callable[[str], None] | None:
    """What shows the lines of a process here; None where it writes to the terminal itself."""
    if not quiet and not in_notebook():
        return None
    from .progress import SessionConsole

    console = SessionConsole(quiet=quiet)
    return lambda line: console.warn(line.removeprefix(WARNING)) if line.startswith(WARNING) else console.say(line)


def run_in_processes(procs: int, words: list[str], *, quiet: bool) -> Run:
    """Carry out the command in local processes; the first one's progress is shown here."""
    ended = run_local(procs, [*words, "--json"], capture=True, on_line=_line_printer(quiet=quiet))
    if ended.code not in (EXIT_DONE, EXIT_STOPPED):
        reason = ended.reason or f"{procs} processes ended with exit code {ended.code}; the reason is printed above."
        raise ConfigError(reason) if ended.code == EXIT_USAGE else RunFailed(reason)
    run = Run(parse_json(ended.output)["run"]) if ended.output.strip() else None
    if run is None or ended.stopped_by is not None:
        _end_after_signal(ended.stopped_by or signal.SIGTERM.name, run)
    return run
