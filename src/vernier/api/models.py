"""Trained models as objects, models as modules of PyTorch, and evaluating, predicting and exporting.

Each is one function of its request, for the command line and for Python; in Python a loaded model can be used instead
of a path. Loading, evaluation, prediction and export themselves are `engine.inference`'s.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from vernier import recipes
from vernier.config import MACHINE_FILE, Changed, Config, refuse_training_settings
from vernier.data.preparing.pretrained import is_pretrained
from vernier.data.sources.passed_images import is_one, open_image, open_images
from vernier.engine.processes.launch import Topology, topology
from vernier.engine.runtimes.requirements import check_engine
from vernier.errors import EXIT_DONE, EXIT_USAGE, ConfigError, Refusal, RunFailed
from vernier.frozen import frozen
from vernier.records.codec import decode
from vernier.records.predictions import ImagePrediction, ScoredClass
from vernier.records.run import EvaluationReport, ExportCheck
from vernier.references import command, given, plain, use
from vernier.requests import models as requests
from vernier.requests.common import Assigned, Settings
from vernier.requests.declaring import Request, options_of
from vernier.requests.values import StrPath
from vernier.store import parse_json

from .crossing import run_in_processes
from .functions import bind, described, function
from .runs import Result
from .session import Session
from .starting import change, count_processes, fetch_weights, joined, load_torch, machine_file, unchanged_torch
from .wording import PythonWords, in_python_words, python_errors

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch import device as TorchDevice

    from vernier.data.sources.passed_images import ImageLike, Pixels
    from vernier.engine.inference.trained import ModelChoice, Trained
    from vernier.report.live.console import ConsoleObserver
    from vernier.report.live.trackers import EvaluationBoard
    from vernier.report.predictions import PredictionWriter

T = TypeVar("T")
R = TypeVar("R", bound=requests.Evaluate | requests.Predict | requests.Export)
PIXELS = "pixels"
"""Stands for an image that has no path, in a request."""


class Prediction(Sequence[ScoredClass]):
    """What a model says about one image: classes with scores, best first; with boxes if it finds objects.

    `image` is the path, or the number of an image that came as pixels; `error` says why an image could not be read.
    """

    def __init__(self, record: ImagePrediction, min_score: float = 0.0) -> None:
        self.image, self.error = record.image, record.error
        self._scored = tuple(p for p in record.predictions if p.box is None or p.score >= min_score)

    @property
    def label(self) -> str | None:
        """The most likely class, or that of the most certain object; None if there is none."""
        return self._scored[0].class_name if self._scored else None

    @property
    def score(self) -> float | None:
        """The score of `label`, from 0 to 1."""
        return self._scored[0].score if self._scored else None

    @overload
    def __getitem__(self, index: int) -> ScoredClass: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ScoredClass]: ...

    def __getitem__(self, index: int | slice) -> ScoredClass | Sequence[ScoredClass]:
        return self._scored[index]

    def __len__(self) -> int:
        return len(self._scored)

    def __repr__(self) -> str:
        if self.error:
            return f"Prediction({self.image}: cannot be read: {self.error})"
        best = ", ".join(f"{p.class_name} {100 * p.score:.1f} %" for p in self._scored[:3]) or "no objects"
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

        The image is a path, a Pillow image, or an array [height, width, 3] of uint8. An ONNX or torch.export file
        normalizes pixels itself: for such a model the tensor is uint8. Raises RunFailed for an unreadable image.
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

    def evaluate(self, data: StrPath | None = None, **options: Any) -> Result[EvaluationReport]:
        """Evaluate on a data set or folder, with the options of `vernier.evaluate`. Default: the run's own data."""
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
        return f"Model({trained.config.recipe.model.name}, {len(self.classes):,} classes, from {trained.origin})"


# ------------------------------------------------------------------------------------------------------------- loading


def _changed(request: Assigned, config: Config, more: dict[str, object] | None = None) -> Changed:
    if isinstance(request, Settings):
        return change(config, request, "infer", more)
    return recipes.change(config, {**request.changes(), **(more or {})}, request.settings)


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
    """Settings of the machine as far as the request gives them. Refuses, without PyTorch, what they cannot do."""
    refuse_training_settings(request.settings)
    changes = {name: value for name, value in request.changes().items() if name.startswith("machine.")}
    of_machine = [each for each in request.settings if each.startswith("machine.")]
    file = machine_file(request.machine, "infer")
    config = recipes.change(Config(), {MACHINE_FILE: file, **changes}, of_machine).config
    check_engine(config.machine)
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
        choice = _choose(request, session, lambda config: _changed(request, config).config)
        return Model(_load(request, session, choice), choice)


# ---------------------------------------------------------------------------------------------------------- evaluation


def evaluation_processes(request: requests.Evaluate, session: Session) -> tuple[Config, int]:
    """Refuse what can be refused before PyTorch is imported; the settings of the machine, and how many processes must
    be started here (0: none). Raises ConfigError."""
    refuse_training_settings(request.settings)
    third_party = is_pretrained(request.source) or (
        request.model is not None and Path(request.source).suffix in (".pth", ".pt", ".th")
    )
    has_data = request.data is not None or any(each.startswith("data.source=") for each in request.settings)
    if third_party and not has_data:
        raise ConfigError(_WHICH_IMAGES)
    if topology().world == 1:  # of several, the others would wait for a process that never joins
        _path_of("source", request.source, session)
        if request.data is not None:
            from vernier.data.sources.opening import check_source

            check_source(request.data, detector=request.data == "coco")
    return count_processes(_check_machine(request))


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

    def changed(config: Config) -> Config:
        return _changed(request, config, {"machine.procs": procs}).config

    if model is not None:
        trained = model._trained
        yield replace(trained, config=changed_but_for_the_model(trained.config, changed))
        return
    choice = _choose(request, session, changed, split=request.split)
    for step in checkpoint_steps(choice.path) if request.which == "all" else [request.which]:
        yield _load(request, session, replace(choice, which=step))


def _open_board(request: requests.Evaluate, first_step: int, console: "ConsoleObserver") -> "EvaluationBoard | None":
    """TensorBoard's files of a run of which every checkpoint is evaluated, if the package is installed."""
    from vernier.report.live.trackers import EvaluationBoard, installed
    from vernier.store import RunDir

    if request.which != "all" or not request.tensorboard or not installed("tensorboard"):
        return None
    return EvaluationBoard(RunDir.open(Path(request.source)), first_step, console.warn)


def _evaluate(request: requests.Evaluate, session: Session, model: Model | None) -> Result[EvaluationReport]:
    if request.which == "all":
        raise ConfigError(
            f"{given('which', 'all')} is for {command('eval', request.source, which='all')}. Give one step."
        )
    if model is not None:
        _refuse_loading(request, "procs")
        refuse_training_settings(request.settings)
        if request.data is not None:
            from vernier.data.sources.opening import check_source

            check_source(request.data, detector=request.data == "coco")
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
            choice = _choose(request, session, lambda config: _changed(request, config).config, names_from_data=True)
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
    from vernier.engine.inference.export import check_export, on_cpu
    from vernier.engine.inference.export import export as write
    from vernier.engine.inference.trained import load_model

    with unchanged_torch():
        before = None if model is None else model._choice.changed

        def changed(config: Config) -> Config:
            if model is not None:
                return on_cpu(config if before is None else before(config))
            return on_cpu(_changed(request, config).config)

        if model is not None:
            choice = replace(model._choice, changed=changed)
        else:
            choice = _choose(request, session, changed, names_from_data=True)
        target = None if request.out is None else Path(request.out)
        names_only = request.data is not None and model is None and _is_third_party(choice.path)
        checked_on = None if names_only and request.format in ("safetensors", "torchvision") else request.data
        check_export(request.format, target, data=checked_on, normalized_input=request.normalized_input)
        trained = load_model(choice)
        written = write(trained, request.format, target, data=checked_on, normalized_input=request.normalized_input)
        card = None
        if request.card:
            from vernier.report.model_card import write_card

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
    return Export(path=written.path, format=request.format, card=card, check=written.check, notes=notes)


# ------------------------------------------------------------------------------------------------------ new models


def _create_model(request: requests.CreateModel, session: Session) -> "nn.Module":
    from vernier.models import info

    info(request.name)
    refuse_training_settings(request.settings)
    path = None if request.weights is None else _path_of("weights", request.weights, session)
    load_torch()
    from vernier.engine.inference.network import create_network

    module, _ = create_network(
        request.name,
        path,
        classes=request.num_classes,
        channels=request.in_channels,
        changed=lambda config: _changed(request, config).config,
    )
    return module


# ----------------------------------------------------------------------------------------------------------- functions


def _named(images: Any) -> Any:
    """The images with a text instead of each that came as pixels, as a request takes them."""
    if not isinstance(images, str | os.PathLike) and isinstance(images, Sequence):
        return [image if isinstance(image, str | os.PathLike) else PIXELS for image in images]
    return images if isinstance(images, str | os.PathLike) else PIXELS


def _function(cls: type[R], perform: Callable[..., T], name: str, returns: str) -> Callable[..., T]:
    """As `function`, for one that takes a loaded model instead of a path, and images in any form.

    `perform` gets the request, the session, and the model or None; that of `predict` the images, too.
    """

    def call(*arguments: Any, **keywords: Any) -> T:
        __tracebackhide__ = True  # of notebooks and pytest
        words = PythonWords(cls)
        objects = {**dict(zip(("source", "images"), arguments, strict=False)), **keywords}
        live: list[Any] = [objects["source"] if isinstance(objects.get("source"), Model) else None]
        if cls is requests.Predict and "images" in objects:
            live.append(objects["images"])
            arguments = (*arguments[:1], *map(_named, arguments[1:2]), *arguments[2:])
            keywords |= {"images": _named(keywords["images"])} if "images" in keywords else {}
        try:
            request = words.request = bind(cls, name, arguments, keywords)
            return perform(request, Session(words, quiet=request.quiet), *live)
        except Refusal as error:
            raise in_python_words(error, words) from None

    return described(call, cls, name, returns, __name__)


load = function(requests.Load, _load_model, "load")
create_model = function(requests.CreateModel, _create_model, "create_model")
evaluate = _function(requests.Evaluate, _evaluate, "evaluate", "Result[EvaluationReport]")
export = _function(requests.Export, export_request, "export", "Export")

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
    predict = _function(requests.Predict, _predict, "predict", "Prediction | list[Prediction]")
