"""Tells v1 weights from v1.5, which have the same names and shapes: by the file's metadata, or by photographs.

The two place the stride of a bottleneck in another convolution. Loading one as the other gives a network that works
badly and raises no error. Files and fitting are in `weights`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from vernier.errors import ConfigError
from vernier.frozen import frozen

from .architecture import Options
from .catalogue import describe, info, names
from .naming import State, identify, name_of, translate
from .resnet import Bottleneck, ResNet, Trunk
from .ssd import Ssd

MIN_PHOTOGRAPHS = 8
"""With fewer photographs, what they happen to show decides."""
# An ImageNet ResNet-50 v1 on 200 draws of 8 from 100 COCO photographs at 224 px: positions -0.22 to 0.29. The same
# weights with the statistics of a v1.5 pass over 150 other photographs, as there is no v1.5 file: 0.78 to 1.12.
# Strangeness over six draws 0.005 to 0.018; of white and 1/f noise 0.22 and more.
_UNCLEAR = (0.4, 0.6)
_STRANGE = 0.12


@frozen
class StrideCheck:
    """Which stride placement the batch-norm statistics stored with the weights belong to."""

    variant: Literal["v1", "v1.5", "unclear"]
    position: float
    """Where the stored statistics lie between those of v1 (0) and v1.5 (1) on the photographs."""
    strangeness: float
    """Distance of the nearer variant from the stored statistics, in nats per channel: large for images unlike the
    training data, or scaled differently, which decide nothing."""


def stride_variant(state: Mapping[str, Tensor], images: Tensor) -> StrideCheck:
    """Decide whether a bottleneck network's weights are v1 or v1.5, from photographs prepared as for evaluation.

    `images` is [N >= 8, channels, H, W], normalised, near the training resolution. The first strided block is run both
    ways; its batch norms store the means and variances of training, which only the right way reproduces.
    """
    if len(images) < MIN_PHOTOGRAPHS:
        raise ConfigError(f"Telling v1 from v1.5 needs at least {MIN_PHOTOGRAPHS} photographs, not {len(images)}.")
    state, _ = translate(state)
    net = _first_strided_block(state)
    block = net.get_submodule("layer2.0")
    assert isinstance(block, Bottleneck)
    with torch.no_grad():
        features = net.stages[0](net.maxpool(net.relu(net.bn1(net.conv1(images)))))
        v1 = _deviations(block, features, (2, 2), (1, 1))
        v15 = _deviations(block, features, (1, 1), (2, 2))
    return _verdict(v1, v15)


def _verdict(v1: Tensor, v15: Tensor) -> StrideCheck:
    """Project the stored statistics (the origin) on the line from v1 to v1.5.

    The two differ in a direction that depends little on what the images show, so the projection is more stable than a
    comparison of distances.
    """
    step = v15 - v1
    position = float(-(v1 * step).sum() / (step * step).sum())
    strangeness = min(_divergence(v1), _divergence(v15))
    low, high = _UNCLEAR
    variant: Literal["v1", "v1.5", "unclear"] = "v1" if position < low else "v1.5" if position > high else "unclear"
    return StrideCheck(
        variant="unclear" if strangeness > _STRANGE else variant, position=position, strangeness=strangeness
    )


def _divergence(deviations: Tensor) -> float:
    """Median over channels of the Kullback-Leibler divergence between the stored normal distribution and this one."""
    mean, log_std = deviations
    return float((((2 * log_std).exp() + mean**2 - 1) / 2 - log_std).median())


def _first_strided_block(state: State) -> ResNet:
    """Build the stem, the first stage and the first block of the second with these weights: all the check needs."""
    name = identify(state)
    arch = info(name).arch if name else None
    if arch is None or arch.block != "bottleneck":
        raise ConfigError(f"v1 and v1.5 are variants of bottleneck networks; these weights look like {name or 'none'}.")
    stem = state["conv1.weight"]
    options = Options(
        num_classes=1,
        in_channels=stem.shape[1],
        width=stem.shape[0],
        stem="imagenet" if stem.shape[-1] == 7 else "small",
    )
    net = ResNet(dataclasses.replace(arch, blocks=(arch.blocks[0], 1)), options).eval()
    shared = {key: state[key] for key in net.state_dict() if key in state and not key.startswith("fc.")}
    net.load_state_dict(shared, strict=False)
    return net


def _deviations(block: Bottleneck, x: Tensor, first: tuple[int, int], second: tuple[int, int]) -> Tensor:
    """[2, channels]: mean and log deviation of the inputs of bn2 and bn3, relative to their stored statistics."""
    block.conv1.stride, block.conv2.stride = first, second
    at_bn2 = block.conv2(block.relu(block.bn1(block.conv1(x))))
    at_bn3 = block.conv3(block.relu(block.bn2(at_bn2)))
    return torch.cat([_relative(at_bn2, block.bn2), _relative(at_bn3, block.bn3)], dim=1)


def _relative(x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
    stored = norm.running_var + norm.eps
    return torch.stack([(mean - norm.running_mean) / stored.sqrt(), ((variance + norm.eps) / stored).log() / 2])


def check_stride(state: State, model: nn.Module, images: Tensor | None, metadata: Mapping[str, str]) -> list[str]:
    """Check weights against the model's variant; give notes for the report. Raises ConfigError if they differ."""
    if not isinstance(model, Trunk | Ssd) or model.arch.block != "bottleneck" or model.arch.groups > 1:
        return []
    own = "v1.5" if model.arch.stride_in == "3x3" else "v1"
    declared = declared_variant(metadata)
    if declared not in (None, own):
        raise ConfigError(
            f"The file says its weights are {declared}, and {name_of(model)} is {own}: the same shapes, another "
            f"stride. Use {_sibling(model)}."
        )
    if images is None:
        return [f"assumed to be {own}: names and shapes do not tell v1 from v1.5"] if declared is None else []
    check = stride_variant(state, images)
    if check.variant not in ("unclear", own):
        raise ConfigError(
            f"The weights are {check.variant} and {name_of(model)} is {own}: their batch-norm statistics fit the "
            f"other stride ({check.position:.2f} between v1 at 0 and v1.5 at 1). Use {_sibling(model)}."
        )
    return [f"photographs say {check.variant} ({check.position:.2f} between v1 at 0 and v1.5 at 1)"]


def declared_variant(metadata: Mapping[str, str]) -> str | None:
    """Read v1 or v1.5 from a file's metadata, if it names a catalogue model or the variant."""
    for key in ("model", "arch"):
        text = metadata.get(key, "")
        if text in names() and info(text).arch.block == "bottleneck":
            return "v1.5" if info(text).arch.stride_in == "3x3" else "v1"
        if match := re.search(r"\bv1(?:[._]5)?\b", text, re.IGNORECASE):
            return "v1" if len(match[0]) == 2 else "v1.5"
    return None


def _sibling(model: Trunk | Ssd) -> str:
    other: Literal["3x3", "1x1"] = "1x1" if model.arch.stride_in == "3x3" else "3x3"
    arch = dataclasses.replace(model.arch, stride_in=other)
    return next((entry.name for entry in describe() if entry.arch == arch), "the other variant")
