"""Trained models as objects, models as modules of PyTorch, and evaluating, predicting and exporting.

Each is one function of its request, for the command line and for Python; in Python a loaded model can be used instead
of a path. Loading, evaluation, prediction and export themselves are `engine.inference`'s.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from vernier import recipes
from vernier.config import MACHINE_FILE, Config, refuse_training_settings
from vernier.data.downloads import is_pretrained
from vernier.data.sources.files import is_one, open_image, open_images
from vernier.engine.inference.engines import find_engine
from vernier.engine.processes.launch import Topology, topology
from vernier.errors import EXIT_DONE, EXIT_USAGE, ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.plugins import only_plugin
from vernier.records.codec import decode
from vernier.records.predictions import ImagePrediction, ScoredClass
from vernier.records.run import EvaluationReport, ExportCheck
from vernier.references import command, given, plain, use
from vernier.requests import models as requests
from vernier.requests.common import Assigned, Settings
from vernier.requests.declaring import Request, options_of
from vernier.requests.values import StrPath
from vernier.store import parse_json
from vernier.wording import plural

from .crossing import run_in_processes
from .functions import function
from .runs import Result
from .session import Session
from .starting import change, count_processes, fetch_weights, joined, load_torch, machine_file, unchanged_torch
from .wording import python_errors

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch import device as TorchDevice

    from vernier.data.sources.files import ImageLike, Pixels
    from vernier.engine.inference.trained import ModelChoice, Trained
    from vernier.report.live.console import ConsoleObserver
    from vernier.report.predictions import PredictionWriter

PIXELS = "pixels"
"""Stands for an image that has no path, in a request."""


class Prediction(list[ScoredClass]):
    """Prediction of a model for one image: classes with scores, best first; with boxes if it finds objects.

    `image` is the path, or the number of an image that came as pixels; `error` is the reason if it could not be read.
    """

    def __init__(self, record: ImagePrediction, min_score: float = 0.0) -> None:
        super().__init__(p for p in record.predictions if p.box is None or p.score >= min_score)
        self.image, self.error = record.image, record.error

    @property
    def label(self) -> str | None:
        """The most likely class, or that of the most certain object; None if there is none."""
        return self[0].class_name if self else None

    @property
    def score(self) -> float | None:
        """The score of `label`, from 0 to 1."""
        return self[0].score if self else None

    def __repr__(self) -> str:
        if self.error:
            return f"Prediction({self.image}: cannot be read: {self.error})"
        best = ", ".join(f"{p.class_name} {100 * p.score:.1f} %" for p in self[:3]) or "no objects"
        more = f" and {len(self) - 3} more" if len(self) > 3 else ""
        return f"Prediction({self.image}: {best}{more})"


@frozen
class Export:
    """A file that was written: where, its model card, and how the exported model was compared with PyTorch's."""

    path: Path
    format: str
    card: Path | None = None
    check: ExportCheck | None = None
    notes: tuple[str, ...] = ()

    def __fspath__(self) -> str:
        return os.fspath(self.path)


class Model:
    """A trained model, ready to be used. `load` makes one.

    `classes` are the names of its outputs in order, `prepared` describes how images are prepared for it, and `notes`
    has what else is worth knowing about its weights.
    """

    def __init__(self, trained: "Trained", choice: "ModelChoice") -> None:
        self._trained, self._choice = trained, choice
        self._in_engine: Trained | None = None
        # `torch` promises evaluation mode, also to a caller who never predicts.
        trained.model.eval()
        self.classes, self.prepared, self.notes = trained.classes, trained.prepared, trained.notes

    def __fspath__(self) -> str:
        return os.fspath(self._choice.path)

    @property
    def torch(self) -> "nn.Module":
        """The module in evaluation mode, on `device`. It takes a batch of what `transform` returns.

        A classifier returns a score (logit) per class; a detector the offsets and logits of its default boxes.
        """
        return self._trained.model

    @property
    def device(self) -> "TorchDevice":
        """Where the model is."""
        from vernier.engine.build import local_torch_device

        return local_torch_device(self._trained.device)

    @property
    def config(self) -> Config:
        """The settings it was trained or published with."""
        return self._trained.config

    @python_errors
    def transform(self, image: "ImageLike") -> "Tensor":
        """One image exactly as evaluation prepares it: a float tensor [channels, height, width] on the CPU.

        The image is a path, a Pillow image, or an array [height, width, 3] of uint8. An ONNX file normalizes
        pixels itself: for such a model the tensor is uint8. Raises RunFailed for an unreadable image.
        """
        from vernier.engine.inference.predict import prepare_image

        return prepare_image(self._trained, open_image(image))

    @overload
    def predict(self, images: "ImageLike", **options: Any) -> Prediction: ...

    @overload
    def predict(self, images: "Sequence[ImageLike]", **options: Any) -> list[Prediction]: ...

    def predict(self, images: Any, **options: Any) -> Prediction | list[Prediction]:
        """Predict one image, or a list of them, with the options of `vernier.predict`, such as `min_score`."""
        predictions: Prediction | list[Prediction] = predict(self, images, **options)
        return predictions

    def evaluate(self, data: Any = None, **options: Any) -> Result[EvaluationReport]:
        """Evaluate on a data set, a folder or an object with samples, with the options of `vernier.evaluate`.

        Default: the run's own data.
        """
        return evaluate(self, data, **options)

    def in_engine(self, images: "Sequence[Path | Pixels]") -> "Trained":
        """The model as its engine runs it, which is opened and checked with the first images that are predicted."""
        from vernier.engine.inference.predict import with_engine_for

        if self._in_engine is None:
            with unchanged_torch():
                self._in_engine = with_engine_for(self._trained, images)
            self.notes = tuple(map(plain, self._in_engine.notes))
        return self._in_engine

    def __repr__(self) -> str:
        trained = self._trained
        return f"Model({trained.config.recipe.model.name}, {plural(len(self.classes), 'class')}, from {trained.origin})"


# ------------------------------------------------------------------------------------------------------------- loading


def _changes(request: Assigned, more: dict[str, object] | None = None) -> Callable[[Config], Config]:
    """A function that applies the settings of a request to the configuration of a model."""
    if isinstance(request, Settings):
        return lambda config: change(config, request, "infer", more).config
    values = {**request.changes(), **(more or {})}
    return lambda config: recipes.change(config, values, request.settings).config


def _path_of(name: str, source: str, session: Session) -> Path:
    """Where a model is; published weights are downloaded once. Raises ConfigError for what does not exist."""
    if is_pretrained(source):
        return fetch_weights(source, session)
    if not Path(source).exists():
        raise ConfigError(
            f"{given(name, source)} does not exist. Give a run directory, a checkpoint, an exported file, a weights "
            "file (.safetensors, .pth, .pt or .th), or published weights by name, such as torchvision:resnet50-v2."
        )
    return Path(source)


def _choose(
    request: requests.ChosenModel,
    session: Session,
    change_config: Callable[[Config], Config],
    *,
    names_from_data: bool = False,
    split: str | None = None,
) -> "ModelChoice":
    """The model that a request names. Raises ConfigError; loads nothing."""
    path = _path_of("source", request.source, session)
    if request.model is not None:
        from vernier.models import info

        info(request.model)
    from vernier.engine.inference.trained import ModelChoice

    return ModelChoice(
        path=path,
        model=request.model,
        which=request.which,
        averaged=request.ema,
        changed=change_config,
        class_names=_class_names(request.classes),
        names_from_data=names_from_data,
        split=split,
    )


def _class_names(classes: tuple[str, ...]) -> tuple[str, ...] | None:
    """Names as they are given, or those of a text file; None if there are none."""
    from vernier.engine.inference.trained import read_class_names

    file = Path(*classes[:1])
    # A single name with a dot or a slash is meant as a file: if it does not exist, the error names it.
    is_file = len(classes) == 1 and (file.exists() or file.suffix or file.name != classes[0])
    return read_class_names(file) if is_file else classes or None


def _load(request: requests.UsedModel, session: Session, choice: "ModelChoice") -> "Trained":
    """The chosen model with its notes, also those about the machine file, worded."""
    from vernier.engine.inference.trained import load_model

    trained = load_model(choice)
    notes = change(trained.config, request, "infer").notes if request.machine is not None else ()
    worded = tuple(map(session.word, (*trained.notes, *notes)))
    return replace(trained, prepared=session.word(trained.prepared), notes=worded)


def _check_machine(request: requests.UsedModel) -> Config:
    """The settings of the machine in a request, checked before PyTorch is imported. Raises ConfigError."""
    refuse_training_settings(request.settings)
    changes = {name: value for name, value in request.changes().items() if name.startswith("machine.")}
    # Settings of the recipe are changes of the model's own, which is not loaded yet.
    of_machine = [each for each in request.settings if each.startswith("machine.")]
    file = machine_file(request.machine, "infer")
    config = recipes.change(Config(), {MACHINE_FILE: file, **changes}, of_machine).config
    find_engine(config.machine)
    return config


def _is_third_party(path: Path) -> bool:
    """Whether these are weights of another program, which contain neither data nor preparation."""
    from vernier.engine.inference.model_file import read_description

    return path.is_file() and read_description(path) is None


def _refuse_loading(request: Request, *more: str) -> None:
    """Refuse options that a loaded model cannot take any more. Raises ConfigError."""
    names = [each.name for each in options_of(requests.Load) if each.name not in ("source", "settings")]
    if name := next((name for name in (*names, *more) if request.gives(name)), None):
        raise ConfigError(f"The model is loaded already: give {given(name)} to load().")


def _load_model(request: requests.Load, session: Session) -> Model:
    refuse_training_settings(request.settings)
    with unchanged_torch():
        choice = _choose(request, session, _changes(request))
        return Model(_load(request, session, choice), choice)


# ---------------------------------------------------------------------------------------------------------- evaluation


def evaluation_processes(request: requests.Evaluate, session: Session) -> tuple[Config, int]:
    """Refuse what can be refused before PyTorch is imported; the settings of the machine, and how many processes must
    be started here (0: none). Raises ConfigError."""
    refuse_training_settings(request.settings)
    # A safetensors file may describe itself; that is found out when it is read.
    third_party = is_pretrained(request.source) or (
        request.model is not None and Path(request.source).suffix in (".pth", ".pt", ".th")
    )
    has_data = request.data is not None or any(each.startswith("data.source=") for each in request.settings)
    if third_party and not has_data:
        raise ConfigError(_WHICH_IMAGES)
    if topology().world == 1:  # of several, the others would wait for a process that never joins
        _path_of("source", request.source, session)
        _check_data(request.data)
    return count_processes(_check_machine(request))


def _check_data(data: str | None) -> None:
    from vernier.data.sources.opening import check_source

    if data is not None:
        check_source(data, detector=data == "coco")


_WHICH_IMAGES = f"Which images? Third-party weights have no data of their own: give {use('data.source', slot='PATH')}."


def evaluate_request(
    request: requests.Evaluate, session: Session, model: Model | None = None
) -> Iterator[EvaluationReport]:
    """Evaluate in this process and the others of the run; the first one gets the report of each checkpoint.

    A loaded `model` is used instead of the request's. Raises ConfigError and RunFailed.
    """
    config = Config() if model is not None else evaluation_processes(request, session)[0]
    load_torch(quiet=session.quiet)
    from vernier.engine.inference.evaluate import evaluate_trained
    from vernier.engine.processes.world import World

    joining = joined(config, quiet=session.quiet) if model is None else nullcontext(World(Topology()))
    with unchanged_torch(), joining as world, session.observer_of(world) as console:
        every, board = request.which == "all", None
        for number, trained in enumerate(_evaluated(request, session, model, config.machine.procs)):
            if not trained.config.recipe.data.source:
                raise ConfigError(_WHICH_IMAGES)
            if number == 0 and console is not None:
                board = _open_board(request, trained.step or 0, console)
            report = evaluate_trained(
                trained,
                max_eval_steps=request.max_eval_steps,
                observers=[console] if console else [],
                split=request.split,
                out=None if request.out is None else Path(request.out) / (f"step-{trained.step}" if every else ""),
                world=world,
                classes_by_number=request.classes_by_number,
            )
            if board is not None:
                board.add(report)
            if world.first:
                yield replace(report, notes=tuple(map(session.word, report.notes)))
        if board is not None and (folder := board.close()) and console is not None and not request.json:
            console.say(f"metrics of every checkpoint: tensorboard --logdir {folder.parent.parent}")


def _evaluated(request: requests.Evaluate, session: Session, model: Model | None, procs: int) -> "Iterator[Trained]":
    """The model with the settings to evaluate it with, or that of every checkpoint in order."""
    from vernier.engine.inference.trained import changed_but_for_the_model, checkpoint_steps

    changed = _changes(request, {"machine.procs": procs})
    if model is not None:
        trained = model._trained
        yield replace(trained, config=changed_but_for_the_model(trained.config, changed))
        return
    choice = _choose(request, session, changed, split=request.split)
    for step in checkpoint_steps(choice.path) if request.which == "all" else [request.which]:
        yield _load(request, session, replace(choice, which=step))


def _open_board(request: requests.Evaluate, first_step: int, console: "ConsoleObserver") -> Any:
    """TensorBoard's files of a run of which every checkpoint is evaluated, if the package is installed."""
    from vernier.store import RunDir

    tracking = only_plugin("vernier.tracking")
    if request.which != "all" or not request.tensorboard or tracking is None:
        return None
    return tracking.open_board(RunDir.open(Path(request.source)), first_step, console.warn)


def _evaluate(request: requests.Evaluate, session: Session, model: Model | None) -> Result[EvaluationReport]:
    if request.which == "all":
        raise ConfigError(
            f"{given('which', 'all')} is for {command('eval', request.source, which='all')}. Give one step."
        )
    if model is not None:
        _refuse_loading(request, "procs")
        refuse_training_settings(request.settings)
        _check_data(request.data)
    elif to_start := evaluation_processes(request, session)[1]:
        ended = run_in_processes(request, session, to_start)
        if ended.code != EXIT_DONE:
            raise (ConfigError if ended.code == EXIT_USAGE else RunFailed)(ended.reason)
        return Result(decode(EvaluationReport, parse_json(ended.output)))
    (report,) = evaluate_request(request, session, model)
    return Result(report)


# ---------------------------------------------------------------------------------------------------------- prediction


def predict_request(
    request: requests.Predict,
    session: Session,
    model: Model | None = None,
    images: "Sequence[Path | Pixels] | None" = None,
) -> "PredictionWriter":
    """Predict the images of the request, or `images`, with its model or a loaded one. Raises ConfigError, RunFailed."""
    if model is None:
        _check_machine(request)
    if images is None:
        from vernier.data.sources.files import find_images

        images = find_images([Path(image) for image in request.images])
    load_torch(quiet=session.quiet)
    from vernier.engine.inference import predict as predicting
    from vernier.report.predictions import PredictionWriter

    if model is not None:
        trained = model.in_engine(images)
    else:
        with unchanged_torch():
            choice = _choose(request, session, _changes(request), names_from_data=True)
            if request.data is not None and not _is_third_party(choice.path):
                raise ConfigError(
                    f"{given('data', request.data)} contains the class names of third-party weights; "
                    f"{request.source} has its own. Omit {given('data')}."
                )
            trained = predicting.with_engine_for(_load(request, session, choice), images)
    writer = PredictionWriter(
        trained.classes,
        trained.origin,
        None if request.out is None else Path(request.out),
        request.min_score,
        prepared=trained.prepared,
        notes=tuple(map(session.word, trained.notes)),
    )
    with session.bar("predict") as progress:
        for prediction, done, total in predicting.predict(trained, images):
            writer.add(prediction)
            progress(done, total)
    writer.close()
    return writer


def _predict(
    request: requests.Predict, session: Session, model: Model | None, images: "ImageLike | Sequence[ImageLike]"
) -> Prediction | list[Prediction]:
    if model is not None:
        _refuse_loading(request, "settings", "workers", "data")
    opened, one = open_images(images), is_one(images)
    if request.out is not None and not all(isinstance(image, Path) for image in opened):
        raise ConfigError(f"{given('out', request.out)} is for image files: pictures are drawn on them.")
    # No bar for a single image.
    session.quiet = session.quiet or one
    records = predict_request(request, session, model, opened).document().images
    if one and records[0].error:
        raise RunFailed(f"{records[0].image} cannot be read: {records[0].error}.")
    predictions = [Prediction(record, request.min_score) for record in records]
    return predictions[0] if one else predictions


# -------------------------------------------------------------------------------------------------------------- export


def export_request(request: requests.Export, session: Session, model: Model | None = None) -> Export:
    """Write a model and its card; an exported model is checked on images. Raises ConfigError and RunFailed."""
    if model is not None:
        _refuse_loading(request, "settings")
    else:
        refuse_training_settings(request.settings)
        _path_of("source", request.source, session)
    load_torch(quiet=session.quiet)
    from vernier.engine.inference.export import check_export, choose_format, on_cpu
    from vernier.engine.inference.export import export as write
    from vernier.engine.inference.trained import load_model
    from vernier.report.model_card import write_card

    with unchanged_torch():
        if model is not None:
            choice = model._choice
        else:
            choice = _choose(request, session, _changes(request), names_from_data=True)
        change_config = choice.changed
        choice = replace(choice, changed=lambda config: on_cpu(change_config(config)))
        target = None if request.out is None else Path(request.out)
        form = choose_format(request.format, target)
        names_only = request.data is not None and model is None and _is_third_party(choice.path)
        checked_on = None if names_only and form in ("safetensors", "torchvision") else request.data
        # Killed between the file and its card, the same command completes both.
        again = target is not None and request.card and target.is_file() and not _is_listed(target)
        check_export(form, None if again else target, data=checked_on, normalized_input=request.normalized_input)
        trained = load_model(choice)
        written = write(trained, form, target, data=checked_on, normalized_input=request.normalized_input, again=again)
        card = None
        if request.card:
            card = write_card(
                written.path,
                written.about,
                origin=choice.path,
                checkpoint=trained.checkpoint,
                prepared=plain(trained.prepared),
                selected=choice.which == "best",
                check=written.check,
            )
    notes = tuple(map(session.word, trained.notes))
    return Export(path=written.path, format=form, card=card, check=written.check, notes=notes)


def _is_listed(file: Path) -> bool:
    """Whether a card lists an exported file; it is written last, so without it the export was interrupted."""
    from vernier.report.model_card import CARD

    cards = (file.parent / CARD, file.parent / f"{file.name}.{CARD}")
    return any(f"- `{file.name}` (" in card.read_text(errors="replace") for card in cards if card.is_file())


# ------------------------------------------------------------------------------------------------------ new models


def _create_model(request: requests.CreateModel, session: Session) -> "nn.Module":
    from vernier.models import info

    info(request.name)
    refuse_training_settings(request.settings)
    path = None if request.weights is None else _path_of("weights", request.weights, session)
    load_torch()
    from vernier.engine.inference.trained import create_network

    module, _ = create_network(
        request.name,
        path,
        classes=request.num_classes,
        channels=request.in_channels,
        changed=_changes(request),
    )
    return module


# ----------------------------------------------------------------------------------------------------------- functions


def _named(images: Any) -> Any:
    """The images with a text instead of each that came as pixels, as a request takes them."""
    if not isinstance(images, str | os.PathLike) and isinstance(images, Sequence):
        return [image if isinstance(image, str | os.PathLike) else PIXELS for image in images]
    return images if isinstance(images, str | os.PathLike) else PIXELS


def _take_model(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """The loaded model of a call, or None if its source is a path, which the request gets."""
    source = arguments[0] if arguments else keywords.get("source")
    return arguments, keywords, (source if isinstance(source, Model) else None,)


def _take_images(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """The loaded model of a call, and its images in any form."""
    _, _, (model,) = _take_model(arguments, keywords)
    if len(arguments) > 1:
        return (arguments[0], _named(arguments[1]), *arguments[2:]), keywords, (model, arguments[1])
    if "images" not in keywords:
        return arguments, keywords, (model,)
    return arguments, {**keywords, "images": _named(keywords["images"])}, (model, keywords["images"])


load = function(requests.Load, _load_model, "load")
create_model = function(requests.CreateModel, _create_model, "create_model")
evaluate = function(requests.Evaluate, _evaluate, "evaluate", "Result[EvaluationReport]", _take_model)
export = function(requests.Export, export_request, "export", "Export", _take_model)

if TYPE_CHECKING:

    @overload
    def predict(
        source: StrPath | Model, images: ImageLike, *, min_score: float = 0.3, **options: Any
    ) -> Prediction: ...

    @overload
    def predict(
        source: StrPath | Model, images: Sequence[ImageLike], *, min_score: float = 0.3, **options: Any
    ) -> list[Prediction]: ...

    def predict(source: Any, images: Any, **options: Any) -> Prediction | list[Prediction]: ...

else:
    predict = function(requests.Predict, _predict, "predict", "Prediction | list[Prediction]", _take_images)
