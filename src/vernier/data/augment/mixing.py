"""MixUp and CutMix: a training batch is mixed with a permutation of itself, on the device, after normalization.

The draws are a function of (seed, step, micro-step, rank). They reach the device as tensors: a number of Python in an
operation would make it another one in each step, which a lazy device or a compiler compiles again. The loss of mixed
labels belongs to `tasks.classification`.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vernier.config import Augment
from vernier.randomness import Stream, key


@dataclass(frozen=True)
class _MixDraw:
    """The mixing of one step: its kind, the weight of the first image, the centre of CutMix's box."""

    kind: Literal["mixup", "cutmix"]
    weight: float
    centre: tuple[float, float]


@dataclass(frozen=True)
class MixedLabels:
    """The second label of each mixed image; the weight of the first and that of the second, which add up to 1."""

    second: Tensor
    weight: Tensor
    second_weight: Tensor


def mix_batch(
    images: Tensor, labels: Tensor, augment: Augment, *, seed: int, step: int, micro: int, rank: int
) -> tuple[Tensor, MixedLabels | None]:
    """Mix the images of one micro-batch by `augment.mixup` and `augment.cutmix`; None if nothing is mixed."""
    draw = _draw_mix(augment, seed, step)
    if draw is None:
        return images, None
    # Without waiting: a blocking copy would hold the host until the device has finished the step before.
    partners = _draw_partners(seed, step, micro, rank, len(labels)).to(images.device, non_blocking=True)
    if draw.kind == "mixup":
        return _mixup(images, labels, draw.weight, partners)
    return _cutmix(images, labels, draw.weight, draw.centre, partners)


def _numbers(on: Tensor, *values: float) -> list[Tensor]:
    """Numbers as float32 tensors of no dimension on the device of another tensor, in one copy."""
    return list(torch.tensor(values, dtype=torch.float32).to(on.device, non_blocking=True).unbind())


def _draw_mix(augment: Augment, seed: int, step: int) -> _MixDraw | None:
    """Draw the mixing of a step, the same for every process and micro-step; None when nothing is mixed."""
    if augment.mixup == 0 and augment.cutmix == 0:
        return None
    # Neither rank nor micro-step is in the key: one weight per step, however the batch is divided.
    generator = np.random.Generator(np.random.Philox(key=key(Stream.MIX, seed, step)))
    cut = augment.cutmix > 0 and (augment.mixup == 0 or bool(generator.random() < 0.5))  # 0.5: timm's switch_prob
    alpha = augment.cutmix if cut else augment.mixup
    weight = float(generator.beta(alpha, alpha))
    return _MixDraw("cutmix" if cut else "mixup", weight, (float(generator.random()), float(generator.random())))


def _draw_partners(seed: int, step: int, micro: int, rank: int, count: int) -> Tensor:
    """Draw the permutation of a micro-batch: the image that each image is mixed with."""
    generator = np.random.Generator(np.random.Philox(key=key(Stream.MIX, seed, step, micro, rank)))
    return torch.from_numpy(generator.permutation(count))


def _mixup(images: Tensor, labels: Tensor, weight: float, partners: Tensor) -> tuple[Tensor, MixedLabels]:
    """MixUp: weight * images + (1 - weight) * images[partners], and the labels to go with them."""
    # Subtracted in 64 bits, before rounding: as exact as where the loss is weighted with numbers of Python.
    first, second = _numbers(images, weight, 1 - weight)
    # Indexing has made a copy already, so mixing in place saves the memory of a third batch.
    return images[partners].lerp_(images, first), MixedLabels(labels[partners], first, second)


def _cutmix(
    images: Tensor, labels: Tensor, weight: float, centre: tuple[float, float], partners: Tensor
) -> tuple[Tensor, MixedLabels]:
    """CutMix: a box of share 1 - weight around `centre` (in 0..1) comes from images[partners], clipped at the border.

    The labels' weight is the share of the first image that is really left.
    """
    height, width = images.shape[2:]
    # Sides of sqrt(1 - weight) make an area of 1 - weight (CutMix, Yun et al. 2019).
    half = 0.5 * math.sqrt(1 - weight)
    y, x = int(centre[0] * height), int(centre[1] * width)
    top, bottom = max(0, y - int(half * height)), min(height, y + int(half * height))
    left, right = max(0, x - int(half * width)), min(width, x + int(half * width))
    kept = 1 - (bottom - top) * (right - left) / (height * width)
    # A mask, not a slice: the bounds of a slice are part of the operation, so each box would be compiled anew.
    first, second, *edges = _numbers(images, kept, 1 - kept, top, bottom, left, right)
    rows, columns = (torch.arange(size, device=images.device) for size in (height, width))
    in_rows, in_columns = (rows >= edges[0]) & (rows < edges[1]), (columns >= edges[2]) & (columns < edges[3])
    # Into memory laid out as the images are, whatever layout indexing chose.
    mixed = torch.where(in_rows[:, None] & in_columns, images[partners], images, out=torch.empty_like(images))
    return mixed, MixedLabels(labels[partners], first, second)
