"""Training on classes with different numbers of images: class weights, focal loss, and balanced sampling.

Weights and focal loss plug in as `vernier.class_losses`, sampling as `vernier.orders`. Every loss is a mean over
images, never over their weights: so it does not depend on how a batch is divided among processes.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from vernier.config import Loss, Recipe
from vernier.data.loading.order import TrainOrder
from vernier.data.sources import Source
from vernier.data.sources.base import Indices
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.randomness import Stream, key, permuted
from vernier.references import given, use

PerImage = Callable[[Tensor, Tensor], Tensor]
"""The cross-entropy of each image, smoothed as the recipe says."""


class ClassLoss:
    """The mean over images of cross-entropy or focal loss, each times the weight of its class."""

    def __init__(self, loss: Loss, source: Source, per_image: PerImage) -> None:
        if loss.kind not in ("cross-entropy", "focal"):
            raise ConfigError(
                f"{given('loss.class_weights', loss.class_weights)} does not work with {given('loss.kind', loss.kind)}."
                f" Use {use('loss.kind', 'cross-entropy')}, or {use('data.sampling', 'balanced')}."
            )
        self._per_image, self._focal = per_image, loss.focal_gamma if loss.kind == "focal" else 0.0
        self._weights = _class_weights(loss.class_weights, source)

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = self._per_image(logits, labels)
        if self._focal:
            # Lin et al. 2017: (1 - p)^gamma. Not below 1e-6: with gamma < 1 the gradient at p = 1 would be infinite.
            doubt = 1 - logits.softmax(1).gather(1, labels[:, None])[:, 0]
            losses = losses * doubt.clamp_min(1e-6).pow(self._focal)
        if self._weights is not None:
            self._weights = self._weights.to(logits.device)
            losses = losses * self._weights[labels]
        return losses.mean()


def _class_weights(text: str, source: Source) -> Tensor | None:
    """The weight of each class; None: all are 1. Raises ConfigError."""
    if text == "none":
        return None
    classes = source.classes
    if text == "auto":
        counts = np.bincount(source.all_labels(), minlength=len(classes))
        # The mean over the training images is 1, so that the learning rate keeps its meaning.
        weights = len(source) / (np.count_nonzero(counts) * np.maximum(counts, 1))
        return torch.tensor(weights, dtype=torch.float32)
    setting = given("loss.class_weights", text)
    try:
        numbers = [float(part) for part in text.strip("[]() ").split(",")]
    except ValueError as error:
        raise ConfigError(f"{setting}: {error}. Use none, auto, or a number per class, such as 1,2.5.") from None
    if len(numbers) != len(classes):
        raise ConfigError(
            f"{setting} has {len(numbers)} numbers for {len(classes)} classes, in this order: {', '.join(classes[:20])}"
            f"{', ...' if len(classes) > 20 else ''}."
        )
    if wrong := [name for name, weight in zip(classes, numbers, strict=True) if not 0 < weight < math.inf]:
        raise ConfigError(f"{setting}: the weight of {', '.join(wrong)} is no number above 0.")
    return torch.tensor(numbers)


@frozen
class _BalancedOrder(TrainOrder):
    """Every class equally often: an epoch of the same length shows part of large classes, and small ones repeatedly."""

    members: tuple[Indices, ...]
    """The samples of each class that has any."""

    def at(self, epoch: int, positions: Indices) -> Indices:
        # Shuffled slots go round the classes; the draws of a class are shuffled anew each time it is used up.
        draw, kind = np.divmod(super().at(epoch, positions), len(self.members))
        out = np.empty(len(positions), dtype=np.int64)
        for which in np.unique(kind).tolist():
            members, chosen = self.members[which], kind == which
            rounds, within = np.divmod(draw[chosen], len(members))
            samples = out[chosen]
            for turn in np.unique(rounds).tolist():
                at = key(Stream.BALANCE, self.seed, epoch, which, turn)
                samples[rounds == turn] = members[permuted(at, within[rounds == turn], len(members))]
            # Beyond the set an index is a copy, which is augmented in its own way; those of `repeats` come in between.
            out[chosen] = samples + rounds * self.samples * (self.repeats + 1)
        return out


def balanced_order(order: TrainOrder, source: Source, recipe: Recipe) -> TrainOrder:
    """The order of `data.sampling = balanced`. Raises ConfigError."""
    if recipe.data.shuffle_shards:
        raise ConfigError(
            f"{given('data.shuffle_shards', recipe.data.shuffle_shards)} reads neighboring images, and "
            f"{given('data.sampling', 'balanced')} takes them from all of the set. Omit one of them."
        )
    labels = source.all_labels()
    members = tuple(np.flatnonzero(labels == each) for each in np.unique(labels))
    return _BalancedOrder(**vars(order), members=members)
