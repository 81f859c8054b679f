"""Image classification: smoothed, possibly mixed cross-entropy in training; exact top-1, top-5 and loss in evaluation."""

import math
from dataclasses import dataclass, field

import torch
from torch.nn import functional as F

from vernier.config import Loss


@dataclass(frozen=True)
class Mixed:
    """MixUp's second labels and the weight of the first."""

    labels: torch.Tensor
    weight: float


def mix_images(
    images: torch.Tensor, labels: torch.Tensor, weight: float, order: torch.Tensor
) -> tuple[torch.Tensor, Mixed]:
    """weight * images + (1 - weight) * images[order], and the labels to go with them."""
    return torch.lerp(images[order], images, weight), Mixed(labels[order], weight)


def training_loss(logits: torch.Tensor, labels: torch.Tensor, loss: Loss, mixed: Mixed | None = None) -> torch.Tensor:
    """Mean over the batch. Smoothing spreads its mass evenly over all classes, the true one included."""
    logits = logits.float()
    value = F.cross_entropy(logits, labels, label_smoothing=loss.label_smoothing)
    if mixed is None:
        return value
    other = F.cross_entropy(logits, mixed.labels, label_smoothing=loss.label_smoothing)
    return mixed.weight * value + (1 - mixed.weight) * other


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
