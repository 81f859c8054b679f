"""Trained models as objects, networks as modules of PyTorch, and evaluating, predicting and exporting.

Loading, evaluation, prediction and export themselves are `engine.inference`'s.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from vernier import recipes
from vernier.config import MACHINE_FILE, Config, refuse_training_settings
from vernier.config.settings import Engine
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.records.predictions import ImagePrediction, ScoredClass
from vernier.records.run import EvaluationReport, ExportCheck

from .options import Settings, StrPath, assignments, plain, to_path, usual_value
from .runs import Result
from .starting import limit_spinning, machine_file, unchanged_torch
from .words import errors_in_python_words

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL.Image import Image as PillowImage
    from torch import Tensor, nn
    from torch import device as TorchDevice
    from typing_extensions import TypeIs

    from vernier.engine.inference.trained import ModelChoice, Trained

    Pixels = npt.NDArray[np.uint8]
    ImageLike = str | os.PathLike[str] | PillowImage | Pixels

Format = Literal["safetensors", "torchvision", "onnx", "torch-export"]
MIN_SCORE = 0.3


class Prediction(Sequence[ScoredClass]):
    """What a model says about one image: classes with scores, best first; with boxes where it finds objects.

    `image` is the path, or the number of an image that came as pixels; `error` says why an image could not be read.
    """

    def __init__(self, record: ImagePrediction, min_score: float = 0.0) -> None:
        self.image, self.error = record.image, record.error
        self._scored = tuple(p for p in record.predictions if p.box is None or p.score >= min_score)

    @property
    def label(self) -> str | None:
        """The most likely class, or that of the most certain object; None where there is none."""
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
    """A file that was written: where, its model card, and how the network was compared with PyTorch's."""

    path: Path
    card: Path | None = None
    check: ExportCheck | None = None

    def __fspath__(self) -> str:
        return os.fspath(self.path)


class Model:
    """A trained model, ready to be used. `load` makes one.

    `classes` are the names of its outputs in order, `prepared` says how images are prepared for it, and `notes` what
    else is worth knowing about its weights.
    """

    def __init__(self, trained: "Trained", choice: "ModelChoice") -> None:
        self._trained, self._choice = trained, choice
        self._in_engine: Trained | None = None
        trained.model.eval()
        self.classes, self.prepared, self.notes = trained.classes, trained.prepared, trained.notes

    @property
    def torch(self) -> "nn.Module":
        """The network in evaluation mode, on `device`. It takes a batch of what `transform` returns.

        A classifier returns a score (logit) per class; a detector the offsets and logits of its default boxes.
        """
        return self._trained.model

    @property
    def device(self) -> "TorchDevice":
        """Where the network is."""
        from vernier.engine.build import local_torch_device

        return local_torch_device(self._trained.device)

    @property
    def config(self) -> Config:
        """The settings it was trained or published with."""
        return self._trained.config

    @errors_in_python_words
    def transform(self, image: "ImageLike") -> "Tensor":
        """One image exactly as evaluation prepares it: a float tensor [channels, height, width] on the CPU.

        The image is a path, a Pillow image, or an array [height, width, 3] of uint8. An ONNX or torch.export file
        normalises pixels itself: for such a model the tensor is uint8. Raises RunFailed for an unreadable image.
        """
        from vernier.engine.inference.predict import prepare_image

        return prepare_image(self._trained, _opened(image))

    @overload
    def predict(  # type: ignore[overload-overlap]  # a text is a path, though it is a sequence too
        self, images: "ImageLike", *, min_score: float = MIN_SCORE
    ) -> Prediction: ...

    @overload
    def predict(self, images: "Sequence[ImageLike]", *, min_score: float = MIN_SCORE) -> list[Prediction]: ...

    @errors_in_python_words
    def predict(
        self, images: "ImageLike | Sequence[ImageLike]", *, min_score: float = MIN_SCORE
    ) -> Prediction | list[Prediction]:
        """Predict one image, or a list of them: paths, folders (in a list), Pillow images, arrays of uint8.

        `min_score` leaves out objects of a detector that score lower; 0 keeps all. Of a list, images that cannot be
        read have an `error`; a single one raises RunFailed.
        """
        from vernier.engine.inference.predict import predict as run

        if not _is_one(images):
            several = _opened_all(images)
            answers = run(self._with_engine(several), several)
            return [Prediction(record, min_score) for record, _, _ in answers]
        one = [_opened(images)]
        (record,) = (record for record, _, _ in run(self._with_engine(one), one))
        if record.error:
            raise RunFailed(f"{record.image} cannot be read: {record.error}.")
        return Prediction(record, min_score)

    def _with_engine(self, images: "Sequence[Path | Pixels]") -> "Trained":
        """The model as its engine runs it, which is opened and checked with the first images that are predicted."""
        from vernier.engine.inference.predict import with_engine_for

        if self._in_engine is None:
            with unchanged_torch():
                self._in_engine = with_engine_for(self._trained, images)
            self.notes = self._in_engine.notes
        return self._in_engine

    @errors_in_python_words
    def evaluate(
        self,
        data: StrPath | None = None,
        *,
        split: Literal["val", "test", "train"] | None = None,
        classes_by_number: bool = False,
        max_eval_steps: int | None = None,
        settings: Settings | None = None,
        out: StrPath | None = None,
        quiet: bool = False,
    ) -> Result[EvaluationReport]:
        """Evaluate on a data set or folder, as `vernier eval` does: every image once. Default: the run's own data.

        `settings` are those of data, evaluation and machine, such as `{"eval.flip_tta": True}`; `out` is a folder for
        the predictions. `result.record` says how it was computed. Raises ConfigError.
        """
        from vernier.data.sources.opening import check_source
        from vernier.engine.inference.evaluate import evaluate_trained

        from .progress import SessionConsole

        with unchanged_torch():
            name, chosen = None if data is None else plain(data), assignments(settings)
            refuse_training_settings(chosen)
            config = recipes.change(self._trained.config, {"data.source": name}, chosen).config
            if config.recipe.model != self._trained.config.recipe.model:
                raise ConfigError("A trained model cannot be changed by --set model.*; data, eval and machine can.")
            if not config.recipe.data.source:
                raise ConfigError("On which images? Weights of others have no data of their own: give --data PATH.")
            if name is not None:
                check_source(name, detector=name == "coco")
            with SessionConsole(quiet=quiet) as console:
                report = evaluate_trained(
                    replace(self._trained, config=config),
                    data=name,
                    max_eval_steps=max_eval_steps,
                    observers=[console],
                    split=split,
                    out=None if out is None else to_path(out, "evaluate(out=...)"),
                    classes_by_number=classes_by_number,
                )
            return Result(report)

    def __repr__(self) -> str:
        trained = self._trained
        return f"Model({trained.config.recipe.model.name}, {len(self.classes):,} classes, from {trained.origin})"


# ------------------------------------------------------------------------------------------------------------- loading


@errors_in_python_words
def load(
    source: StrPath,
    *,
    model: str | None = None,
    classes: StrPath | Sequence[str] | None = None,
    which: str | int = "latest",
    ema: bool | None = None,
    device: str | None = None,
    engine: Engine | None = None,
    int8: bool = False,
    machine: StrPath | None = None,
    settings: Settings | None = None,
) -> Model:
    """Load a trained model: a run, a checkpoint, a file that `export` wrote, or anybody's weights.

    Published weights have names, such as `torchvision:resnet50-v2`, and are fetched once. `which` chooses the
    checkpoint of a run (`latest`, `best` or a step) and `ema` averaged or raw weights. For weights of others `model`
    names the network (`vernier models` lists them) and `classes` the names of its outputs, or a text file with one per
    line. `engine` runs it for `predict` and `evaluate`: `onnxruntime`, `openvino`, or `auto`, the fastest; `int8` in
    INT8. `machine` is a file that `tune` wrote for inference. `settings` are those of data, evaluation and machine.
    Raises ConfigError for what does not fit, and RunFailed for weights that are not numbers and for an engine that does
    not compute what PyTorch does.
    """
    with unchanged_torch():
        changed = _change(device, settings, engine, int8=int8, machine=machine)
        choice = _choose(source, model, classes, which, ema, changed)
        return Model(_load(choice), choice)


def _choose(
    source: StrPath,
    model: str | None,
    classes: StrPath | Sequence[str] | None,
    which: str | int,
    ema: bool | None,
    changed: Callable[[Config], Config],
) -> "ModelChoice":
    from vernier.engine.inference.trained import ModelChoice, read_class_names
    from vernier.models import info

    path = _weights_path(source, "load()")
    if not path.exists():
        raise ConfigError(
            f"{source} does not exist. Give a run directory, a checkpoint, a model file, or published weights by name, "
            "such as torchvision:resnet50-v2."
        )
    if model is not None:
        info(model)
    names: tuple[str, ...] | None = None
    if isinstance(classes, str | os.PathLike):
        names = read_class_names(to_path(classes, "classes"))
    elif classes is not None:
        names = tuple(classes)
    return ModelChoice(path=path, model=model, which=str(which), averaged=ema, changed=changed, class_names=names)


def _weights_path(source: StrPath, what: str) -> Path:
    """A path, or that of published weights by name, which are fetched once."""
    from vernier.data.preparing.pretrained import fetch_pretrained, is_pretrained

    return fetch_pretrained(source) if isinstance(source, str) and is_pretrained(source) else to_path(source, what)


def _change(
    device: str | None,
    settings: Settings | None,
    engine: str | None = None,
    *,
    int8: bool = False,
    machine: StrPath | None = None,
) -> Callable[[Config], Config]:
    chosen, device, file = assignments(settings), usual_value("device", device), machine_file(machine, "infer")
    refuse_training_settings(chosen)
    flags = {MACHINE_FILE: file, "machine.device": device, "machine.engine": engine, "machine.int8": int8 or None}
    return lambda config: recipes.change(config, flags, chosen).config


def _load(choice: "ModelChoice") -> "Trained":
    from vernier.engine.inference.trained import load_model

    return load_model(choice)


# -------------------------------------------------------------------------------------------------------------- images


def _is_one(images: "ImageLike | Sequence[ImageLike]") -> "TypeIs[ImageLike]":
    """Whether this is one image: a path, or something with pixels."""
    return isinstance(images, str | os.PathLike) or hasattr(images, "__array_interface__") or hasattr(images, "shape")


def _opened_all(images: "Sequence[ImageLike]") -> "list[Path | Pixels]":
    from vernier.data.sources.files import find_images

    if not isinstance(images, Iterable):
        return [_opened(images)]
    opened: list[Path | Any] = []
    for image in images:
        if isinstance(image, str | os.PathLike):
            opened += find_images([to_path(image, "predict()")])
        else:
            opened.append(_opened(image))
    if not opened:
        raise ConfigError("Which images? The list is empty.")
    return opened


def _opened(image: "ImageLike") -> "Path | Pixels":
    """A file, or the RGB pixels of a Pillow image or an array. Raises ConfigError for anything else."""
    if isinstance(image, str | os.PathLike):
        path = to_path(image, "predict()")
        if path.is_dir():
            raise ConfigError(f"{path} is a folder: predict([{str(image)!r}]) takes all images in it.")
        if not path.is_file():
            raise ConfigError(f"{path} does not exist. Give an image file.")
        return path
    import numpy as np
    from PIL.Image import Image as PillowImage

    if isinstance(image, PillowImage):
        from vernier.data.decoding.decode import to_rgb

        return to_rgb(image)
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim not in (2, 3):
        raise ConfigError(f"An image is a path, a Pillow image or an array of uint8, not {_kind(image)}.")
    pixels = image[..., None] if image.ndim == 2 else image
    if pixels.shape[2] not in (1, 3):
        raise ConfigError(f"An array is [height, width, 3] in RGB or [height, width], not {_kind(image)}.")
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else np.ascontiguousarray(pixels)


def _kind(value: object) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return f"{type(value).__name__} of shape {tuple(shape)} and {dtype}" if shape is not None else repr(value)[:80]


# ----------------------------------------------------------------------------------------------------------- functions


def _model_of(
    source: "StrPath | Model", engine: Engine | None = None, *, int8: bool = False, machine: StrPath | None = None
) -> Model:
    if not isinstance(source, Model):
        return load(source, engine=engine, int8=int8, machine=machine)
    if engine is not None or int8 or machine is not None:
        raise ConfigError("The model is loaded already: give engine, int8 and machine to load().")
    return source


def evaluate(
    source: "StrPath | Model",
    data: StrPath | None = None,
    *,
    split: Literal["val", "test", "train"] | None = None,
    classes_by_number: bool = False,
    max_eval_steps: int | None = None,
    engine: Engine | None = None,
    int8: bool = False,
    machine: StrPath | None = None,
    settings: Settings | None = None,
    out: StrPath | None = None,
    quiet: bool = False,
) -> Result[EvaluationReport]:
    """Evaluate a run, a file or a loaded model: `load(source, engine=..., machine=...).evaluate(data, ...)`."""
    return _model_of(source, engine, int8=int8, machine=machine).evaluate(
        data,
        split=split,
        classes_by_number=classes_by_number,
        max_eval_steps=max_eval_steps,
        settings=settings,
        out=out,
        quiet=quiet,
    )


@overload
def predict(  # type: ignore[overload-overlap]  # as in Model
    source: "StrPath | Model",
    images: "ImageLike",
    *,
    min_score: float = MIN_SCORE,
    engine: Engine | None = None,
    int8: bool = False,
) -> Prediction: ...


@overload
def predict(
    source: "StrPath | Model",
    images: "Sequence[ImageLike]",
    *,
    min_score: float = MIN_SCORE,
    engine: Engine | None = None,
    int8: bool = False,
) -> list[Prediction]: ...


def predict(
    source: "StrPath | Model",
    images: "ImageLike | Sequence[ImageLike]",
    *,
    min_score: float = MIN_SCORE,
    engine: Engine | None = None,
    int8: bool = False,
) -> Prediction | list[Prediction]:
    """Predict images with a run, a file or a loaded model: `load(source, engine=..., int8=...).predict(images)`."""
    return _model_of(source, engine, int8=int8).predict(images, min_score=min_score)


@errors_in_python_words
def export(
    source: "StrPath | Model",
    out: StrPath | None = None,
    *,
    format: Format = "safetensors",
    which: str | int = "latest",
    ema: bool | None = None,
    data: StrPath | None = None,
    normalised_input: bool = False,
    card: bool = True,
) -> Export:
    """Write a model to one file for use elsewhere, with a model card beside it, as `vernier export` does.

    safetensors and torchvision hold weights; onnx and torch-export hold the network, which is run on images of `data`
    (default: the run's own) and compared with PyTorch before it gets its name. Nothing is overwritten. Default of
    `out`: named after the recipe, in the current folder. Raises ConfigError, and RunFailed where the outputs differ.
    """
    from vernier.engine.inference.export import check_flags, on_cpu

    with unchanged_torch():
        target, images = None if out is None else to_path(out, "export(out=...)"), None if data is None else plain(data)
        check_flags(format, target, data=images, normalised_input=normalised_input)
        if isinstance(source, Model):
            if which != "latest" or ema is not None:
                raise ConfigError("The model is loaded already: give which and ema to load().")
            chosen, change = source._choice, source._choice.changed
            choice = replace(chosen, changed=lambda config: on_cpu(change(config) if change else config))
        else:
            choice = _choose(source, None, None, which, ema, on_cpu)
        return export_choice(choice, _load(choice), format, target, images, normalised_input, card=card)


def export_choice(
    choice: "ModelChoice",
    trained: "Trained",
    format: Format,
    target: Path | None,
    data: str | None,
    normalised_input: bool,
    *,
    card: bool,
) -> Export:
    """Write a loaded model, and its card; `data` has the images that a network is checked on."""
    from vernier.engine.inference.export import export as write
    from vernier.report.model_card import write_card

    network = format in ("onnx", "torch-export")
    exported = write(trained, format, target, data=data if network else None, normalised_input=normalised_input)
    card_path = None
    if card:
        card_path = write_card(
            exported.path,
            exported.about,
            origin=choice.path,
            checkpoint=trained.checkpoint,
            prepared=trained.prepared,
            selected=choice.which == "best",
            check=exported.check,
        )
    return Export(path=exported.path, card=card_path, check=exported.check)


@errors_in_python_words
def create_model(
    name: str,
    *,
    weights: StrPath | None = None,
    num_classes: int | None = None,
    in_channels: int | None = None,
    settings: Settings | None = None,
) -> "nn.Module":
    """Create a network of the catalogue as a module of PyTorch, in training mode, with new weights or those of a file.

    `weights` is a safetensors or torch file of Vernier, torchvision, timm, NVIDIA or Habana, or the name of published
    ones, such as `torchvision:resnet50-v2`, which are fetched once. `num_classes` defaults to that of the weights, or
    of the published network; another number replaces the last layer by a new one and keeps the rest. A detector has one
    more output, for the background. `settings` are those of the network, such as `{"model.width": 32}`. Initial weights
    are drawn from torch's generator. Raises ConfigError.
    """
    from vernier.models import info

    info(name)
    for what, number in (("num_classes", num_classes), ("in_channels", in_channels)):
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
            raise ConfigError(f"{what}={number!r} must be a whole number of at least 1.")
    limit_spinning()
    from vernier.engine.inference.network import create_network

    network, _ = create_network(
        name,
        None if weights is None else _weights_path(weights, "create_model(weights=...)"),
        classes=num_classes,
        channels=in_channels,
        changed=_change(None, settings),
    )
    return network
