"""Fine-tuning on a folder of photographs: chosen, checked and finished, for `vernier finetune` and `vernier.finetune`.

The choices are `recipes.finetuning`'s, the training is that of `.training`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vernier import signals
from vernier.config import MACHINE_FILE, Changed, Config, apply_changes, check_config, config_warnings
from vernier.data.preparing.pretrained import is_cached, is_pretrained
from vernier.engine.processes.launch import time_counted_from_now, topology
from vernier.errors import EXIT_DONE, ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.models import is_detector
from vernier.records.codec import encode
from vernier.records.run import EvalResult, FinetuningRecord
from vernier.references import given, use
from vernier.requests.training import Finetune
from vernier.requests.values import seconds
from vernier.store import RunDir
from vernier.wording import plural, rough_duration

from .crossing import run_in_processes
from .functions import function
from .runs import Result, Run
from .session import Session
from .starting import limit_spinning, load_torch, machine_file, unchanged_torch
from .training import Ended, Training, as_run, train_here, unchanged_session
from .wording import python_errors

if TYPE_CHECKING:
    from vernier.engine.inference.finishing import Finished
    from vernier.engine.observe import Observer
    from vernier.recipes.finetuning import Plan, StartingWeights

NO_WEIGHTS = "none"
MODEL_FILE = "model.safetensors"


# ------------------------------------------------------------------------------------------------------- what to train


@frozen
class Finetuning:
    """A fine-tuning run that can start: what was chosen and why, and the training that follows from it."""

    plan: "Plan"
    training: Training


def finetuning_of(request: Finetune, session: Session) -> Finetuning:
    """Look at the folder, and choose what was not given. Raises ConfigError for what does not fit together."""
    values: dict[str, object] = {MACHINE_FILE: machine_file(request.machine, "train"), **request.changes()}
    values.pop("model.weights", None)  # which setting the weights are follows from the photographs
    plan = _plan(request, apply_changes(Config(), values, request.settings), session)
    # What a person set, once more: the plan already takes account of it.
    others = {path: value for path, value in values.items() if path not in ("model.name", "schedule.epochs")}
    changed = apply_changes(plan.config, others, request.settings)
    training = Training(
        changed=changed,
        warnings=_warnings(changed.config, request.weights),
        out=Path(request.out),
        resume=request.resume,
        tensorboard=request.tensorboard,
    )
    return Finetuning(plan=plan, training=training)


def _plan(request: Finetune, given: Changed, session: Session) -> "Plan":
    """What to train, chosen from the folder and the machine."""
    from vernier.data.sources.opening import recognise_folder

    folder, boxes = str(Path(request.folder)), None if request.task == "auto" else request.task == "boxes"
    recognise_folder(folder, boxes)  # refuses most mistakes before PyTorch is loaded
    load_torch(quiet=session.quiet)
    from vernier.devices import resolve
    from vernier.recipes.finetuning import MachineFacts, default_weights, pick, survey

    photographs, minutes = survey(folder, boxes), seconds(request.time) / 60
    machine = MachineFacts.here(resolve(given.config.machine.device).name)
    start = (
        default_weights(photographs, machine, given, minutes)
        if request.weights is None
        else _starting_weights(request.weights)
    )
    return pick(photographs, machine, start, given, minutes=minutes)


def _starting_weights(weights: str) -> "StartingWeights | None":
    from vernier.engine.starting_weights import recognise_network
    from vernier.recipes.finetuning import StartingWeights

    if weights == NO_WEIGHTS:
        return None
    return StartingWeights(text=weights, network=recognise_network(weights), settings=_settings_of_file(weights))


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
    return {
        "model.width": recipe.model.width,
        "model.stem": recipe.model.stem,
        "model.blurpool": recipe.model.blurpool,
        "data.mean": recipe.data.mean,
        "data.std": recipe.data.std,
        "data.image_px": recipe.data.image_px,
    }


def _warnings(config: Config, weights: str | None) -> tuple[str, ...]:
    detector = is_detector(config.recipe.model.name)
    check_config(config, detector=detector)
    lines = config_warnings(config, detector=detector)
    if weights != NO_WEIGHTS:
        return lines
    return (
        *lines,
        f"training starts FROM SCRATCH ({given('weights', NO_WEIGHTS)}): from a few hundred photographs a model learns "
        "little. Expect far lower results than from published weights (docs/finetune.md has an example)",
    )


def _time_line(tuning: Finetuning, *, measure: bool) -> str:
    """How long training takes: from a few steps of it, or by arithmetic."""
    plan, config = tuning.plan, tuning.training.config
    if measure:
        from vernier.engine.phase_times import time_phases

        times = time_phases(config)
        head = f"{times.head_step_s:.2g} s with the new layers alone, " if config.recipe.schedule.head_epochs else ""
        return (
            f"about {rough_duration(times.total_s)}, from {plural(times.steps, 'step')} timed just now: {head}"
            f"{times.step_s:.2g} s with all layers"
        )
    usual = plan.machine.describe().partition(",")[0]
    return (
        f"about {rough_duration(plan.expected_s)}, by arithmetic at {plan.machine.flops / 1e9:,.0f} GFLOP/s, a usual "
        f"rate for {usual}"
    )


@frozen
class FinetuningExplanation:
    """What would be trained and why, and how long that takes."""

    plan: "Plan"
    time: str
    warnings: tuple[str, ...]


def explain_finetuning(request: Finetune, session: Session) -> FinetuningExplanation:
    """What would be trained. Nothing is fetched: without the weights the time is arithmetic."""
    tuning = finetuning_of(request, session)
    model = tuning.training.config.recipe.model
    weights = model.weights or model.backbone_weights
    time = _time_line(tuning, measure=not is_pretrained(weights) or is_cached(weights))
    return FinetuningExplanation(plan=tuning.plan, time=time, warnings=tuning.training.warnings)


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
    tuning = finetuning_of(request, session)
    training, to_start = tuning.training.in_processes(request, session)
    tuning = replace(tuning, training=training)
    _check(request, training, session)
    if to_start:
        return Finetuned(ended=Ended.of_processes(run_in_processes(request, session, to_start), to_start))
    run = _finished_before(training)
    ended = Ended(code=EXIT_DONE, run=None if run is None else run.path)
    if run is None:
        session.say(*([] if session.quiet else _opening_lines(tuning)))
        with within or nullcontext():
            ended = train_here(training, session)
    if ended.code != EXIT_DONE or ended.run is None or not topology().first:
        return Finetuned(ended=ended)
    with session.observer() as observer:
        return Finetuned(ended=ended, finished=_finish(tuning.plan, RunDir.open(ended.run), [observer]))


def _check(request: Finetune, training: Training, session: Session) -> None:
    try:
        training.check(session)
    except RunFailed as error:
        if request.weights is not None:
            raise
        raise RunFailed(
            f"{error.message} Or start from a file that you have: {use('weights', slot='FILE')}. Without any, "
            f"{use('weights', NO_WEIGHTS)} trains from scratch, with far lower accuracy; that is never done unasked."
        ) from None


def _opening_lines(tuning: Finetuning) -> list[str]:
    """What was chosen and how long it takes, if a new run begins; nothing if one is resumed."""
    from vernier.engine.training.checkpoints.resume import choose_resume_point

    here, training = topology(), tuning.training
    resumed = choose_resume_point(training.config, training.out, training.resume, lambda _: None)
    if not here.first or resumed is not None:
        return []
    return [*tuning.plan.lines(_time_line(tuning, measure=here.world == 1)), ""]


def _finished_before(training: Training) -> RunDir | None:
    """A run of these settings that was trained to its end, and killed before its model was exported."""
    from vernier.engine.training.checkpoints.resume import choose_resume_point

    if training.resume == "never":
        return None
    point = choose_resume_point(training.config, training.out, training.resume or "auto", lambda _: None)
    if point is None or point.run.status().status != "finished" or (point.run.path / MODEL_FILE).exists():
        return None
    return point.run


@frozen
class FinishedRun:
    """The results of a fine-tuning run, and the record of it."""

    done: "Finished"
    page: Path
    record: Mapping[str, Any]


def _finish(plan: "Plan", run: RunDir, observers: "Sequence[Observer]") -> FinishedRun:
    """Evaluate on test images if there are some, export the best weights, write the model card and the report."""
    from vernier.engine.inference.finishing import finish
    from vernier.report.model_card import write_card
    from vernier.report.page.writing import write_page

    signals.end_from_now()
    done = finish(run.path, run.path / MODEL_FILE, has_test="test" in plan.survey.splits, observers=observers)
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
        return self.path / MODEL_FILE

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
