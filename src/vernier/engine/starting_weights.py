"""Starting weights: loading a file into a model or a detector's backbone, whitening a stem, and freezing layers.

Which network a file belongs to is recognised here too. Reading and translating weight files is `models.weights`'
business; a run's own checkpoints are `training.checkpoints`'.
"""

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
from vernier.data.preparing.pretrained import fetch_pretrained, is_pretrained, pretrained
from vernier.data.sources import ArraySource, Source
from vernier.errors import ConfigError, did_you_mean
from vernier.models import build, info, names, weights
from vernier.models.airbench import AirbenchNet, whitening_filters
from vernier.models.architecture import PATCH_PX
from vernier.models.formats import find_format
from vernier.models.resnet import Trunk
from vernier.models.ssd import Ssd
from vernier.models.stride_check import MIN_PHOTOGRAPHS, declared_variant, stride_variant
from vernier.optim.groups import NORMS
from vernier.references import given, use
from vernier.wording import plural

from .inference.preparation import published_as

PHOTOGRAPHS = 16  # twice what distinguishing v1 from v1.5 needs
_PROBED = 3 * PHOTOGRAPHS
_SMALLEST_PX = 160  # enlarged images are smooth, and smooth images mislead the check
BACKBONE = "backbone"
HEAD = "fc."
LARGE_PX = 300
WHITENING_IMAGES = 1024


def apply_starting_weights(
    model: nn.Module, config: Config, source: Source, torch_device: torch.device, *, fresh: bool
) -> tuple[str, ...]:
    """Load the recipe's starting weights if `fresh`, and freeze what it names; notes about both."""
    spec, notes = config.recipe.model, []
    if spec.weights and fresh:
        photographs = photographs_for_check(model, source, config.recipe.data, torch_device)
        report = load_weights(model, spec.weights, reset_head=spec.reset_head, photographs=photographs)
        notes.append(describe_weights(spec.weights, report))
    if spec.backbone_weights and fresh:
        notes.append(load_backbone(model, spec.backbone_weights, source, config.recipe.data, torch_device))
    if spec.freeze:
        count = freeze(model, spec)
        notes.append(f"{count} of {len(list(model.parameters()))} tensors are frozen ({', '.join(spec.freeze)})")
    if spec.freeze_statistics:
        count = freeze_statistics(model)
        notes.append(f"{plural(count, 'batch norm')} of the backbone keep the statistics they were loaded with")
    return tuple(notes)


def whiten_stem(model: nn.Module, config: Config, train_source: Source, *, fresh: bool) -> tuple[str, ...]:
    """Set the filters of a whitening stem from training images, unless weights are loaded; a note about it.

    The images are spread evenly over the set and not augmented, so every process and every run gets the same filters.
    """
    if not isinstance(model, AirbenchNet) or not fresh or config.recipe.model.weights:
        return ()
    data, transform = config.recipe.data, EvalTransform(config.recipe.data)
    spread = np.unique(np.linspace(0, len(train_source) - 1, WHITENING_IMAGES).astype(np.int64)).tolist()
    images = [image for index in spread if (image := _image_or_none(train_source, index)) is not None]
    pixels = np.zeros((max(1, len(images)), data.eval_px, data.eval_px, train_source.channels), dtype=np.uint8)
    for image, out in zip(images, pixels, strict=False):
        transform(image, out)
    normalised = Normalizer(data, torch.device("cpu"))(torch.from_numpy(pixels).permute(0, 3, 1, 2))
    with torch.no_grad():
        model.conv1.weight.copy_(whitening_filters(normalised))
    patch = f"{PATCH_PX} x {PATCH_PX}"
    return (f"conv1 whitens patches of {patch} pixels, learned from {len(images):,} training images without labels",)


def load_weights(
    model: nn.Module, path: str, *, reset_head: bool = False, ema: bool = False, photographs: torch.Tensor | None = None
) -> weights.Report:
    """Load a weights file into `model`. Raises ConfigError when there is no such file or it does not fit."""
    return weights.load(weights_file(path), model, ema=ema, reset_head=reset_head, images=photographs)


def load_backbone(model: nn.Module, path: str, source: Source, data: Data, torch_device: torch.device) -> str:
    """Load a classifier's weights into the backbone of a detector; a note about it."""
    if not isinstance(model, Ssd):
        raise ConfigError(
            f"{given('model.backbone_weights', path)} is for detectors. For a classifier, use "
            f"{use('model.weights', path)}."
        )
    photographs = photographs_for_check(model.backbone, source, data, torch_device)
    report = weights.load_backbone(weights_file(path), model, images=photographs)
    return f"backbone {describe_weights(path, report)}"


def from_scratch_warnings(config: Config) -> tuple[str, ...]:
    """A warning where a large detector starts without weights, which its recipes never do."""
    spec = config.recipe.model
    entry = info(spec.name)
    if entry.ssd is None or spec.weights or spec.backbone_weights or entry.input_px < LARGE_PX:
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


def recognise_network(path: str, source: Source) -> str:
    """The network of the catalogue that weights belong to, for a person who did not name it. Raises ConfigError.

    By the publisher's file name, what the file says about itself, or the shapes of its layers. v1 and v1.5 have the
    same shapes: where the file does not say, photographs of `source` decide, and v1.5 is assumed where they cannot.
    """
    if is_pretrained(path):
        return pretrained(path).network
    file = weights_file(path)
    if (published := published_as(file)) is not None:
        return published.network
    content = weights.read_file(file)
    declared = content.metadata.get("model")
    if declared in names():
        return declared
    name = weights.identify(content.state)
    if name is None:
        raise ConfigError(
            f"The weights in {path} belong to no network that Vernier has. `vernier models` lists those; ResNets and "
            "ResNeXts of torchvision, timm, NVIDIA and Habana are read."
        )
    twin = f"{name}-v1"
    if twin in names() and info(name).arch.block == "bottleneck":
        variant = declared_variant(content.metadata)
        images = photographs_for_check(build(name, num_classes=2), source, Data(), torch.device("cpu"))
        if variant is None and images is not None:
            variant = stride_variant(content.state, images).variant
        if variant == "v1":
            return twin
    return name


def describe_weights(path: str, report: weights.Report) -> str:
    """One line about what was loaded."""
    parts = [f"weights from {path} ({report.source} names)"]
    initialised = [name for name in report.missing if not name.endswith("num_batches_tracked")]
    if initialised:
        parts.append(f"{', '.join(initialised[:4])} start fresh")
    return "; ".join([*parts, *report.notes])


def photographs_for_check(
    model: nn.Module, source: Source, data: Data, torch_device: torch.device
) -> torch.Tensor | None:
    """Photographs spread over a set, to check whether weights are of v1 or v1.5; None where the check does not apply.

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
    return Normalizer(data, torch_device)(torch.from_numpy(pixels).permute(0, 3, 1, 2).to(torch_device)).cpu()


def _image_or_none(source: Source, index: int) -> Image | None:
    try:
        return source.image(index)
    except (BadImage, OSError):
        return None  # the loader will report it


def freeze(model: nn.Module, spec: Model) -> int:
    """Freeze the parameters that `model.freeze` names, and the statistics of their batch norms; how many tensors.

    A frozen batch norm is in evaluation mode: it normalises with the statistics it was loaded with.
    """
    names = [name for name, _ in model.named_parameters()]
    frozen: set[str] = set()
    for prefix in spec.freeze:
        matching = [n for n in names if (in_backbone(n, model) if prefix == BACKBONE else n.startswith(prefix))]
        if not matching:
            tops = dict.fromkeys([BACKBONE, *(n.split(".")[0] for n in names)])
            raise ConfigError(f"model.freeze = {prefix!r} matches nothing in the model. {did_you_mean(prefix, tops)}")
        frozen.update(matching)
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    for name, module in model.named_modules():
        own = [f"{name}.{n}" for n, _ in module.named_parameters(recurse=False)]
        if isinstance(module, NORMS) and own and frozen.issuperset(own):
            module.eval()
    return len(frozen)


def freeze_statistics(model: nn.Module) -> int:
    """Keep all batch norms of the backbone in evaluation mode; how many. Their scales and shifts still learn."""
    norms = backbone_norms(model)
    for norm in norms:
        norm.eval()
    return len(norms)


def backbone_norms(model: nn.Module) -> list[nn.Module]:
    """The batch norms that are not part of the head."""
    return [m for name, m in model.named_modules() if isinstance(m, NORMS) and in_backbone(f"{name}.", model)]


def in_backbone(name: str, model: nn.Module) -> bool:
    """Whether a parameter belongs to the part that starts from weights of others: all but the head."""
    return name.startswith("backbone.") if isinstance(model, Ssd) else not name.startswith(HEAD)
