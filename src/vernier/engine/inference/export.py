"""Export of a trained model to a file: weights alone (safetensors, torchvision's names), or the network with its
weights (ONNX, torch.export), which is run on real images before it gets its final name.

A network file takes decoded pixels, uint8 from 0 to 255, and normalises them itself unless `normalized_input` is set.
Every file describes itself (`model_file`). The model card beside the file is `report.model_card`'s.
"""

import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from torch import nn

from vernier.config import Config, Eval, Recipe, to_dict
from vernier.config.migrations import SCHEMAS
from vernier.data.augment.normalize import Normalizer
from vernier.data.loading.loader import Reader
from vernier.data.sources.base import Indices
from vernier.devices.cpu import Cpu
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.models import entry_of, shown_name, weights
from vernier.records.events import StartEvent
from vernier.records.run import ExportCheck, ModelFile
from vernier.references import given, use
from vernier.store import replaced_atomically, run_of_checkpoint
from vernier.tasks import task_of
from vernier.version import describe_version
from vernier.wording import plural

from .evaluate import evaluating
from .model_file import (
    ABOUT,
    ONNX_PACKAGES,
    Outputs,
    Runner,
    as_tuple,
    open_onnx,
    open_torch_export,
    require_onnx,
    to_metadata,
)
from .preparation import NO_AUGMENTATION
from .trained import Trained

Format = Literal["safetensors", "torchvision", "onnx", "torch-export"]
SUFFIX: dict[Format, str] = {
    "safetensors": ".safetensors",
    "torchvision": ".pth",
    "onnx": ".onnx",
    "torch-export": ".pt2",
}
OUTPUTS = {"classify": ("logits",), "detect": ("offsets", "logits")}
"""The names of a network's outputs, by task."""
CHECK_IMAGES = 64
TOLERANCE = 1e-3
"""Largest difference between a runtime's output and PyTorch's, as a share of the largest output."""


@frozen
class Exported:
    """A file that was written, what it says about itself, and how it was checked (weights alone are not)."""

    path: Path
    about: ModelFile
    check: ExportCheck | None = None


def check_export(form: Format, out: Path | None, *, data: str | None, normalized_input: bool) -> None:
    """Raise ConfigError for what can be refused before any model is loaded."""
    if form in ("safetensors", "torchvision") and (data is not None or normalized_input):
        other = given("data.source", data) if data is not None else given("normalized_input", True)
        raise ConfigError(
            f"{given('format', form)} writes weights alone, and {other} is for whole models. Use "
            f"{use('format', 'onnx')} or {use('format', 'torch-export')}."
        )
    if form == "onnx":
        require_onnx(ONNX_PACKAGES, given("format", form))
    if out is not None:
        _require_free(out)


def export(
    trained: Trained, form: Format, out: Path | None, *, data: str | None = None, normalized_input: bool = False
) -> Exported:
    """Write a model in one of the formats; without `out`: to the current folder, named after the recipe.

    A network is checked on images of `data`, or of the run's own data. Nothing is overwritten. Raises RunFailed, and
    removes the file, when a network does not compute what PyTorch computes.
    """
    check_export(form, out, data=data, normalized_input=normalized_input)
    if trained.runtime:
        raise ConfigError(
            f"{trained.origin} is a model without separate weights, run by {trained.runtime}. Export the run or a "
            "safetensors file instead."
        )
    step = "" if trained.step is None else f"-step{trained.step}"
    target = out or Path(f"{trained.config.recipe.name}{step}{SUFFIX[form]}")
    _require_free(target)
    if form in ("safetensors", "torchvision"):
        about = describe_model(trained)
        _write_weights(trained, form, target, to_metadata(about))
        return Exported(path=target, about=about)
    network = ExportedNetwork(trained, normalized_input)
    images = _real_images(trained, data)
    about = replace(describe_model(trained), input=network.takes, pixels=not normalized_input)
    check = _write_network(network, images, form, target, to_metadata(about), data or trained.config.recipe.data.source)
    return Exported(path=target, about=about, check=check)


def on_cpu(config: Config) -> Config:
    """Exporters trace the plain network, wherever it was trained."""
    plain = replace(config.machine, device="cpu", precision="fp32", mode="eager", channels_last=False)
    return replace(config, machine=plain)


def describe_model(trained: Trained) -> ModelFile:
    """What a file with this model says about itself."""
    recipe, result = trained.config.recipe, trained.result
    data, figures = recipe.data, result.figures if result else {}
    settings = Config(
        recipe=Recipe(
            name=recipe.name,
            about=recipe.about,
            model=replace(
                recipe.model, weights="", backbone_weights="", freeze=(), freeze_statistics=False, reset_head=False
            ),
            data=replace(data, source=trained.own_data),
            augment=NO_AUGMENTATION,
            detect=recipe.detect,
            eval=Eval(flip_tta=recipe.eval.flip_tta),
        )
    )
    return ModelFile(
        model=recipe.model.name,
        network=shown_name(recipe.model),
        recipe=recipe.name,
        vernier=describe_version(),
        ran=trained.ran or _ran_line(trained.checkpoint),
        data_fingerprint=trained.own_fingerprint,
        settings={"schema": SCHEMAS["config"], **to_dict(settings)},
        classes=trained.classes,
        channels=trained.channels,
        mean=data.mean,
        std=data.std,
        eval_px=data.eval_px,
        eval_short_side_px=data.eval_short_side_px,
        interpolation=data.interpolation,
        step=trained.step,
        averaged=trained.averaged,
        result=result,
        result_step=trained.result_step,
        figures={name: figures[name] for name in ("top1", "AP") if name in figures},
    )


def _ran_line(checkpoint: Path | None) -> str:
    """What ran in the run of a checkpoint, in one line; empty where it was not recorded."""
    run = None if checkpoint is None else run_of_checkpoint(checkpoint)
    start = next((event for event in run.history() if isinstance(event, StartEvent)), None) if run else None
    return start.ran.line() if start and start.ran else ""


def _require_free(target: Path) -> None:
    if target.exists():
        raise ConfigError(f"{target} exists already. Choose another file with {use('out', slot='FILE')}, or remove it.")
    if not target.parent.is_dir():
        raise ConfigError(f"{given('out', target)}: the folder {target.parent} does not exist.")
    try:
        target.touch()  # fails now rather than after the work
        target.unlink()
    except OSError as error:
        raise ConfigError(
            f"Cannot write {target}: {error.strerror}. Choose another file with {use('out', slot='FILE')}."
        ) from None


def _unwritable(target: Path, error: Exception) -> RunFailed:
    return RunFailed(
        f"{target} could not be written: {error}. Choose another file with {use('out', slot='FILE')}, or free some "
        "space."
    )


# ------------------------------------------------------------------------------------------------------------- weights


def _write_weights(trained: Trained, form: Format, target: Path, metadata: dict[str, str]) -> None:
    tensors = trained.model.state_dict()
    if form == "torchvision":
        _require_torchvision(trained)
    try:
        if form == "torchvision":
            weights.save_torch(tensors, target, metadata)
        else:
            weights.save_safetensors(tensors, target, metadata)
    except (OSError, RuntimeError, SafetensorError) as error:  # the writers raise these when the disk is full
        raise _unwritable(target, error) from None


def _require_torchvision(trained: Trained) -> None:
    """Refuse what torchvision cannot build: weights would be wrong there, or not load."""
    spec = trained.config.recipe.model
    if difference := entry_of(spec.name)[1].why_not_torchvision(spec, trained.channels):
        raise ConfigError(
            f"torchvision cannot build {shown_name(spec)}: {difference}. Use {use('format', 'safetensors')}, onnx or "
            "torch-export."
        )


# ------------------------------------------------------------------------------------------------------------ networks


class ExportedNetwork(nn.Module):
    """A network as it is exported: normalisation in front unless its users do it, outputs of no class cut off."""

    def __init__(self, trained: Trained, normalized_input: bool) -> None:
        super().__init__()
        self.model = trained.model.eval()
        task = task_of(trained.config.recipe)
        self._classes = len(trained.classes) if task.name == "classify" else None
        data = trained.config.recipe.data
        self._normalize = Normalizer(data, torch.device("cpu"))
        self._normalized_input = normalized_input
        self.names = OUTPUTS[task.name]
        self.takes = "uint8 [batch, channels, height, width], pixels from 0 to 255; the network normalises them"
        if normalized_input:
            scaling = f"(pixel / 255 - {list(data.mean)}) / {list(data.std)}"
            self.takes = f"float32 [batch, channels, height, width], already {scaling}"

    def forward(self, images: torch.Tensor) -> Any:
        outputs = self.model(images if self._normalized_input else self._normalize(images))
        return outputs if self._classes is None else outputs[:, : self._classes]

    def prepare_input(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 images in the form this network takes."""
        return self._normalize(pixels) if self._normalized_input else pixels


def _real_images(trained: Trained, data: str | None) -> torch.Tensor:
    """Validation images as the network sees them in evaluation, uint8 [images, channels, height, width]."""
    recipe = trained.config.recipe
    if data is not None:
        recipe = replace(recipe, data=replace(recipe.data, source=data))
    task = task_of(recipe, trained.config.machine)
    try:
        source = task.open("val")
    except ConfigError as error:
        raise ConfigError(
            f"{error.message} The exported model is checked on real images: give {use('data.source', slot='PATH')}."
        ) from None
    images, _ = read_images(task.eval_reader(source), spread_indices(len(source), CHECK_IMAGES))
    if images.shape[1] != trained.channels:
        raise ConfigError(
            f"The model takes images of {plural(trained.channels, 'channel')}, the data has {images.shape[1]}."
        )
    return images


def spread_indices(samples: int, count: int) -> Indices:
    """The positions of at most `count` samples, spread evenly over all of them."""
    return np.linspace(0, samples - 1, min(count, samples)).astype(np.int64)


def read_images(reader: Reader, indices: Indices) -> tuple[torch.Tensor, Any]:
    """Images as evaluation prepares them, uint8 [images, channels, height, width], and their targets."""
    pixels = torch.zeros((len(indices), *reader.shape), dtype=torch.uint8)
    filled = reader.fill(0, indices, pixels.numpy())
    return pixels.permute(0, 3, 1, 2).contiguous(), reader.targets(indices, [filled])


def _write_network(
    network: ExportedNetwork, images: torch.Tensor, form: Format, target: Path, metadata: dict[str, str], data: str
) -> ExportCheck:
    """Write the network under a temporary name, compare it with PyTorch's, and only then rename it."""
    inputs = network.prepare_input(images)
    with evaluating(network, Cpu()):
        expected = as_tuple(network(inputs))
    try:
        with replaced_atomically(target) as temporary, quiet_exporters():
            run, runtime = WRITERS[form](network, inputs, temporary, metadata)
            return compare_outputs(expected, run(inputs), runtime, data)
    except OSError as error:
        raise _unwritable(target, error) from None


REMOVED = f"The file was removed; try {use('format', 'torch-export')} or safetensors."


def compare_outputs(
    expected: Outputs, outputs: Outputs, runtime: str, data: str, *, then: str = REMOVED
) -> ExportCheck:
    """Compare a runtime's outputs with PyTorch's on the same images. Raises RunFailed when they differ too much.

    `then` is the end of its message: what happens now, and what to do.
    """
    if [e.shape for e in expected] != [o.shape for o in outputs]:
        raise RunFailed(f"{runtime} gives outputs of other shapes than PyTorch. {then}")
    difference = max(float((e - o).abs().max()) for e, o in zip(expected, outputs, strict=True))
    largest = max(float(e.abs().max()) for e in expected)
    one_class = len(expected) == 1 and expected[0].dim() == 2
    same = int((expected[0].argmax(1) == outputs[0].argmax(1)).sum()) if one_class else None
    images = len(expected[0])
    if not difference <= TOLERANCE * max(largest, 1.0) or (same is not None and same < images):
        classes = "" if same is None else f"; the same class for {same} of {images} images"
        raise RunFailed(
            f"{runtime} does not compute what PyTorch does: largest difference {difference:.3g} of outputs up to "
            f"{largest:.3g}{classes}. {then}"
        )
    return ExportCheck(
        against=runtime, images=images, data=data, max_difference=difference, largest_output=largest, same_top1=same
    )


def save_onnx(
    network: nn.Module, names: tuple[str, ...], inputs: torch.Tensor, path: Path, metadata: Mapping[str, str]
) -> None:
    """Write a network with these names of outputs as ONNX with a free batch size."""
    example = inputs[:2] if len(inputs) > 1 else inputs.repeat(2, 1, 1, 1)  # of one image the size would be fixed
    program = torch.onnx.export(
        network,
        (example,),
        dynamo=True,
        verbose=False,
        input_names=["images"],
        output_names=list(names),
        dynamic_shapes=({0: torch.export.Dim("batch")},),
    )
    assert program is not None
    program.model.metadata_props.update(metadata)
    program.save(path, external_data=False)


def _write_onnx(
    network: ExportedNetwork, inputs: torch.Tensor, path: Path, metadata: dict[str, str]
) -> tuple[Runner, str]:
    """Write ONNX; onnxruntime to run it, and its name."""
    save_onnx(network, network.names, inputs, path, metadata)
    return open_onnx(path)


def _write_torch_export(
    network: ExportedNetwork, inputs: torch.Tensor, path: Path, metadata: dict[str, str]
) -> tuple[Runner, str]:
    """Write torch.export's file with a free batch size; the file read back to run it, and its name."""
    with torch.no_grad():
        program = torch.export.export(network, (inputs[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},))
    buffer = io.BytesIO()  # PyTorch's own file writer ends the process when the disk is full
    torch.export.save(program, buffer, extra_files={ABOUT: json.dumps(metadata)})
    path.write_bytes(buffer.getbuffer())
    return open_torch_export(path)


WRITERS = {"onnx": _write_onnx, "torch-export": _write_torch_export}


@contextmanager
def quiet_exporters() -> Iterator[None]:
    """Without the exporters' messages about optional packages and their own deprecations."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(logging.NOTSET)
