"""Image classification: smoothed, possibly mixed targets in training; exact top-1, top-5 and loss in evaluation."""

import math
from dataclasses import dataclass, field

import torch
from torch.nn import functional as F

from vernier.config import Loss


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


@dataclass
class Score:
    """Counts over evaluated samples. Batches are kept apart and summed exactly, so the order they come in cannot matter."""

    samples: int = 0
    correct1: int = 0
    correct5: int = 0
    batch_losses: list[float] = field(default_factory=list)

    def add(self, logits: torch.Tensor, labels: torch.Tensor) -> None:
        logits = logits.float()
        top = logits.topk(min(5, logits.shape[1]), dim=1).indices
        hits = top == labels[:, None]
        self.samples += len(labels)
        self.correct1 += int(hits[:, 0].sum())
        self.correct5 += int(hits.sum())
        self.batch_losses.append(float(F.cross_entropy(logits, labels, reduction="none").double().sum()))

    def result(self) -> dict[str, float | int]:
        """top1 and top5 in percent, mean loss, and over how many samples."""
        n = max(self.samples, 1)
        return {
            "top1": 100 * self.correct1 / n,
            "top5": 100 * self.correct5 / n,
            "loss": math.fsum(self.batch_losses) / n,
            "samples": self.samples,
        }
