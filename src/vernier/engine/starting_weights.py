"""Starting weights: loading a file into a model or a detector's backbone, weights from images, and freezing layers.

Reading and translating weight files is `models.weights`' business; a run's own checkpoints are
`training.checkpoints`'.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from vernier.config import Config, Model
from vernier.data.augment.crop_flip import EvalTransform
from vernier.data.augment.normalize import Normalizer
from vernier.data.decoding.decode import BadImage, Image
from vernier.data.downloads import fetch_pretrained, is_pretrained
from vernier.data.sources import Source
from vernier.errors import ConfigError, did_you_mean
from vernier.models import info, weights
from vernier.models.contract import BACKBONE, LearnsFromImages, layout_of
from vernier.models.weights import find_format
from vernier.optim.build import NORMS
from vernier.references import given, use
from vernier.wording import plural

# Smaller detectors, as that of the built-in set, learn from scratch.
LARGE_PX = 300


def apply_starting_weights(model: nn.Module, config: Config, train_source: Source, *, fresh: bool) -> tuple[str, ...]:
    """Load the recipe's starting weights if `fresh`, or compute some from images, and freeze layers; notes about it."""
    spec, notes = config.recipe.model, []
    if spec.weights and fresh:
        notes.append(describe_weights(spec.weights, _load_weights(model, spec.weights, reset_head=spec.reset_head)))
    if spec.backbone_weights and fresh:
        notes.append(_load_backbone(model, spec.backbone_weights))
    if spec.freeze:
        count = _freeze(model, spec)
        notes.append(f"{count} of {len(list(model.parameters()))} tensors are frozen ({', '.join(spec.freeze)})")
    if spec.freeze_statistics:
        count = _freeze_statistics(model)
        notes.append(f"{plural(count, 'batch norm')} of the backbone keep the statistics they were loaded with")
    return (*notes, *(_prepare_from_images(model, config, train_source) if fresh and not spec.weights else ()))


def _prepare_from_images(model: nn.Module, config: Config, train_source: Source) -> tuple[str, ...]:
    """Set the weights that a model computes from training images; a note about it.

    The images are spread evenly over the set and not augmented, so every process and every run gets the same weights.
    """
    if not isinstance(model, LearnsFromImages):
        return ()
    data, transform = config.recipe.data, EvalTransform(config.recipe.data)
    spread = np.unique(np.linspace(0, len(train_source) - 1, model.preparation_images).astype(np.int64)).tolist()
    images = [image for index in spread if (image := _image_or_none(train_source, index)) is not None]
    pixels = np.zeros((max(1, len(images)), data.eval_px, data.eval_px, train_source.channels), dtype=np.uint8)
    for image, out in zip(images, pixels, strict=False):
        transform(image, out)
    return (model.prepare(Normalizer(data, torch.device("cpu"))(torch.from_numpy(pixels).permute(0, 3, 1, 2))),)


def _load_weights(model: nn.Module, path: str, *, reset_head: bool = False) -> weights.Report:
    """Load a weights file into `model`. Raises ConfigError when there is no such file or it does not fit."""
    return weights.load(weights_file(path), model, reset_head=reset_head)


def _load_backbone(model: nn.Module, path: str) -> str:
    """Load a classifier's weights into the backbone of a detector; a note about it."""
    if not layout_of(model).detector:
        raise ConfigError(
            f"{given('model.backbone_weights', path)} is for detectors. For a classifier, use "
            f"{use('model.weights', path)}."
        )
    return f"backbone {describe_weights(path, weights.load_backbone(weights_file(path), model))}"


def from_scratch_warnings(config: Config) -> tuple[str, ...]:
    """A warning where a large detector starts without weights, which its recipes never do."""
    spec = config.recipe.model
    entry = info(spec.name)
    if not entry.detector or spec.weights or spec.backbone_weights or entry.input_px < LARGE_PX:
        return ()
    return (
        f"{spec.name} starts FROM SCRATCH: no {use('model.backbone_weights', slot='FILE')} was given. On COCO, such a "
        "run reaches about 0.17 AP instead of 0.23. Any ImageNet ResNet of the same depth can be the backbone.",
    )


def weights_file(path: str) -> Path:
    """The file at a path that a person gave, or of published weights that a person named (fetched if need be).

    Raises ConfigError when there is none, RunFailed when it cannot be fetched.
    """
    if is_pretrained(path):
        return fetch_pretrained(path)
    file = Path(path).expanduser()
    if not file.is_file() and find_format(file) is None:
        problem = "is a folder, not a weights file" if file.is_dir() else "does not exist"
        raise ConfigError(
            f"The weights file {path} {problem}. Give a .safetensors, .pth, .pt or .th file, a TensorFlow checkpoint "
            "(model.ckpt-N), or published weights by name, such as torchvision:resnet50-v2."
        )
    return file


def describe_weights(path: str, report: weights.Report) -> str:
    """One line about what was loaded."""
    parts = [f"weights from {path} ({report.source} names)"]
    # A counter that older files lack, and that no result depends on.
    initialised = [name for name in report.missing if not name.endswith("num_batches_tracked")]
    if initialised:
        parts.append(f"{', '.join(initialised[:4])} start fresh")
    return "; ".join([*parts, *report.notes])


def _image_or_none(source: Source, index: int) -> Image | None:
    try:
        return source.image(index)
    except (BadImage, OSError):
        return None  # the loader will report it


def _freeze(model: nn.Module, spec: Model) -> int:
    """Freeze the parameters that `model.freeze` names, and the statistics of their batch norms; how many tensors.

    A frozen batch norm is in evaluation mode: it normalises with the statistics it was loaded with.
    """
    layout, names = layout_of(model), [name for name, _ in model.named_parameters()]
    frozen: set[str] = set()
    for prefix in spec.freeze:
        matching = [n for n in names if (layout.in_backbone(n) if prefix == BACKBONE else n.startswith(prefix))]
        if not matching:
            tops = dict.fromkeys([BACKBONE, *(n.split(".")[0] for n in names)])
            raise ConfigError(f"model.freeze = {prefix!r} matches nothing in the model. {did_you_mean(prefix, tops)}")
        frozen.update(matching)
    for name, parameter in model.named_parameters():
        if name in frozen:
            # The optimizer and the gradient all-reduce then leave it out.
            parameter.requires_grad_(False)
    for name, module in model.named_modules():
        own = [f"{name}.{n}" for n, _ in module.named_parameters(recurse=False)]
        # Only if all of its own parameters are frozen: a norm that still learns needs the statistics of its batches.
        if isinstance(module, NORMS) and own and frozen.issuperset(own):
            module.eval()
    return len(frozen)


def _freeze_statistics(model: nn.Module) -> int:
    """Keep all batch norms of the backbone in evaluation mode; how many. Their scales and shifts still learn."""
    norms = backbone_norms(model)
    for norm in norms:
        norm.eval()
    return len(norms)


def backbone_norms(model: nn.Module) -> list[nn.Module]:
    """The batch norms that are not part of the head; other norms have no statistics to keep."""
    layout, modules = layout_of(model), model.named_modules()
    return [m for name, m in modules if getattr(m, "track_running_stats", False) and layout.in_backbone(name)]
