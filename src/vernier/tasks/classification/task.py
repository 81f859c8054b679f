"""Image classification: smoothed, possibly mixed targets in training; exact top-1, top-5 and loss in evaluation."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional as F

from vernier.config import Augment, Loss, Machine, Recipe
from vernier.data.loading.backends import train_reader
from vernier.data.loading.loader import EvalReader
from vernier.data.sources import Source, open_split
from vernier.randomness import key
from vernier.tasks.base import CountingReader, Forward, Moment
from vernier.tasks.classification.score import ClassScore

_STREAM_MIX = 4


class Classify:
    """One class an image."""

    name, metric = "classify", "top1"

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def open(self, split: str) -> Source:
        return open_split(self._recipe.data.source, split, val_share=self._recipe.data.val_share)

    def outputs(self, classes: int) -> int:
        return classes + self._recipe.model.unused_outputs

    def train_reader(self, source: Source, kept: Source, machine: Machine) -> CountingReader:
        return train_reader(source, kept, self._recipe, machine)

    def eval_reader(self, source: Source) -> CountingReader:
        return EvalReader(source, self._recipe.data)

    def loss(self, forward: Forward, images: torch.Tensor, targets: torch.Tensor, when: Moment) -> torch.Tensor:
        mixed: Mixed | None = None
        seed = self._recipe.seed
        if (draw := mix_draw(self._recipe.augment, seed, when.step)) is not None:
            order = mix_partners(seed, when.step, when.micro, when.rank, len(targets)).to(images.device)
            if draw.kind == "mixup":
                images, mixed = mix_images(images, targets, draw.weight, order)
            else:
                images, mixed = cut_images(images, targets, draw.weight, draw.centre, order)
        return training_loss(forward(images), targets, self._recipe.loss, mixed)

    def predict(self, forward: Forward, images: torch.Tensor) -> torch.Tensor:
        """Logits; with test-time augmentation the mean of the image's and its mirror image's."""
        logits: torch.Tensor = forward(images).float()
        if self._recipe.eval.flip_tta:
            logits = (logits + forward(images.flip(3)).float()) / 2
        return logits

    def readable(self, predicted: torch.Tensor, targets: Any, classes: tuple[str, ...]) -> list[list[dict[str, Any]]]:
        """The five most likely classes; outputs that no class has are left out."""
        best = predicted[:, : len(classes)].softmax(1).topk(min(5, len(classes)), dim=1)
        return [
            [{"class": classes[c], "score": s} for s, c in zip(scores, kinds, strict=True)]
            for scores, kinds in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]

    def score(self, source: Source) -> ClassScore:
        return ClassScore(source)

    def target(self) -> float | None:
        return self._recipe.eval.target_top1

    def facts(self, source: Source) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class MixDraw:
    """What one step does to all its images: which mixing, the weight of the first image, where CutMix's box lies."""

    kind: Literal["mixup", "cutmix"]
    weight: float
    centre: tuple[float, float]


def mix_draw(augment: Augment, seed: int, step: int) -> MixDraw | None:
    """The same for every process and micro-step of a step; None when nothing is mixed."""
    if augment.mixup == 0 and augment.cutmix == 0:
        return None
    chance = np.random.Generator(np.random.Philox(key=key(_STREAM_MIX, seed, step)))
    cut = augment.cutmix > 0 and (augment.mixup == 0 or bool(chance.random() < 0.5))
    alpha = augment.cutmix if cut else augment.mixup
    weight = float(chance.beta(alpha, alpha))
    return MixDraw("cutmix" if cut else "mixup", weight, (float(chance.random()), float(chance.random())))


def mix_partners(seed: int, step: int, micro: int, rank: int, count: int) -> torch.Tensor:
    """Whom each image of this micro-batch is mixed with."""
    chance = np.random.Generator(np.random.Philox(key=key(_STREAM_MIX, seed, step, micro, rank)))
    return torch.from_numpy(chance.permutation(count))


@dataclass(frozen=True)
class Mixed:
    """The second labels of MixUp or CutMix, and the weight of the first."""

    labels: torch.Tensor
    weight: float


def mix_images(
    images: torch.Tensor, labels: torch.Tensor, weight: float, order: torch.Tensor
) -> tuple[torch.Tensor, Mixed]:
    """MixUp: weight * images + (1 - weight) * images[order], and the labels to go with them."""
    return torch.lerp(images[order], images, weight), Mixed(labels[order], weight)


def cut_images(
    images: torch.Tensor, labels: torch.Tensor, weight: float, centre: tuple[float, float], order: torch.Tensor
) -> tuple[torch.Tensor, Mixed]:
    """CutMix: a box of share 1 - weight around `centre` (in 0..1) comes from images[order], clipped at the border.

    The labels' weight is the share that is really left of the first image.
    """
    height, width = images.shape[2:]
    half = 0.5 * math.sqrt(1 - weight)
    y, x = int(centre[0] * height), int(centre[1] * width)
    top, bottom = max(0, y - int(half * height)), min(height, y + int(half * height))
    left, right = max(0, x - int(half * width)), min(width, x + int(half * width))
    cut = images.clone()
    cut[:, :, top:bottom, left:right] = images[order, :, top:bottom, left:right]
    return cut, Mixed(labels[order], 1 - (bottom - top) * (right - left) / (height * width))


def training_loss(logits: torch.Tensor, labels: torch.Tensor, loss: Loss, mixed: Mixed | None = None) -> torch.Tensor:
    """Mean over the batch, and over the classes with `bce`."""
    logits = logits.float()
    if loss.kind == "bce":
        return F.binary_cross_entropy_with_logits(logits, _binary_targets(logits, labels, loss, mixed))
    value = _cross_entropy(logits, labels, loss)
    if mixed is None:
        return value
    return mixed.weight * value + (1 - mixed.weight) * _cross_entropy(logits, mixed.labels, loss)


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor, loss: Loss) -> torch.Tensor:
    """Smoothing over all K classes, the true one included; over the other K - 1 it is the same with more of it."""
    classes, mass = logits.shape[1], loss.label_smoothing
    if loss.smoothing_over == "others" and classes > 1:
        mass = mass * classes / (classes - 1)
    return F.cross_entropy(logits, labels, label_smoothing=mass)


def _binary_targets(logits: torch.Tensor, labels: torch.Tensor, loss: Loss, mixed: Mixed | None) -> torch.Tensor:
    """[samples, classes] in 0..1: smoothed one-hot labels, mixed, then cut at the threshold where there is one."""
    classes = logits.shape[1]
    off = loss.label_smoothing / (classes if loss.smoothing_over == "all" else max(1, classes - 1))
    on = 1 - loss.label_smoothing + (off if loss.smoothing_over == "all" else 0.0)

    def targets(of: torch.Tensor) -> torch.Tensor:
        return torch.full_like(logits, off).scatter_(1, of[:, None], on)

    wanted = targets(labels)
    if mixed is not None:
        wanted = torch.lerp(targets(mixed.labels), wanted, mixed.weight)
    return wanted if loss.bce_threshold is None else (wanted > loss.bce_threshold).to(logits.dtype)
