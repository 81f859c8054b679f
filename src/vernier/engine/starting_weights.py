"""What a model begins with when it does not begin from chance: anybody's weights, and which of its layers may learn."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import nn

from vernier.config import Config, Data, Model
from vernier.data.augment.crop_flip import EvalTransform
from vernier.data.augment.normalize import Normalizer
from vernier.data.decoding.decode import BadImage, Image
from vernier.data.sources import ArraySource, Source
from vernier.errors import ConfigError, did_you_mean
from vernier.models import info, weights
from vernier.models.resnet import Trunk
from vernier.models.ssd import Ssd
from vernier.models.stride_check import MIN_PHOTOGRAPHS
from vernier.optim.groups import NORMS

PHOTOGRAPHS = 16  # twice what telling v1 from v1.5 needs
_PROBED = 3 * PHOTOGRAPHS
_SMALLEST_PX = 160  # what is blown up is smooth, and smooth images mislead the check
BACKBONE = "backbone"
HEAD = "fc."
LARGE_PX = 300


def load_weights(
    model: nn.Module, path: str, *, reset_head: bool = False, ema: bool = False, photographs: torch.Tensor | None = None
) -> weights.Report:
    """Put a file's weights into `model`; ConfigError when there is no such file or it does not fit."""
    return weights.load(_file(path), model, ema=ema, reset_head=reset_head, images=photographs)


def load_backbone(model: nn.Module, path: str, source: Source, data: Data, place: torch.device) -> str:
    """Put a classifier's weights into the backbone of a detector; what was done, in words."""
    if not isinstance(model, Ssd):
        raise ConfigError("model.backbone_weights is for detectors; a classifier takes --weights FILE.")
    photographs = photographs_for_check(model.backbone, source, data, place)
    report = weights.load_backbone(_file(path), model, images=photographs)
    return f"backbone {describe_weights(path, report)}"


def from_scratch(config: Config) -> tuple[str, ...]:
    """A warning where a large detector starts from nothing, which its recipes never do."""
    spec = config.recipe.model
    entry = info(spec.name)
    if entry.ssd is None or spec.weights or spec.backbone_weights or entry.input_px < LARGE_PX:
        return ()
    return (
        f"{spec.name} starts FROM SCRATCH: no --backbone-weights FILE was given. On COCO such a training stalls near 0.17 AP "
        "instead of 0.23; any ImageNet ResNet of the same depth serves as a start.",
    )


def _file(path: str) -> Path:
    file = Path(path).expanduser()
    if not file.is_file():
        what = "is a folder, not a file of weights" if file.is_dir() else "does not exist"
        raise ConfigError(f"The weights {path} {what}. Give a .safetensors, .pth, .pt or .th file.")
    return file


def describe_weights(path: str, report: weights.Report) -> str:
    """One line about what was loaded."""
    parts = [f"weights from {path} ({report.source} names)"]
    fresh = [name for name in report.missing if not name.endswith("num_batches_tracked")]
    if fresh:
        parts.append(f"{', '.join(fresh[:4])} start fresh")
    return "; ".join([*parts, *report.notes])


def photographs_for_check(model: nn.Module, source: Source, data: Data, place: torch.device) -> torch.Tensor | None:
    """Photographs spread over a set, by which weights can tell v1 from v1.5; None where that is no question or no help.

    Only for bottleneck networks that have a twin, and sets of image files with at least eight large enough. Always at
    224 pixels, whatever the recipe trains at: an ImageNet v1 network looks like v1.5 on images of 64 pixels.
    """
    if not isinstance(model, Trunk) or model.arch.block != "bottleneck" or model.arch.groups > 1:
        return None
    if isinstance(source, ArraySource) or len(source) < MIN_PHOTOGRAPHS:
        return None
    probed = np.unique(np.linspace(0, len(source) - 1, _PROBED).astype(np.int64))
    images = (image for index in probed if (image := _image_or_none(source, int(index))) is not None)
    large = list(islice((image for image in images if min(image.shape[:2]) >= _SMALLEST_PX), PHOTOGRAPHS))
    if len(large) < MIN_PHOTOGRAPHS:
        return None
    at_224 = replace(data, eval_px=224, eval_short_side_px=256)
    pixels = np.empty((len(large), 224, 224, source.channels), dtype=np.uint8)
    for image, out in zip(large, pixels, strict=True):
        EvalTransform(at_224)(image, out)
    return Normalizer(data, place)(torch.from_numpy(pixels).permute(0, 3, 1, 2).to(place)).cpu()


def _image_or_none(source: Source, index: int) -> Image | None:
    try:
        return source.image(index)
    except (BadImage, OSError):
        return None  # the loader will report it


def freeze(model: nn.Module, spec: Model) -> int:
    """Stop the parameters that `model.freeze` names from learning, and their batch norms from adapting; how many tensors.

    A frozen batch norm is in evaluation mode: it normalises with the statistics it came with.
    """
    names = [name for name, _ in model.named_parameters()]
    frozen: set[str] = set()
    for prefix in spec.freeze:
        chosen = [n for n in names if (_in_backbone(n, model) if prefix == BACKBONE else n.startswith(prefix))]
        if not chosen:
            tops = dict.fromkeys([BACKBONE, *(n.split(".")[0] for n in names)])
            raise ConfigError(f"model.freeze = {prefix!r} names nothing in the model. {did_you_mean(prefix, tops)}")
        frozen.update(chosen)
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    for name, module in model.named_modules():
        own = [f"{name}.{n}" for n, _ in module.named_parameters(recurse=False)]
        if isinstance(module, NORMS) and own and frozen.issuperset(own):
            module.eval()
    return len(frozen)


def _in_backbone(name: str, model: nn.Module) -> bool:
    return name.startswith("backbone.") if isinstance(model, Ssd) else not name.startswith(HEAD)
