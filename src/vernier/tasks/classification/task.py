"""Image classification: the loss on smoothed, possibly mixed labels, and the prediction. The metric is in `score`."""

from typing import Any

import torch
from torch.nn import functional as F

from vernier.config import Loss, Machine, Recipe
from vernier.data.augment.mixing import MixedLabels, mix_batch
from vernier.data.augment.normalize import describe_normalisation
from vernier.data.loading.backends import train_reader
from vernier.data.loading.readers import EvalReader
from vernier.data.sources import Source, open_split
from vernier.data.sources.views import with_channels
from vernier.records.predictions import ScoredClass
from vernier.tasks.base import BatchLoss, CountingReader, Forward, MicroStep

from .score import ClassificationScore


class Classify:
    """One class per image."""

    name, metric = "classify", "top1"

    def __init__(self, recipe: Recipe, shard_cache_gb: float | None = None) -> None:
        self._recipe, self._shard_cache_gb = recipe, shard_cache_gb

    def open(self, split: str, *, whole: bool = False) -> Source:
        data = self._recipe.data
        source = open_split(
            data.source,
            split,
            val_share=data.val_share,
            whole=whole,
            hold_out=data.hold_out,
            shard_cache_gb=self._shard_cache_gb,
        )
        return with_channels(source, len(data.mean))

    def describe_preparation(self) -> str:
        data = self._recipe.data
        return (
            f"short side {data.eval_short_side_px}, centre {data.eval_px}, {data.interpolation}, "
            f"{describe_normalisation(data)}"
        )

    def outputs(self, classes: int) -> int:
        return classes + self._recipe.model.unused_outputs

    def train_reader(self, source: Source, cached: Source, machine: Machine) -> CountingReader:
        return train_reader(source, cached, self._recipe, machine)

    def eval_reader(self, source: Source) -> CountingReader:
        return EvalReader(source, self._recipe.data)

    def loss(
        self, forward: Forward, images: torch.Tensor, targets: torch.Tensor, at: MicroStep, *, count_hits: bool = False
    ) -> BatchLoss:
        recipe = self._recipe
        # Mixed on the device after normalization, from the step's own random stream: a resumed run repeats it.
        images, mixed = mix_batch(
            images, targets, recipe.augment, seed=recipe.seed, step=at.step, micro=at.micro, rank=at.rank
        )
        logits = forward(images)
        hits = training_hits(logits, targets, mixed) if count_hits else None
        return BatchLoss(training_loss(logits, targets, recipe.loss, mixed), hits)

    def predict(self, forward: Forward, images: torch.Tensor) -> torch.Tensor:
        """Compute logits; with test-time augmentation their mean over the image and its mirror image."""
        logits: torch.Tensor = forward(images).float()
        if self._recipe.eval.flip_tta:
            logits = (logits + forward(images.flip(3)).float()) / 2
        return logits

    def name_predictions(
        self, predicted: torch.Tensor, targets: Any, classes: tuple[str, ...]
    ) -> list[list[ScoredClass]]:
        """Give the five most likely classes; unused outputs are left out."""
        # Unused outputs are cut off before the softmax, so that the scores of all real classes add up to 1.
        best = predicted[:, : len(classes)].softmax(1).topk(min(5, len(classes)), dim=1)
        scores, kinds = torch.stack([best.values, best.indices.float()]).tolist()  # one transfer from the device
        return [
            [ScoredClass(class_name=classes[int(c)], score=s) for s, c in zip(*image, strict=True)]
            for image in zip(scores, kinds, strict=True)
        ]

    def score(self, source: Source) -> ClassificationScore:
        return ClassificationScore(source)

    def target(self) -> float | None:
        return self._recipe.eval.target_top1

    def category_ids(self, source: Source) -> None:
        return None


def training_loss(
    logits: torch.Tensor, labels: torch.Tensor, loss: Loss, mixed: MixedLabels | None = None
) -> torch.Tensor:
    """Compute the mean loss over the batch, and over the classes with `bce`."""
    logits = logits.float()
    if loss.kind == "bce":
        return F.binary_cross_entropy_with_logits(logits, _binary_targets(logits, labels, loss, mixed))
    value = _cross_entropy(logits, labels, loss)
    if mixed is None:
        return value
    # Cross-entropy is linear in its target: two hard labels, weighted, equal one mixed target [N, K].
    return mixed.weight * value + (1 - mixed.weight) * _cross_entropy(logits, mixed.second, loss)


def training_hits(logits: torch.Tensor, labels: torch.Tensor, mixed: MixedLabels | None = None) -> torch.Tensor:
    """Count the images whose class is the most likely one, and among the five most likely: [2], where the logits are.

    An image mixed from two counts for each of its labels by that label's share, as in the code of the MixUp paper.
    """
    # [N, 5] class numbers, best first; each label occurs at most once in its row.
    best = logits.detach().topk(min(5, logits.shape[1]), dim=1).indices

    def hits(labels: torch.Tensor) -> torch.Tensor:
        right = (best == labels[:, None]).float()
        return torch.stack([right[:, 0].sum(), right.sum()])

    if mixed is None:
        return hits(labels)
    return mixed.weight * hits(labels) + (1 - mixed.weight) * hits(mixed.second)


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor, loss: Loss) -> torch.Tensor:
    """Cross-entropy with smoothing over all K classes; over the other K - 1 it is the same with a larger mass."""
    classes, mass = logits.shape[1], loss.label_smoothing
    if loss.smoothing_over == "others" and classes > 1:
        # PyTorch gives each of the K classes mass / K, the true one included. Others get e / (K - 1) if mass is
        # e K / (K - 1), and the true class then keeps 1 - e.
        mass = mass * classes / (classes - 1)
    return F.cross_entropy(logits, labels, label_smoothing=mass)


def _binary_targets(logits: torch.Tensor, labels: torch.Tensor, loss: Loss, mixed: MixedLabels | None) -> torch.Tensor:
    """Make targets [samples, classes] in 0..1: smoothed one-hot labels, mixed, then thresholded if there is a
    threshold."""
    classes = logits.shape[1]
    off = loss.label_smoothing / (classes if loss.smoothing_over == "all" else max(1, classes - 1))
    on = 1 - loss.label_smoothing + (off if loss.smoothing_over == "all" else 0.0)

    def one_hot(labels: torch.Tensor) -> torch.Tensor:
        return torch.full_like(logits, off).scatter_(1, labels[:, None], on)

    targets = one_hot(labels)
    if mixed is not None:
        targets = torch.lerp(one_hot(mixed.second), targets, mixed.weight)
    return targets if loss.bce_threshold is None else (targets > loss.bce_threshold).to(logits.dtype)
