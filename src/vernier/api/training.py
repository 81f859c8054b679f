"""Training from a recipe: what was asked for, checked and carried out, for `vernier train` and for `vernier.train`.

`train_request` serves both; what only a session of Python needs is around it in `train`. The training itself is
`engine.training`'s, several processes are `engine.processes`'.
"""

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from vernier import recipes as book
from vernier.config import (
    Changed,
    Config,
    check_batch_rule,
    check_config,
    config_warnings,
    describe_target,
    load_file,
    override,
)
from vernier.engine.processes.launch import LocalRun, time_counted_from_now, topology
from vernier.errors import EXIT_DONE, EXIT_STOPPED, EXIT_USAGE, ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.measure.profiles import StepRange
from vernier.models import is_detector
from vernier.records.run import RunSummary
from vernier.references import command, given, use
from vernier.report.exports import check_exports, write_exports
from vernier.requests.training import Train, Trains
from vernier.signals import StopRequested, caught
from vernier.store import RunDir, parse_json

from .crossing import run_in_processes
from .functions import function
from .runs import Run
from .session import Session
from .starting import (
    change,
    check_before_start,
    count_processes,
    joined,
    limit_spinning,
    refuse_unclear_batch,
    silence_profiler,
    unchanged_torch,
)
from .wording import Interrupted

if TYPE_CHECKING:
    from vernier.engine.training.checkpoints.resume import ResumePoint
    from vernier.engine.training.session import Outcome
    from vernier.measure.explain import Explanation

_NO_CHECKPOINTS = {
    "checkpoint.every_epochs": 0,
    "checkpoint.every_steps": 0,
    "checkpoint.keep_best": False,
    "checkpoint.at_end": False,
}


# ------------------------------------------------------------------------------------------------------- what to train


@frozen
class Training:
    """A training run that can start, with its settings checked. `resume` selects what it continues."""

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
        """What followed from the options, and what ends the run early."""
        return tuple(filter(None, (*self.changed.notes, describe_target(self.config.recipe))))

    def in_processes(self, request: Trains, session: Session) -> "tuple[Training, int]":
        """The same with its number of processes filled in; also how many must be started here (0: none)."""
        config, to_start = count_processes(self.config)
        refuse_unclear_batch(config.machine.procs, session)
        return replace(self, changed=replace(self.changed, config=config)), to_start

    def check(self, session: Session) -> None:
        """Refuse what can be refused before the start, and fetch the weights that are needed."""
        check_before_start(self.config, self.out, self.resume, session, detector=self.detector)


def training_of(request: Train) -> Training:
    """The training run of a request. Raises ConfigError for options that do not fit together."""
    foreign, resume = _split_resume(request)
    start = _starting_config(request, resume)
    more = {"eval.every_epochs": 0 if request.train_only else None, "model.checkpoint": foreign}
    more |= {} if request.checkpoints else _NO_CHECKPOINTS
    changed = change(start, request, "train", more, small=request.smoke)
    detector = is_detector(changed.config.recipe.model.name)
    check_config(changed.config, detector=detector)
    if not request.smoke:
        check_batch_rule(changed.config.recipe, start.recipe, changed.named)
    profile = None
    if request.profile_steps is not None:
        profile = StepRange.parse(request.profile_steps, "profile_steps")
        silence_profiler()
    return Training(
        changed=changed,
        warnings=config_warnings(changed.config, detector=detector),
        out=Path(request.out),
        resume=resume,
        profile=profile,
        track=request.track,
        tensorboard=request.tensorboard,
    )


def _split_resume(request: Train) -> tuple[str | None, str | None]:
    """The external checkpoint file to resume from, or what is resumed otherwise; one of them is None."""
    resume = request.resume
    if resume is None or not Path(resume).is_file():
        return None, resume
    if request.recipe is None and request.config is None:
        raise ConfigError(
            f"{given('resume', resume)}: with which recipe? {command('train', 'RECIPE', resume=resume)} "
            f"({command('recipes')} lists them)."
        )
    return resume, None


def _starting_config(request: Train, resume: str | None) -> Config:
    """The recipe or configuration that the options change."""
    recipe, model, config = request.recipe, request.model, request.config
    if recipe is not None and config is not None:
        raise ConfigError(f"Give a recipe ({recipe}) or {given('config', config)}, not both.")
    if recipe is None and config is None and resume not in (None, "auto", "never"):
        from vernier.engine.training.checkpoints.resume import run_config, run_of

        return run_config(RunDir.open(run_of(Path(resume))))
    if config is not None and not Path(config).is_file():
        raise ConfigError(
            f"{given('config', config)}: there is no such file. Give a run's config.json or a .toml file."
        )
    if recipe is None and config is None and model is not None and is_detector(model):
        return override(book.load(model), "data.source", "shapes")
    return load_file(Path(config)) if config is not None else book.load(recipe or book.DEFAULT)


def explain_request(request: Train, session: Session) -> "Explanation":
    """Everything that follows from the settings: steps, learning rates, memory, expected time, and all warnings."""
    from vernier.measure.explain import explain as explained

    training = training_of(request)
    size = book.data_size(training.config.recipe)
    return explained(
        training.config,
        images=size.images,
        images_from=session.word(size.origin),
        classes=size.classes,
        runs=training.out,
        notes=tuple(map(session.word, training.notes)),
        warnings=tuple(map(session.word, training.warnings)),
    )


explain = function(Train, explain_request, "explain")


# ---------------------------------------------------------------------------------------------------------- training it


@frozen
class Ended:
    """How a training run ended, here or in the processes that were started for it.

    `summary` is that of a run in this process. `stopped_by` names a signal; it is None for a time limit.
    """

    code: int
    run: Path | None = None
    summary: RunSummary | None = None
    stopped_by: str | None = None
    reason: str = ""

    @property
    def status(self) -> str:
        return "finished" if self.code == EXIT_DONE else "stopped"

    @classmethod
    def of_processes(cls, ended: LocalRun, procs: int) -> "Ended":
        """How processes ended. Of those of a command only the exit code is known: they print the result."""
        printed = ended.code in (EXIT_DONE, EXIT_STOPPED) and ended.output.strip()
        run = Path(parse_json(printed)["run"]) if printed else None
        reason = ended.reason or f"{procs} processes ended with exit code {ended.code}; the reason is printed above."
        return cls(code=ended.code, run=run, stopped_by=ended.stopped_by, reason=reason)


def train_request(request: Train, session: Session, within: AbstractContextManager[None] | None = None) -> Ended:
    """Train, in this process or in several. `within` is entered while this process trains. Raises ConfigError."""
    from vernier.report.live.trackers import require_installed

    training = training_of(request)
    require_installed(training.track)
    check_exports(_exports(request))
    training, to_start = training.in_processes(request, session)
    training.check(session)
    if to_start:
        return Ended.of_processes(run_in_processes(request, session, to_start), to_start)
    with within or nullcontext():
        return train_here(training, session)


def train_here(training: Training, session: Session) -> Ended:
    """Train in this process and the others of the run; the first one shows it."""
    outcome = _run(training, session)
    return Ended(
        code=EXIT_DONE if outcome.status == "finished" else EXIT_STOPPED,
        run=outcome.run.path,
        summary=outcome.summary,
        stopped_by=outcome.stopped_by,
    )


def _run(training: Training, session: Session) -> "Outcome":
    from vernier.report.live.trackers import trackers

    config = training.config
    with (
        joined(config, quiet=session.quiet) as world,
        session.observer_of(world) as console,
        trackers(training.track, training.tensorboard, console.warn if console else None) as tracked,
    ):
        from vernier.engine.training.checkpoints.resume import choose_resume_point
        from vernier.engine.training.session import train as run_training
        from vernier.measure.assessment import assess

        def choose() -> "ResumePoint | None":
            assert console is not None
            point = choose_resume_point(config, training.out, training.resume, console.warn)
            if point is not None and training.resume is None:
                new = f"{use('resume', 'never')} starts a new run"
                console.say(f"Resuming {point.run.path}, which was interrupted ({new}).")
            return point

        return run_training(
            config,
            training.out,
            world.broadcast_from_first(choose),
            [*([console] if console else []), *tracked],
            assess=partial(assess, reference=book.reference(config.recipe)),
            world=world,
            profile=training.profile,
            notes=training.notes,
            warnings=training.warnings,
        )


def _exports(request: Train) -> dict[str, str | None]:
    return {"raport": request.raport, "dllogger": request.dllogger}


def write_logs(request: Train, ended: Ended, session: Session) -> None:
    """Write the logs in NVIDIA's formats that were asked for, if the run is finished. Raises RunFailed."""
    exports = _exports(request)
    if ended.summary is None or ended.run is None or not topology().first:
        return  # the processes that were started write them
    if ended.status == "finished":
        session.say(*(f"written    {path}" for path in write_exports(ended.run, exports)))
    elif names := [given(name) for name, file in exports.items() if file is not None]:
        session.warn(f"{' and '.join(names)}: written when the run is finished; {command('convert', ended.run)} now")


# -------------------------------------------------------------------------------------------------------- from Python


def _train(request: Train, session: Session) -> Run:
    limit_spinning()
    with time_counted_from_now():
        ended = train_request(request, session, unchanged_session())
        run = as_run(ended)
        write_logs(request, ended, session)
        return run


train = function(Train, _train, "train")


def as_run(ended: Ended) -> Run:
    """The run. Raises what a failure was, and Interrupted or SystemExit after a signal."""
    if ended.code not in (EXIT_DONE, EXIT_STOPPED):
        raise ConfigError(ended.reason) if ended.code == EXIT_USAGE else RunFailed(ended.reason)
    run = None if ended.run is None else Run(ended.run)
    if run is None or ended.stopped_by is not None:
        _end_after_signal(ended.stopped_by or signal.SIGTERM.name, run)
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
def unchanged_session() -> Iterator[None]:
    """While entered, a session of Python trains: afterwards PyTorch and signals are as before.

    A signal leaves nothing behind before the first step; afterwards the training has them.
    """

    def stop(number: int, _: object) -> None:
        raise StopRequested(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in caught()}
    try:
        with unchanged_torch():
            yield
    except StopRequested as request:
        _end_after_signal(str(request), None)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
