"""Fine-tuning on a folder of photographs: chosen, checked and finished, for `vernier finetune` and `vernier.finetune`.

The choices are `recipes.finetuning`'s, the training is that of `.training`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from vernier import signals
from vernier.config import MACHINE_FILE, Changed, Config, apply_changes, check_config, config_warnings
from vernier.data.preparing.pretrained import fetch_pretrained, is_pretrained
from vernier.engine.processes.launch import time_counted_from_now, topology
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.models import is_detector
from vernier.records.codec import encode
from vernier.records.run import EvalResult, FinetuningRecord
from vernier.store import RunDir
from vernier.wording import plural, rough_duration

from .options import (
    FinetuneFlags,
    FinetuneOptions,
    StrPath,
    assignments,
    check_names,
    command_words,
    given_flags,
    plain,
    signature_with,
    texts,
    to_path,
)
from .runs import Result, Run
from .starting import check_before_start, count_processes, limit_spinning, load_torch, machine_file, unchanged_torch
from .training import SETTINGS, TrainRequest, run_in_processes, train_here
from .words import errors_in_python_words

if TYPE_CHECKING:
    from vernier.engine.inference.finishing import Finished
    from vernier.engine.observe import Observer
    from vernier.recipes.finetuning import Plan, StartingWeights, Survey

NO_WEIGHTS = "none"
MODEL_FILE = "model.safetensors"
_SETTINGS = {
    "image_px": "data.image_px",
    **{name: SETTINGS[name] for name in FinetuneFlags.__annotations__ if name in SETTINGS and name != "weights"},
}
"""Flags that are settings; which setting the weights are follows from the photographs."""


# ------------------------------------------------------------------------------------------------------------ requests


@frozen
class FinetuneRequest:
    """A fine-tuning that was asked for: what was chosen and why, and the training that follows from it."""

    plan: "Plan"
    training: TrainRequest
    weights: str | None

    def with_config(self, config: Config) -> "FinetuneRequest":
        return replace(self, training=self.training.with_config(config))


def build_finetuning(
    folder: str, given: FinetuneFlags, settings: Sequence[str], *, quiet: bool = False
) -> FinetuneRequest:
    """Look at the folder, and choose what was not given. Raises ConfigError for what does not fit together."""
    flags = {name: plain(value) for name, value in given.items()}
    minutes, task, weights = flags.get("minutes", 10.0), flags.get("task", "auto"), flags.get("weights")
    if not isinstance(minutes, int | float):
        raise ConfigError(f"--minutes takes a number, not {minutes!r}.")
    if not minutes > 0:
        raise ConfigError(f"--minutes {minutes:g} is no time to train in. Give a number above 0.")
    if task not in ("auto", "classes", "boxes"):
        raise ConfigError(f"--task {task!r} is not one of: auto, classes, boxes.")
    values: dict[str, object] = {setting: flags.get(name) for name, setting in _SETTINGS.items()}
    values[MACHINE_FILE] = machine_file(flags.get("machine"), "train")
    values["model.freeze"] = texts(flags.get("freeze")) or None
    plan = _plan(
        str(Path(folder)),
        None if task == "auto" else task == "boxes",
        weights,
        apply_changes(Config(), values, settings),
        minutes,
        quiet=quiet,
    )
    # What a person set, once more: the plan already takes account of it.
    others = {path: value for path, value in values.items() if path not in ("model.name", "schedule.epochs")}
    changed = apply_changes(plan.config, others, settings)
    training = TrainRequest(
        changed=changed,
        warnings=_warnings(changed.config, weights),
        out=to_path(flags.get("out", "runs"), "--out"),
        resume=flags.get("resume"),
        tensorboard=bool(flags.get("tensorboard", True)),
    )
    return FinetuneRequest(plan=plan, training=training, weights=weights)


def _plan(
    folder: str, boxes: bool | None, weights: str | None, given: Changed, minutes: float, *, quiet: bool
) -> "Plan":
    """What to train, chosen from the folder and the machine."""
    from vernier.data.sources.opening import recognise_folder

    recognise_folder(folder, boxes)  # refuses most mistakes before PyTorch is loaded
    load_torch(quiet=quiet)
    from vernier.devices import resolve
    from vernier.recipes.finetuning import MachineFacts, default_weights, pick, survey

    photographs = survey(folder, boxes)
    machine = MachineFacts.here(resolve(given.config.machine.device).name)
    start = _starting_weights(weights, photographs)
    if weights is None:
        start = default_weights(photographs, machine, given, minutes)
    return pick(photographs, machine, start, given, minutes=minutes)


def _starting_weights(weights: str | None, photographs: "Survey") -> "StartingWeights | None":
    from vernier.engine.starting_weights import recognise_network
    from vernier.recipes.finetuning import StartingWeights

    if weights is None or weights == NO_WEIGHTS:
        return None
    return StartingWeights(
        text=weights,
        network=recognise_network(weights, photographs.open_training()),
        settings=_settings_of_file(weights),
    )


def _settings_of_file(weights: str) -> dict[str, object]:
    """How the network of a file that describes itself differs from the published one, and how it sees images."""
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
        "training starts FROM SCRATCH (--weights none): from a few hundred photographs a network learns little. Expect "
        "far lower figures than from published weights (docs/finetune.md has an example)",
    )


def check_finetuning(request: FinetuneRequest, *, fetch: Callable[[str], Path] = fetch_pretrained) -> None:
    """Refuse what can be refused before the start, and fetch the weights that are needed."""
    training = request.training
    try:
        check_before_start(training.config, training.out, training.resume, detector=training.detector, fetch=fetch)
    except RunFailed as error:
        if request.weights is not None:
            raise
        raise RunFailed(
            f"{error} Or start from a file that you have: --weights FILE. Without any, --weights none trains from "
            "scratch, with far lower accuracy; that is never done unasked."
        ) from None


def time_line(request: FinetuneRequest, *, measure: bool) -> str:
    """How long the training takes: from a few steps of it, or by arithmetic."""
    plan, config = request.plan, request.training.config
    if measure:
        from vernier.engine.measured.phase_times import time_phases

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


def opening_lines(request: FinetuneRequest) -> list[str]:
    """What was chosen and how long it takes, where a new run begins; nothing where one is resumed."""
    from vernier.engine.training.checkpoints.resume import choose_resume_point

    here, training = topology(), request.training
    resumed = choose_resume_point(training.config, training.out, training.resume, lambda _: None)
    if not here.first or resumed is not None:
        return []
    return [*request.plan.lines(time_line(request, measure=here.world == 1)), ""]


# ----------------------------------------------------------------------------------------------------------------- end


def finished_before(training: TrainRequest) -> RunDir | None:
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
    """What a fine-tuning ended with, and the record of it."""

    done: "Finished"
    page: Path
    record: Mapping[str, Any]


def finish_run(plan: "Plan", run: RunDir, observers: "Sequence[Observer]" = ()) -> FinishedRun:
    """Evaluate on test images where there are some, export the best weights, write the card and the page."""
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
    """The run of a fine-tuning, with its exported model and its results."""

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
        """The result on the test split, by which nothing was chosen. Raises ConfigError where there is none."""
        return self._result(self._record().test, "the data has no test split")

    @errors_in_python_words
    def _record(self) -> FinetuningRecord:
        return self._run.read_finetuning()

    def _result(self, record: EvalResult | None, reason: str) -> Result[EvalResult]:
        if record is None:
            raise ConfigError(f"{self.path} has no such result: {reason}.")
        return Result(record)


@errors_in_python_words
def finetune(folder: StrPath, **options: Unpack[FinetuneOptions]) -> FinetunedRun:
    """Fine-tune a classifier or a detector on a folder of photographs, as `vernier finetune` does.

    Network, image size, schedule, freezing and batch are chosen from the images and the machine, and printed with the
    reasons. Returns the run, with `held_out` and `test` (results) and `model_file`, the exported model. The other
    arguments are the flags of `vernier finetune` in snake case, `settings` and `quiet`, as in `train`.

    The same call resumes a training that was interrupted. Ctrl-C saves and raises Interrupted. Raises ConfigError
    for what cannot be trained, and RunFailed where the training fails or the starting weights cannot be fetched.
    """
    check_names("finetune", options, FinetuneOptions.__annotations__)
    quiet, settings = options.pop("quiet", False), assignments(options.pop("settings", None))
    flags = cast(FinetuneFlags, given_flags(options))
    limit_spinning()
    with time_counted_from_now():
        return _finetune(str(to_path(folder, "finetune()")), flags, settings, quiet=quiet)


finetune.__signature__ = signature_with(  # type: ignore[attr-defined]
    Parameter("folder", Parameter.POSITIONAL_OR_KEYWORD), FinetuneOptions, FinetunedRun
)


def _finetune(folder: str, flags: FinetuneFlags, settings: tuple[str, ...], *, quiet: bool) -> FinetunedRun:
    from .progress import SessionConsole

    with unchanged_torch():
        request = build_finetuning(folder, flags, settings, quiet=quiet)
        config, to_start = count_processes(request.training.config)
        request = request.with_config(config)
        check_finetuning(request)
        if to_start:
            words = command_words("finetune", folder, flags, settings)
            return FinetunedRun(run_in_processes(to_start, words, quiet=quiet).path)
        run = finished_before(request.training)
        if run is None:
            console = SessionConsole(quiet=quiet)
            for line in [] if quiet else opening_lines(request):
                console.say(line)
            trained = train_here(request.training, quiet=quiet)
            if trained.status != "finished":
                return FinetunedRun(trained.path)
            run = RunDir.open(trained.path)
        with SessionConsole(quiet=quiet) as observer:
            finish_run(request.plan, run, [observer])
    return FinetunedRun(run.path)
