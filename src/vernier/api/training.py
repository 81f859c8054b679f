"""Training from a recipe: checks a request and carries it out, for `vernier train` and for `vernier.train`.

`train_request` serves both; what only a session of Python needs is around it in `train`. The training itself is
`engine.training`'s, several processes are `engine.processes`'.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from vernier import recipes as book
from vernier.config import (
    Changed,
    Config,
    Model,
    check_batch_rule,
    check_config,
    config_from_tree,
    config_warnings,
    derive,
    describe_target,
    load_file,
    override,
    own_references,
)
from vernier.config.settings import EXTENSIONS
from vernier.data.downloads import is_pretrained
from vernier.engine.processes.launch import LocalRun, time_counted_from_now, time_left_s, topology
from vernier.errors import EXIT_DONE, EXIT_STOPPED, EXIT_USAGE, ConfigError, RunFailed, did_you_mean
from vernier.frozen import frozen
from vernier.measure.profiles import StepRange
from vernier.models import info, is_detector
from vernier.own_code import OwnPart, is_of_this_process
from vernier.plugins import needed_plugin, only_plugin, plugin_names
from vernier.records.run import RunSummary
from vernier.references import command, given, use
from vernier.requests.training import Train, Trains
from vernier.signals import StopRequested, caught
from vernier.store import RunDir, parse_json

from .crossing import run_in_processes
from .functions import function
from .runs import Run
from .session import Session
from .starting import (
    change,
    count_processes,
    fetch_weights,
    joined,
    limit_spinning,
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
    observers: tuple[str, ...] = ()
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

    def resume_point(self, warn: Callable[[str], None] = lambda _: None) -> "ResumePoint | None":
        """The interrupted run that would continue, and from where. Raises ConfigError."""
        from vernier.engine.training.checkpoints.resume import choose_resume_point

        return choose_resume_point(self.config, self.out, self.resume, warn)

    def in_processes(self, request: Trains, session: Session) -> "tuple[Training, int]":
        """The same with its number of processes filled in; also how many must be started here (0: none)."""
        config, to_start = count_processes(self.config)
        _refuse_unclear_batch(config.machine.procs, session)
        self._refuse_objects(config.machine.procs)
        return replace(self, changed=replace(self.changed, config=config)), to_start

    def _refuse_objects(self, procs: int) -> None:
        """Of a Python session's objects other processes know nothing. Raises ConfigError."""
        own = [(setting, text) for setting, text, _ in own_references(self.config.recipe)]
        own += [("observers", text) for text in self.observers]
        for setting, text in own if procs > 1 else ():
            if is_of_this_process(text):
                raise ConfigError(
                    f"{given(setting, text)} is an object of this session, which other processes cannot import. Define "
                    f"it in a file and give file.py:name, or use {use('machine.procs', 1)}."
                )

    def check(self, session: Session, *, explained: bool = False) -> None:
        """Refuse what needs neither PyTorch nor the list of images to be seen, before processes start.

        Batch and processes, limits and layers to freeze; then what this host has: device, weights files, data, and the
        folder to write to. Published weights that a new run starts from are fetched, which may raise RunFailed. A run
        that is only `explained` may be one of another host, with its device, data and memory: nothing is fetched.
        One of several processes leaves all that to the set-up, where a refusal ends all of them: the others would wait
        for a process that never joins. Raises ConfigError.
        """
        from vernier.data.loading.bad_images import parse_limit
        from vernier.data.sources.opening import check_source
        from vernier.devices import refuse_early, refuse_unknown

        config, recipe, machine = self.config, self.config.recipe, self.config.machine
        # The size of the data is not known yet; with endless data only batch and processes can be refused.
        derive(config, train_samples=sys.maxsize)
        parse_limit(recipe.data.max_bad_images, 1)
        for each in own_references(recipe):
            OwnPart(*each, instantiate=False)  # loads it
        time_left_s(config.limits.max_time)
        _check_freeze(recipe.model)
        if topology().world > 1:
            return
        if explained:
            refuse_unknown(machine.device)
        else:
            refuse_early(machine.device, machine.precision, machine.mode, allow_slow=machine.allow_slow)
        for name in ("weights", "backbone_weights"):
            weights = getattr(recipe.model, name)
            if weights and self.resume_point() is None:  # a run that is resumed needs no starting weights
                _check_weights(f"model.{name}", weights)
                if is_pretrained(weights) and not explained:
                    fetch_weights(weights, session)
        if not explained:
            check_source(recipe.data.source, detector=self.detector)
            RunDir.check_out(self.out)
            _check_memory(config)


def _refuse_unclear_batch(procs: int, session: Session) -> None:
    """With several processes `--batch` could be the batch of one or of all. Raises ConfigError."""
    if procs > 1 and "global_batch" in getattr(session.words, "typed", {}):
        raise ConfigError(
            f"With {procs} processes {given('global_batch')} could mean the batch of one or of all. Use "
            f"{use('global_batch', slot='N')} for all together, or "
            f"{use('machine.process_batch', slot='N')} for the largest batch of one."
        )


def _check_weights(name: str, value: str) -> None:
    """Refuse a weights file that is not there, given by the option or setting `name`. Raises ConfigError.

    A file, the common start of a TensorFlow checkpoint's files, and a folder with one are fine; so are published
    weights, which `fetch_weights` looks up.
    """
    path, prefix = Path(value).expanduser(), value.partition(":")[0]
    if prefix in plugin_names("vernier.weight_formats"):  # weights by name, in a library that fetches them
        return
    is_checkpoint = path.with_name(f"{path.name}.index").is_file() or any(path.glob("*.index"))
    if not is_pretrained(value) and not path.is_file() and not is_checkpoint:
        raise ConfigError(
            f"{given(name, value)} {'is a folder' if path.is_dir() else 'does not exist'}. Give a .safetensors, .pth, "
            ".pt or .th file, a TensorFlow checkpoint (model.ckpt-N), or published weights by name, such as "
            "torchvision:resnet50-v2."
        )


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


def _training_of(request: Train) -> Training:
    """The training run of a request. Raises ConfigError for options that do not fit together."""
    foreign, resume = _split_resume(request)
    start = _starting_config(request, resume)
    extended, longer = _extended_run(request, resume), request
    if extended is not None:  # at first with the length that the run had
        request = only_plugin(EXTENSIONS).unextended(request, extended)
    more = {"eval.every_epochs": 0 if request.train_only else None, "model.checkpoint": foreign}
    more |= {} if request.checkpoints else _NO_CHECKPOINTS
    changed = change(start, request, "train", more, small=request.smoke)
    if extended is not None:
        changed = only_plugin(EXTENSIONS).extend(changed, extended, longer)
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
        observers=request.observers,
        track=tuple(name for name in request.track if name != "tensorboard"),
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


def _extended_run(request: Train, resume: str | None) -> RunDir | None:
    """The run that is to be trained longer than it was planned; None: none is. Raises ConfigError."""
    if resume not in (None, "auto", "never"):
        from vernier.engine.training.checkpoints.resume import run_config, run_of

        run = RunDir.open(run_of(Path(resume)))
        was = run_config(run).recipe.schedule
        if request.epochs not in (None, was.epochs) or request.steps not in (None, was.steps):
            needed_plugin(EXTENSIONS, "resume", resume)
            return run
    if request.schedule_tail is not None:
        raise ConfigError(
            f"{given('schedule_tail', request.schedule_tail)} is for a finished run that is extended: "
            f"{command('train', resume='RUN', epochs='N')}."
        )
    return None


def _starting_config(request: Train, resume: str | None) -> Config:
    """The recipe or configuration that the options change."""
    recipe, model, config = request.recipe, request.model, request.config
    if recipe is not None and config is not None:
        raise ConfigError(f"Give a recipe ({recipe}) or {given('config', config)}, not both.")
    if recipe is None and config is None and resume not in (None, "auto", "never"):
        from vernier.engine.training.checkpoints.resume import run_config, run_of

        return run_config(RunDir.open(run_of(Path(resume))))
    if config is not None and RunDir.is_run(Path(config)):
        return config_from_tree(RunDir.open(Path(config)).read_config())
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

    training = _training_of(request)
    training.check(session, explained=True)
    size, point = book.data_size(training.config.recipe), training.resume_point()
    return explained(
        training.config,
        images=size.images,
        images_from=session.word(size.origin),
        classes=size.classes,
        runs=training.out,
        resumed=None if point is None else (point.run.path, point.step),
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
    training = _training_of(request)
    if training.track:
        needed_plugin("vernier.tracking", "track", training.track).check(training.track)
    if exports := _exports(request):
        needed_plugin("vernier.log_exports", *next(iter(exports.items()))).check_exports(exports)
    training, to_start = training.in_processes(request, session)
    training.check(session)
    # Started after all checks: a refusal is printed once, and before any process exists.
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
    config, tracking = training.config, only_plugin("vernier.tracking")
    with (
        joined(config, quiet=session.quiet) as world,
        session.observer_of(world) as console,
        tracking.attach(training.track, training.tensorboard, console.warn)
        if tracking and console
        else nullcontext([]) as tracked,
    ):
        from vernier.engine.observe import OwnObserver
        from vernier.engine.training.session import train as run_training
        from vernier.measure.agreement import assess

        def choose() -> "ResumePoint | None":
            assert console is not None
            point = training.resume_point(console.warn)
            if point is not None and training.resume is None:
                new = f"{use('resume', 'never')} starts a new run"
                console.say(f"Resuming {point.run.path}, which was interrupted ({new}).")
            return point

        return run_training(
            config,
            training.out,
            # Rank 0 decides for all: others could see a shared folder in another state.
            world.broadcast_from_first(choose),
            [*([console] if console else []), *(map(OwnObserver, training.observers) if console else ()), *tracked],
            assess=partial(assess, reference=book.reference(config.recipe)),
            world=world,
            profile=training.profile,
            notes=training.notes,
            warnings=training.warnings,
        )


def _exports(request: Train) -> dict[str, str]:
    files = {"raport": request.raport, "dllogger": request.dllogger}
    return {form: file for form, file in files.items() if file is not None}


def write_logs(request: Train, ended: Ended, session: Session) -> None:
    """Write the logs in NVIDIA's formats that were asked for, if the run is finished. Raises RunFailed."""
    exports = _exports(request)
    if not exports or ended.summary is None or ended.run is None or not topology().first:
        return  # the processes that were started write them
    if ended.status == "finished":
        written = only_plugin("vernier.log_exports").write_exports(ended.run, exports)
        session.say(*(f"written    {path}" for path in written))
    else:
        names = " and ".join(map(given, exports))
        session.warn(f"{names}: written when the run is finished; {command('convert', ended.run)} now")


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
    """Returns the run. Raises RunFailed or ConfigError for a failure, and Interrupted or SystemExit after a signal."""
    if ended.code not in (EXIT_DONE, EXIT_STOPPED):
        raise ConfigError(ended.reason) if ended.code == EXIT_USAGE else RunFailed(ended.reason)
    run = None if ended.run is None else Run(ended.run)
    if run is None or ended.stopped_by is not None:
        _end_after_signal(ended.stopped_by or signal.SIGTERM.name, run)
    return run


def _end_after_signal(name: str, run: Run | None) -> NoReturn:
    """Ctrl-C raises Interrupted; any other signal ends the program as it ends `vernier train`."""
    if name != signal.SIGINT.name:
        # As the command does, so that a scheduler sees that the job can be submitted again.
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
