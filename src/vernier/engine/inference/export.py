"""Export of a trained model to a file: weights alone (safetensors, torchvision's names), or the network with its
weights (ONNX, torch.export), which is run on real images before it gets its final name.

A network file takes decoded pixels, uint8 from 0 to 255, and normalises them itself unless `normalised_input` is set.
The model card beside the file is `report.model_card`'s.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from torch import nn

from vernier.config import Config
from vernier.data.augment.normalize import Normalizer
from vernier.engine.training.checkpoint import config_of, read_state, weights_for_use
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.measure.machine.environment import installed_version
from vernier.models import info, is_detector, weights
from vernier.records.run import CheckpointState, ExportCheck
from vernier.store import CheckpointDir, replaced_atomically
from vernier.tasks import task_of

from .evaluate import evaluating
from .trained import Trained, find_checkpoint, load_checkpoint

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

Outputs = tuple[torch.Tensor, ...]


@frozen
class Exported:
    """A file that was written, from which checkpoint, and how it was checked."""

    path: Path
    checkpoint: Path
    averaged: bool
    takes: str = ""
    """The input of the network, in words; empty for weights alone."""
    check: ExportCheck | None = None


def export(
    path: Path,
    form: Format,
    out: Path | None,
    *,
    which: str = "latest",
    averaged: bool | None = None,
    data: str | None = None,
    normalised_input: bool = False,
) -> Exported:
    """Write a run's model in one of the formats; without `out`: to the current folder, named after the recipe.

    A network is checked on images of `data`, or of the run's own data. Nothing is overwritten. Raises RunFailed, and
    removes the file, when a network does not compute what PyTorch computes.
    """
    checkpoint = find_checkpoint(path, which)
    state = read_state(checkpoint)
    config = config_of(state)
    target = _free_target(out or Path(f"{config.recipe.name}-step{checkpoint.step}{SUFFIX[form]}"))
    if form in ("safetensors", "torchvision"):
        if data is not None or normalised_input:
            raise ConfigError(
                f"--format {form} writes weights alone; --data and --normalised-input are for onnx and torch-export."
            )
        used_average = _write_weights(checkpoint, state, config, form, target, averaged)
        return Exported(path=target, checkpoint=checkpoint.path, averaged=used_average)
    if form == "onnx":
        _require_onnx()
    trained = load_checkpoint(checkpoint, averaged=averaged, changed=_on_cpu)
    network = ExportedNetwork(trained, normalised_input)
    images = _real_images(trained, data)
    metadata = {**_metadata(config, state, checkpoint.step, trained.averaged), "input": network.takes}
    check = _write_network(network, images, form, target, metadata, data or config.recipe.data.source)
    return Exported(
        path=target, checkpoint=checkpoint.path, averaged=trained.averaged, takes=network.takes, check=check
    )


def _on_cpu(config: Config) -> Config:
    """Exporters trace the plain network, wherever it was trained."""
    plain = replace(config.machine, device="cpu", precision="fp32", mode="eager", channels_last=False)
    return replace(config, machine=plain)


def _free_target(target: Path) -> Path:
    if target.exists():
        raise ConfigError(f"{target} exists already. Give another --out, or remove it.")
    if not target.parent.is_dir():
        raise ConfigError(f"--out {target}: the folder {target.parent} does not exist.")
    try:
        target.touch()  # fails now rather than after the work
        target.unlink()
    except OSError as error:
        raise ConfigError(f"Cannot write {target}: {error.strerror}. Choose another --out.") from None
    return target


def _unwritable(target: Path, error: Exception) -> RunFailed:
    return RunFailed(f"{target} could not be written: {error}. Choose another --out, or free some space.")


def _require_onnx() -> None:
    if missing := [name for name in ("onnx", "onnxscript", "onnxruntime") if installed_version(name) is None]:
        raise ConfigError(f"--format onnx needs {', '.join(missing)}: pip install 'vernier[onnx]'")


# ------------------------------------------------------------------------------------------------------------- weights


def _write_weights(
    checkpoint: CheckpointDir,
    state: CheckpointState,
    config: Config,
    form: Format,
    target: Path,
    averaged: bool | None,
) -> bool:
    """Write the tensors; whether they are the averaged ones."""
    tensors, used_average = weights_for_use(checkpoint, averaged=averaged)
    try:
        if form == "torchvision":
            _require_torchvision(config)
            weights.save_torch(weights.to_torchvision(tensors), target)
        else:
            weights.save_safetensors(tensors, target, _metadata(config, state, checkpoint.step, used_average))
    except (OSError, RuntimeError, SafetensorError) as error:  # the writers raise these when the disk is full
        raise _unwritable(target, error) from None
    return used_average


def _metadata(config: Config, state: CheckpointState, step: int, averaged: bool) -> dict[str, str]:
    """The metadata of an exported file: enough to use it without the run."""
    recipe, result = config.recipe, state.progress.result
    figures = {} if result is None else result.figures
    metadata: dict[str, object] = {
        "format": "pt",
        "model": recipe.model.name,
        "recipe": recipe.name,
        "step": step,
        "averaged": averaged,
        "classes": state.classes,
        **{name: getattr(recipe.data, name) for name in ("mean", "std", "eval_px", "eval_short_side_px")},
        **{name: figures[name] for name in ("top1", "AP") if name in figures},
    }
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}


def _require_torchvision(config: Config) -> None:
    """Refuse what torchvision's ResNet is not, v1.5 with the ImageNet stem: it would load there and be wrong."""
    spec = config.recipe.model
    arch = info(spec.name).arch
    stem = arch.stem if spec.stem == "default" else spec.stem
    differences = {
        "it is a detector": is_detector(spec.name),
        "its stride is in the first 1x1 (v1)": arch.block == "bottleneck" and arch.stride_in != "3x3",
        "its stem is for small images": stem != "imagenet",
        "its shortcuts have no weights": arch.shortcut != "projection",
        "it blurs before strides": spec.blurpool,
        "it has squeeze-and-excitation": arch.squeeze,
    }
    if difference := next((text for text, applies in differences.items() if applies), None):
        raise ConfigError(
            f"torchvision has no network like this {spec.name}: {difference}. Use --format safetensors instead."
        )


# ------------------------------------------------------------------------------------------------------------ networks


class ExportedNetwork(nn.Module):
    """A network as it is exported: normalisation in front unless its users do it, outputs of no class cut off."""

    def __init__(self, trained: Trained, normalised_input: bool) -> None:
        super().__init__()
        self.model = trained.model.eval()
        task = task_of(trained.config.recipe)
        self._classes = len(trained.classes) if task.name == "classify" else None
        data = trained.config.recipe.data
        self._normalize = Normalizer(data, torch.device("cpu"))
        self._normalised_input = normalised_input
        self.names = OUTPUTS[task.name]
        self.takes = "uint8 [batch, channels, height, width], pixels from 0 to 255; the network normalises them"
        if normalised_input:
            scaling = f"(pixel / 255 - {list(data.mean)}) / {list(data.std)}"
            self.takes = f"float32 [batch, channels, height, width], already {scaling}"

    def forward(self, images: torch.Tensor) -> Any:
        outputs = self.model(images if self._normalised_input else self._normalize(images))
        return outputs if self._classes is None else outputs[:, : self._classes]

    def prepare_input(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 images in the form this network takes."""
        return self._normalize(pixels) if self._normalised_input else pixels


def _real_images(trained: Trained, data: str | None) -> torch.Tensor:
    """Validation images as the network sees them in evaluation, uint8 [images, channels, height, width]."""
    recipe = trained.config.recipe
    task = task_of(recipe if data is None else replace(recipe, data=replace(recipe.data, source=data)))
    try:
        source = task.open("val")
    except ConfigError as error:
        raise ConfigError(f"{error} The exported network is checked on real images: give --data PATH.") from None
    reader = task.eval_reader(source)
    indices = np.linspace(0, len(source) - 1, min(CHECK_IMAGES, len(source))).astype(np.int64)
    pixels = torch.zeros((len(indices), *reader.shape), dtype=torch.uint8)
    reader.fill(0, indices, pixels.numpy())
    images = pixels.permute(0, 3, 1, 2).contiguous()
    if images.shape[1] != trained.channels:
        raise ConfigError(f"The model takes images of {trained.channels} channel(s), the data has {images.shape[1]}.")
    return images


def _write_network(
    network: ExportedNetwork, images: torch.Tensor, form: Format, target: Path, metadata: dict[str, str], data: str
) -> ExportCheck:
    """Write the network under a temporary name, compare it with PyTorch's, and only then rename it."""
    inputs = network.prepare_input(images)
    with evaluating(network):
        expected = _as_tuple(network(inputs))
    try:
        with replaced_atomically(target) as temporary, _quiet():
            run, runtime = WRITERS[form](network, inputs, temporary, metadata)
            return compare_outputs(expected, run(inputs), runtime, data)
    except OSError as error:
        raise _unwritable(target, error) from None


def _as_tuple(outputs: Any) -> Outputs:
    return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)


def compare_outputs(expected: Outputs, outputs: Outputs, runtime: str, data: str) -> ExportCheck:
    """Compare a runtime's outputs with PyTorch's on the same images. Raises RunFailed when they differ too much."""
    if [e.shape for e in expected] != [o.shape for o in outputs]:
        raise RunFailed(f"{runtime} gives outputs of other shapes than PyTorch; the file was removed.")
    difference = max(float((e - o).abs().max()) for e, o in zip(expected, outputs, strict=True))
    largest = max(float(e.abs().max()) for e in expected)
    one_class = len(expected) == 1 and expected[0].dim() == 2
    same = int((expected[0].argmax(1) == outputs[0].argmax(1)).sum()) if one_class else None
    images = len(expected[0])
    if not difference <= TOLERANCE * max(largest, 1.0) or (same is not None and same < images):
        classes = "" if same is None else f"; the same class for {same} of {images} images"
        raise RunFailed(
            f"{runtime} does not compute what PyTorch does: largest difference {difference:.3g} of outputs up to "
            f"{largest:.3g}{classes}. The file was removed; try --format torch-export or safetensors."
        )
    return ExportCheck(
        against=runtime, images=images, data=data, max_difference=difference, largest_output=largest, same_top1=same
    )


Runner = Callable[[torch.Tensor], Outputs]


def _write_onnx(
    network: ExportedNetwork, inputs: torch.Tensor, path: Path, metadata: dict[str, str]
) -> tuple[Runner, str]:
    """Write ONNX with a free batch size; onnxruntime to run it, and its name."""
    import onnxruntime

    program = torch.onnx.export(
        network,
        (inputs[:2],),
        dynamo=True,
        verbose=False,
        input_names=["images"],
        output_names=list(network.names),
        dynamic_shapes=({0: torch.export.Dim("batch")},),
    )
    assert program is not None
    program.model.metadata_props.update(metadata)
    program.save(path, external_data=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(images: torch.Tensor) -> Outputs:
        return tuple(torch.from_numpy(output) for output in session.run(None, {"images": images.numpy()}))

    return run, f"onnxruntime {onnxruntime.__version__} on CPU"


def _write_torch_export(
    network: ExportedNetwork, inputs: torch.Tensor, path: Path, metadata: dict[str, str]
) -> tuple[Runner, str]:
    """Write torch.export's file with a free batch size; the file read back to run it, and its name."""
    with torch.no_grad():
        program = torch.export.export(network, (inputs[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},))
    buffer = io.BytesIO()  # PyTorch's own file writer ends the process when the disk is full
    torch.export.save(program, buffer, extra_files={"about.json": json.dumps(metadata)})
    path.write_bytes(buffer.getbuffer())
    module = torch.export.load(path).module()

    def run(images: torch.Tensor) -> Outputs:
        with torch.inference_mode():
            return _as_tuple(module(images))

    return run, f"torch.export.load of torch {torch.__version__}"


WRITERS = {"onnx": _write_onnx, "torch-export": _write_torch_export}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' messages about optional packages and their own deprecations."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(logging.NOTSET)
