"""Fine-tuning on a folder of photographs: chosen, checked and finished, for `vernier finetune` and `vernier.finetune`.

The choices are `lab.finetuning`'s, the training is that of `vernier.api.training`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vernier import signals
from vernier.api.crossing import run_in_processes
from vernier.api.functions import function
from vernier.api.runs import Result, Run
from vernier.api.session import Session
from vernier.api.starting import limit_spinning, load_torch, machine_file, unchanged_torch
from vernier.api.training import Ended, Training, as_run, train_here, unchanged_session
from vernier.api.wording import python_errors
from vernier.config import MACHINE_FILE, Changed, Config, apply_changes, check_config, config_warnings, names_code
from vernier.data.downloads import is_cached, is_pretrained
from vernier.data.loading.bad_images import parse_limit
from vernier.data.sources.opening import recognise_folder
from vernier.devices import resolve
from vernier.engine.processes.launch import time_counted_from_now, topology
from vernier.engine.training.checkpoints.resume import choose_resume_point, run_config, run_of
from vernier.errors import EXIT_DONE, ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.lab.finetuning.picking import MachineFacts, Plan, StartingWeights, default_weights, pick
from vernier.lab.finetuning.survey import Survey, survey
from vernier.lab.requests.finetuning import Finetune
from vernier.models import is_detector
from vernier.models.catalogue import is_outside
from vernier.quantities import parse_duration, rough_duration
from vernier.records.codec import encode
from vernier.records.run import EvalResult, FinetuningRecord
from vernier.references import command, given, use
from vernier.report.model_card import write_card
from vernier.report.page.build import write_page
from vernier.store import RunDir, find_runs
from vernier.wording import plural

if TYPE_CHECKING:
    from vernier.engine.observe import Observer
    from vernier.lab.finetuning.finishing import Finished

_NO_WEIGHTS = "none"
_MODEL_FILE = "model.safetensors"
_RARE = 10
"""Images from which on about two are held out, and a class is learned at all."""
_RESULT_FILES = (_MODEL_FILE, "finetuning.json", "report.html")


# ------------------------------------------------------------------------------------------------------- what to train


def _finetuning_of(
    request: Finetune, session: Session, before: "Plan | None" = None, epochs: float | None = None
) -> tuple["Plan", Training]:
    """What was chosen from the folder and why, and the training run that follows from it.

    `before` is a plan of the same folder, which is not looked at again, and `epochs` replaces its number of epochs.
    Raises ConfigError for what does not fit together.
    """
    values: dict[str, object] = {MACHINE_FILE: machine_file(request.machine, "train"), **request.changes()}
    values.pop("model.weights", None)  # which setting the weights are follows from the photographs
    changed = apply_changes(Config(), values, request.settings)
    photographs = _look(request, changed, session) if before is None else before.survey
    plan = _plan(request, changed, photographs, epochs)
    # What a person set, once more: the plan already takes account of it.
    others = {path: value for path, value in values.items() if path not in ("model.name", "schedule.epochs")}
    changed = apply_changes(plan.config, others, request.settings)
    return plan, Training(
        changed=changed,
        warnings=(
            *_warnings(changed.config, request.weights),
            *_rare_classes(plan.survey),
            *_unusable(plan.survey, changed.config),
        ),
        out=Path(request.out),
        resume=request.resume,
        tensorboard=request.tensorboard,
    )


def _unusable(survey: "Survey", config: Config) -> tuple[str, ...]:
    """A warning about images that will be replaced. Raises RunFailed if they are more than the settings allow."""
    if not survey.unusable:
        return ()
    limit, shown = parse_limit(config.recipe.data.max_bad_images, survey.images), "; ".join(survey.unusable[:5])
    counted = f"{plural(len(survey.unusable), 'bad image')} of {survey.images:,}"
    if len(survey.unusable) <= limit:
        return (f"{counted}, replaced by others in training: {shown}",)
    raise RunFailed(
        f"{counted}; the limit is {limit}. Nothing was trained. {shown}. Repair or remove them "
        f"({command('data verify', survey.folder)} lists all), or raise {use('data.max_bad_images')}."
    )


def _rare_classes(survey: "Survey") -> tuple[str, ...]:
    """A warning about classes that a result over all images hides."""
    rare = [name for name, count in zip(survey.classes, survey.per_class, strict=True) if count < _RARE]
    if survey.boxes or not rare or len(rare) == len(survey.classes):
        return ()
    return (
        f"fewer than {_RARE} images of {', '.join(rare[:5])}: these classes may never be recognized, and top-1 hardly "
        "shows it. The report has accuracy by class; add images of them",
    )


def _look(request: Finetune, given: Changed, session: Session) -> "Survey":
    folder, boxes = str(Path(request.folder)), None if request.task == "auto" else request.task == "boxes"
    recognise_folder(folder, boxes)  # refuses most mistakes before PyTorch is loaded
    load_torch(quiet=session.quiet)
    return survey(folder, boxes, exif=given.config.recipe.data.exif == "apply")


def _plan(request: Finetune, given: Changed, photographs: "Survey", epochs: float | None) -> "Plan":
    """What to train, chosen from the folder and the machine."""
    minutes = parse_duration(request.time) / 60
    machine = MachineFacts.here(resolve(given.config.machine.device).name)
    if request.weights is None and not is_outside(request.model or ""):
        start: StartingWeights | None = default_weights(photographs, machine, given, minutes)
    else:
        start = _starting_weights(request)
    return pick(photographs, machine, start, given, minutes=minutes, epochs=epochs)


def _weights_of(model: str) -> str:
    """The weights that a library publishes by the name of its model. Raises ConfigError for a user's own model."""
    if names_code(model):
        raise ConfigError(
            f"{given('model', model)} has no published weights. Use {use('weights', slot='FILE')}, or "
            f"{use('weights', _NO_WEIGHTS)}, which trains from scratch."
        )
    name = model.partition("(")[0]
    return f"{name}.DEFAULT" if is_pretrained(name) and "." not in name else name


def _starting_weights(request: Finetune) -> "StartingWeights | None":
    from vernier.lab.finetuning.recognizing import recognise_network

    model, weights = request.model or "", request.weights or _weights_of(request.model or "")
    if weights == _NO_WEIGHTS:
        return None
    # The layers of an outside model can have any names: whose weights they are is not found out from the file.
    network = model if is_outside(model) else recognise_network(weights)
    why = "as given" if request.weights else "published for this model"
    return StartingWeights(text=weights, network=network, why=why, settings=_settings_of_file(weights))


def _settings_of_file(weights: str) -> dict[str, object]:
    """How the model of a file that describes itself differs from the published one, and how it sees images."""
    from vernier.engine.inference.model_file import read_description
    from vernier.engine.inference.trained import config_of_file

    file = Path(weights).expanduser()
    if is_pretrained(weights) or not file.is_file():  # nothing is fetched to look at it; TensorFlow's are several files
        return {}
    about = read_description(file)
    if about is None:
        return {}
    recipe = config_of_file(about, file).recipe
    names = ("model.width", "model.stem", "model.blurpool", "model.padding", "data.mean", "data.std", "data.image_px")
    return {name: attrgetter(name)(recipe) for name in names}


def _warnings(config: Config, weights: str | None) -> tuple[str, ...]:
    detector = is_detector(config.recipe.model.name)
    check_config(config, detector=detector)
    lines = config_warnings(config, detector=detector)
    if weights != _NO_WEIGHTS:
        return lines
    return (
        *lines,
        f"training starts FROM SCRATCH ({given('weights', _NO_WEIGHTS)}): from a few hundred photographs a model "
        "learns little. Expect far lower results than from published weights (docs/finetune.md has an example)",
    )


def _estimated(plan: "Plan") -> str:
    """How long training takes, as a line, estimated."""
    usual = plan.machine.describe().partition(",")[0]
    return (
        f"about {rough_duration(plan.expected_s)}, estimated from FLOPs at {plan.machine.flops / 1e9:,.0f} GFLOP/s, a "
        f"usual rate for {usual}"
    )


def _in_time(request: Finetune, session: Session, plan: "Plan", training: Training) -> tuple["Plan", Training, str]:
    """The plan with as many of its epochs as fit into the requested time, and a line about it; steps are timed now.

    A schedule cannot be shortened once it has begun. It is never lengthened: a fast machine gets the usual result.
    """
    from vernier.lab.finetuning.phase_times import time_phases

    times, asked_s = time_phases(training.config), parse_duration(request.time)
    longer = ""
    while not request.gives("epochs") and (total_s := times.total_s(training.config)) > asked_s:
        epochs = training.config.recipe.schedule.epochs
        plan, training = _finetuning_of(request, session, plan, int(epochs * asked_s / total_s))
        if training.config.recipe.schedule.epochs == epochs:  # the fewest, or set by a person
            allowed = use("time", f"{math.ceil(total_s / 60)}m")
            longer = f". That is LONGER than {given('time', request.time)}, {allowed} allows it"
            break
    head = (
        f"{times.head_step_s:.2g} s with the new layers alone, " if training.config.recipe.schedule.head_epochs else ""
    )
    time = (
        f"about {rough_duration(times.total_s(training.config))}, from {plural(times.steps, 'step')} timed just now: "
        f"{head}{times.step_s:.2g} s with all layers{longer}"
    )
    return plan, training, time


def _as_begun(request: Finetune, session: Session, plan: "Plan", training: Training) -> tuple["Plan", Training]:
    """The plan with the epochs of a run that it continues: steps that are timed now could give another number."""
    if request.gives("epochs") or training.resume == "never":
        return plan, training
    named = None if training.resume in (None, "auto") else Path(training.resume)
    runs = find_runs(training.out) if named is None else [RunDir.open(run_of(named))]
    most = training.config.recipe.schedule.epochs
    for epochs in dict.fromkeys(min(each, most) for each in _epochs_of(reversed(runs))):
        with suppress(ConfigError):  # of a run that is named, which is refused when it is resumed
            begun = _finetuning_of(request, session, plan, epochs)
            if begun[1].resume_point() is not None or _finished_before(begun[1]) is not None:
                return begun
    return plan, training


def _epochs_of(runs: Iterable[RunDir]) -> Iterator[float]:
    for run in runs:
        with suppress(ConfigError, OSError):  # damaged, or of a newer version
            yield run_config(run).recipe.schedule.epochs


@frozen
class FinetuningExplanation:
    """What would be trained and why, and how long that takes."""

    plan: "Plan"
    time: str
    warnings: tuple[str, ...]


def explain_finetuning(request: Finetune, session: Session) -> FinetuningExplanation:
    """What would be trained. Nothing is fetched: without the weights the time is arithmetic."""
    plan, training = _finetuning_of(request, session)
    model = training.config.recipe.model
    weights = model.weights or model.backbone_weights
    # A library such as timm has a cache of its own, which cannot be looked into.
    if is_outside(weights) if not is_pretrained(weights) else not is_cached(weights):
        return FinetuningExplanation(plan=plan, time=_estimated(plan), warnings=training.warnings)
    plan, training, time = _in_time(request, session, plan, training)
    return FinetuningExplanation(plan=plan, time=time, warnings=training.warnings)


# --------------------------------------------------------------------------------------------------------- training it


@frozen
class Finetuned:
    """How a fine-tuning run ended; `finished` is None for one that did not, or not in this process."""

    ended: Ended
    finished: "FinishedRun | None" = None


def finetune_request(
    request: Finetune, session: Session, within: AbstractContextManager[None] | None = None
) -> Finetuned:
    """Train and finish, in this process or in several. `within` is entered while this process trains.

    Raises ConfigError, and RunFailed if the starting weights cannot be fetched.
    """
    plan, training = _as_begun(request, session, *_finetuning_of(request, session))
    training, to_start = training.in_processes(request, session)
    _check(request, training, session)
    if to_start:
        return Finetuned(ended=Ended.of_processes(run_in_processes(request, session, to_start), to_start))
    run = _finished_before(training)
    ended = Ended(code=EXIT_DONE, run=None if run is None else run.path)
    if run is None:
        plan, training = _announced(request, session, plan, training)
        with within or nullcontext():
            ended = train_here(training, session)
    if ended.code != EXIT_DONE or ended.run is None or not topology().first:
        return Finetuned(ended=ended)
    with session.observer() as observer:
        return Finetuned(ended=ended, finished=_finish(plan, RunDir.open(ended.run), [observer]))


def _check(request: Finetune, training: Training, session: Session) -> None:
    try:
        training.check(session)
    except RunFailed as error:
        if request.weights is not None:
            raise
        raise RunFailed(
            f"{error.message} Or start from a file that you have: {use('weights', slot='FILE')}. Without any, "
            f"{use('weights', _NO_WEIGHTS)} trains from scratch, with far lower accuracy; that is never done unasked."
        ) from None


def _announced(request: Finetune, session: Session, plan: "Plan", training: Training) -> tuple["Plan", Training]:
    """What a new run trains, after printing it and how long it takes; a run that is resumed stays as it is."""
    here = topology()
    if not here.first or training.resume_point() is not None:
        return plan, training
    time = _estimated(plan)
    if here.world == 1:  # several processes would have to start together for a step
        plan, training, time = _in_time(request, session, plan, training)
        training, _ = training.in_processes(request, session)
    session.say(*([] if session.quiet else [*plan.lines(time), ""]))
    return plan, training


def _finished_before(training: Training) -> RunDir | None:
    """A run of these settings that was trained to its end, and killed before all of its results were written."""
    if training.resume == "never":
        return None
    point = choose_resume_point(training.config, training.out, training.resume or "auto", lambda _: None)
    if point is None or point.run.status().status != "finished":
        return None
    return None if all((point.run.path / name).exists() for name in _RESULT_FILES) else point.run


@frozen
class FinishedRun:
    """The results of a fine-tuning run, and the record of it."""

    done: "Finished"
    page: Path
    record: Mapping[str, Any]


def _finish(plan: "Plan", run: RunDir, observers: "Sequence[Observer]") -> FinishedRun:
    """Evaluate on test images if there are some, export the best weights, write the model card and the report."""
    from vernier.lab.finetuning.finishing import finish

    # All steps are saved: a signal ends the process now, and the same command does what is left.
    signals.end_from_now()
    done = finish(run.path, run.path / _MODEL_FILE, has_test="test" in plan.survey.splits, observers=observers)
    card = write_card(done.model, done.about, origin=run.path, checkpoint=done.checkpoint, selected=True)
    result = {"run": run.path, "held_out": done.held_out, "test": done.test, "model": done.model, "card": card}
    run.write_finetuning(encode({"plan": plan, **result}))
    page = write_page([run.path], None).path
    return FinishedRun(done=done, page=page, record={"plan": plan, **result, "page": page})


# -------------------------------------------------------------------------------------------------------- from Python


class FinetunedRun(Run):
    """A fine-tuning run, with its exported model and its results."""

    @property
    def model_file(self) -> Path:
        """The exported model, which `load` opens."""
        return self.path / _MODEL_FILE

    @property
    def held_out(self) -> Result[EvalResult]:
        """The best result on the images that were held out, by which the weights were chosen."""
        return self._result(self._record().held_out, "nothing was held out")

    @property
    def test(self) -> Result[EvalResult]:
        """The result on the test split, by which nothing was chosen. Raises ConfigError if there is none."""
        return self._result(self._record().test, "the data has no test split")

    @python_errors
    def _record(self) -> FinetuningRecord:
        return self._run.read_finetuning()

    def _result(self, record: EvalResult | None, reason: str) -> Result[EvalResult]:
        if record is None:
            raise ConfigError(f"{self.path} has no such result: {reason}.")
        return Result(record)


def _finetune(request: Finetune, session: Session) -> FinetunedRun:
    limit_spinning()
    with time_counted_from_now(), unchanged_torch():
        return FinetunedRun(as_run(finetune_request(request, session, unchanged_session()).ended).path)


finetune = function(Finetune, _finetune, "finetune")
