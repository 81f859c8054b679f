"""A trained model as a file for use elsewhere: weights alone (safetensors, torchvision's names), or the network with
them (ONNX, torch.export), which is run on real images before it gets its name.

A network file takes pixels as they are decoded, uint8 from 0 to 255, and normalises them itself, unless told otherwise.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from torch import nn

from vernier.config import Config, from_dict
from vernier.data.augment.normalize import Normalizer
from vernier.engine.inference.evaluate import evaluating
from vernier.engine.inference.trained import Trained, find_checkpoint, load_trained
from vernier.engine.training.checkpoint import weights_for_use
from vernier.errors import ConfigError, RunFailed
from vernier.measure.machine.environment import installed_version
from vernier.models import info, weights
from vernier.store import CheckpointDir, read_json
from vernier.tasks import task_of

Format = Literal["safetensors", "torchvision", "onnx", "torch-export"]
SUFFIX: dict[Format, str] = {
    "safetensors": ".safetensors",
    "torchvision": ".pth",
    "onnx": ".onnx",
    "torch-export": ".pt2",
}
OUTPUTS = {"classify": ("logits",), "detect": ("offsets", "logits")}
"""What a network gives, by task; other numbers of outputs are numbered."""
CHECK_IMAGES = 64
TOLERANCE = 1e-3
"""How far a runtime's output may be from PyTorch's, as a share of the largest output."""

Outputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class Check:
    """What came of running an exported network beside PyTorch's on the same real images."""

    against: str
    images: int
    data: str
    max_difference: float
    largest_output: float
    same_top1: int | None
    """Of the images; None where an image has more than one answer."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A file that was written, from which checkpoint, and how it was checked."""

    path: Path
    format: Format
    checkpoint: Path
    averaged: bool
    takes: str
    """What the file's input is, in words; empty for weights alone."""
    check: Check | None


def export(
    path: Path, form: Format, out: Path | None, *, which: str = "latest", averaged: bool | None = None,
    data: str | None = None, normalised_input: bool = False,
) -> Exported:  # fmt: skip
    """Write a run's model in one of the formats; `out` left out: in the current folder, named after the run.

    `data` is where the images to check a network on come from, instead of the run's own. Nothing is overwritten, and a
    network that does not compute what PyTorch computes is not kept: RunFailed.
    """
    found = find_checkpoint(path, which)
    state = read_json(found.path / "state.json")
    config = from_dict(Config, state["config"])
    target = _free_target(out or Path(f"{config.recipe.name}-step{found.step}{SUFFIX[form]}"))
    if form in ("safetensors", "torchvision"):
        if data is not None or normalised_input:
            raise ConfigError(f"--data and --normalised-input are about networks; --format {form} has weights alone.")
        used_average = _write_weights(found, state, config, form, target, averaged)
        return Exported(
            path=target, format=form, checkpoint=found.path, averaged=used_average, takes="", check=None
        )  # fmt: skip
    _require(form)
    trained = load_trained(found.path, averaged=averaged, changed=_on_cpu)
    network = Served(trained, normalised_input)
    images = _real_images(trained, data)
    about = {**_about(config, state, found.step, trained.averaged), "input": network.takes}
    check = _write_network(network, images, form, target, about, data or config.recipe.data.source)
    return Exported(
        path=target, format=form, checkpoint=found.path, averaged=trained.averaged, takes=network.takes, check=check
    )  # fmt: skip


def _on_cpu(config: Config) -> Config:
    """Exporters trace the plain network, wherever it was trained."""
    plain = replace(config.machine, device="cpu", precision="fp32", mode="eager", channels_last=False)
    return replace(config, machine=plain)


def _free_target(target: Path) -> Path:
    if target.exists():
        raise ConfigError(f"{target} exists already. Give another --out, or remove it.")
    if not target.parent.is_dir():
        raise ConfigError(f"--out {target}: the folder {target.parent} does not exist.")
    trial = target.with_name(f".{target.name}.partial")
    try:
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise ConfigError(f"Cannot write {target}: {error.strerror}. Choose another --out.") from None
    return target


def _unwritable(target: Path, error: Exception) -> RunFailed:
    return RunFailed(f"{target} could not be written: {error}. Choose another --out, or make room.")


def _require(form: Format) -> None:
    wanted = ("onnx", "onnxscript", "onnxruntime") if form == "onnx" else ()
    if missing := [name for name in wanted if installed_version(name) is None]:
        raise ConfigError(f"--format onnx needs {', '.join(missing)}: pip install 'vernier[onnx]'")


# ------------------------------------------------------------------------------------------------------------- weights


def _write_weights(
    found: CheckpointDir, state: dict[str, Any], config: Config, form: Format, target: Path, averaged: bool | None
) -> bool:
    """Write the tensors; whether they are the averaged ones."""
    tensors, used_average = weights_for_use(found, averaged=averaged)
    if form == "torchvision":
        _require_torchvision(config)
    try:
        if form == "torchvision":
            weights.save_torch(weights.to_torchvision(tensors), target)
        else:
            weights.save_safetensors(tensors, target, _about(config, state, found.step, used_average))
    except (OSError, RuntimeError, SafetensorError) as error:  # what the writers raise when the disk is full
        raise _unwritable(target, error) from None
    return used_average


def _about(config: Config, state: dict[str, Any], step: int, averaged: bool) -> dict[str, str]:
    """What a file of weights should say about itself: enough to use it without the run."""
    recipe, result = config.recipe, state["progress"]["result"] or {}
    said = {
        "format": "pt",
        "model": recipe.model.name,
        "recipe": recipe.name,
        "step": step,
        "averaged": averaged,
        "classes": state["classes"],
        "mean": recipe.data.mean,
        "std": recipe.data.std,
        "eval_px": recipe.data.eval_px,
        "eval_short_side_px": recipe.data.eval_short_side_px,
        **{name: result[name] for name in ("top1", "AP") if name in result},
    }
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in said.items()}


def _require_torchvision(config: Config) -> None:
    """torchvision's ResNet is v1.5 with the ImageNet stem and plain convolutions; other networks would load and be wrong."""
    spec = config.recipe.model
    arch = info(spec.name).arch
    stem = arch.stem if spec.stem == "default" else spec.stem
    why = (
        "it is a detector" if info(spec.name).ssd is not None
        else "its stride is in the first 1x1 (v1)" if arch.block == "bottleneck" and arch.stride_in != "3x3"
        else "its stem is for small images" if stem != "imagenet"
        else "its shortcuts have no weights" if arch.shortcut != "projection"
        else "it blurs before strides" if spec.blurpool
        else "it has squeeze-and-excitation" if arch.squeeze
        else ""
    )  # fmt: skip
    if why:
        raise ConfigError(
            f"torchvision has no such network as this {spec.name}: {why}. Use --format safetensors instead."
        )


# ------------------------------------------------------------------------------------------------------------ networks


class Served(nn.Module):
    """A network as it is handed over: normalisation in front unless its users do it, outputs of no class cut off."""

    def __init__(self, trained: Trained, normalised_input: bool) -> None:
        super().__init__()
        self.model = trained.model.eval()
        task = task_of(trained.config.recipe)
        self._classes = len(trained.classes) if task.name == "classify" else None
        self._normalize = Normalizer(trained.config.recipe.data, torch.device("cpu"))
        self._normalised_input = normalised_input
        self.names = OUTPUTS[task.name]
        self.takes = _takes(trained.config, normalised_input)

    def forward(self, images: torch.Tensor) -> Any:
        made = self.model(images if self._normalised_input else self._normalize(images))
        return made if self._classes is None else made[:, : self._classes]

    def input_of(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 images as this network wants them."""
        return self._normalize(pixels) if self._normalised_input else pixels


def _takes(config: Config, normalised_input: bool) -> str:
    data = config.recipe.data
    if normalised_input:
        return f"float32 [batch, channels, height, width], already (pixel / 255 - {list(data.mean)}) / {list(data.std)}"
    return "uint8 [batch, channels, height, width], pixels from 0 to 255; the network normalises them"


def _real_images(trained: Trained, data: str | None) -> torch.Tensor:
    """Validation images as the network sees them in evaluation, uint8 [images, channels, height, width]."""
    recipe = trained.config.recipe
    if data is not None:
        recipe = replace(recipe, data=replace(recipe.data, source=data))
    task = task_of(recipe)
    try:
        source = task.open("val")
    except ConfigError as error:
        raise ConfigError(f"{error} The exported network is checked on real images: give --data PATH.") from None
    reader = task.eval_reader(source)
    chosen = np.linspace(0, len(source) - 1, min(CHECK_IMAGES, len(source))).astype(np.int64)
    pixels = torch.zeros((len(chosen), *reader.shape), dtype=torch.uint8)
    reader.fill(0, chosen, pixels.numpy())
    images = pixels.permute(0, 3, 1, 2).contiguous()
    if images.shape[1] != trained.channels:
        raise ConfigError(f"The model takes images of {trained.channels} channel(s), the data has {images.shape[1]}.")
    return images


def _write_network(
    network: Served, images: torch.Tensor, form: Format, target: Path, about: dict[str, str], data: str
) -> Check:
    """Write the network beside its final name, compare it with PyTorch's, and only then rename it."""
    partial = target.with_name(f".{target.stem}.partial{SUFFIX[form]}")
    given = network.input_of(images)
    with evaluating(network):
        expected = _several(network(given))
    try:
        with _quiet():
            run, against = _WRITERS[form](network, given, partial, about)
            found = run(given)
        check = _compare(expected, found, against, data)
        partial.replace(target)
    except OSError as error:
        raise _unwritable(target, error) from None
    finally:
        partial.unlink(missing_ok=True)
    return check


def _several(made: Any) -> Outputs:
    return tuple(made) if isinstance(made, tuple | list) else (made,)


def _compare(expected: Outputs, found: Outputs, against: str, data: str) -> Check:
    if [e.shape for e in expected] != [f.shape for f in found]:
        raise RunFailed(f"{against} gives outputs of other shapes than PyTorch; the file was not kept.")
    difference = max(float((e - f).abs().max()) for e, f in zip(expected, found, strict=True))
    largest = max(float(e.abs().max()) for e in expected)
    one_answer = len(expected) == 1 and expected[0].dim() == 2
    same = int((expected[0].argmax(1) == found[0].argmax(1)).sum()) if one_answer else None
    images = len(expected[0])
    if not difference <= TOLERANCE * max(largest, 1.0) or (same is not None and same < images):
        answers = "" if same is None else f"; the same class for {same} of {images} images"
        raise RunFailed(
            f"{against} does not compute what PyTorch does: largest difference {difference:.3g} of outputs up to "
            f"{largest:.3g}{answers}. The file was not kept; try --format torch-export or safetensors."
        )
    return Check(
        against=against, images=images, data=data, max_difference=difference, largest_output=largest, same_top1=same
    )  # fmt: skip


Runner = Callable[[torch.Tensor], Outputs]


def _write_onnx(network: Served, given: torch.Tensor, path: Path, about: dict[str, str]) -> tuple[Runner, str]:
    """ONNX with a free batch size, and onnxruntime to run it."""
    import onnxruntime

    program = torch.onnx.export(
        network, (given[:2],), dynamo=True, verbose=False, input_names=["images"], output_names=list(network.names),
        dynamic_shapes=({0: torch.export.Dim("batch")},),
    )  # fmt: skip
    assert program is not None
    program.model.metadata_props.update(about)
    program.save(path, external_data=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(images: torch.Tensor) -> Outputs:
        return tuple(torch.from_numpy(made) for made in session.run(None, {"images": images.numpy()}))

    return run, f"onnxruntime {onnxruntime.__version__} on CPU"


def _write_torch_export(network: Served, given: torch.Tensor, path: Path, about: dict[str, str]) -> tuple[Runner, str]:
    """torch.export's file with a free batch size, and the file read back."""
    with torch.no_grad():
        program = torch.export.export(network, (given[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},))
    made = io.BytesIO()  # PyTorch's own file writer ends the process when the disk is full
    torch.export.save(program, made, extra_files={"about.json": json.dumps(about)})
    path.write_bytes(made.getbuffer())
    again = torch.export.load(path).module()

    def run(images: torch.Tensor) -> Outputs:
        with torch.inference_mode():
            return _several(again(images))

    return run, f"torch.export.load of torch {torch.__version__}"


_WRITERS: dict[Format, Callable[[Served, torch.Tensor, Path, dict[str, str]], tuple[Runner, str]]] = {
    "onnx": _write_onnx,
    "torch-export": _write_torch_export,
}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' remarks about packages that are not needed and their own deprecations."""
    talkers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    before = [talker.level for talker in talkers]
    for talker in talkers:
        talker.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for talker, level in zip(talkers, before, strict=True):
            talker.setLevel(level)
