"""One optimiser step: micro-batches forward and backward, update, moving average. Nothing else happens in the hot path."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from vernier.config import Augment, Derived, Recipe
from vernier.data.chance import key
from vernier.data.loader import Batch
from vernier.data.transforms import Normalizer
from vernier.engine.scaling import LossScaler
from vernier.optim.build import set_lr
from vernier.optim.ema import WeightAverage
from vernier.optim.schedules import learning_rate
from vernier.tasks.classify import Mixed, cut_images, mix_images, training_loss

Autocast = Callable[[], AbstractContextManager[Any]]

_STREAM_STEP = 3
_STREAM_MIX = 4


class TrainStep:
    """Callable with the step's number and a stream of batches; returns the mean loss (on the device) and seconds waited for data."""

    def __init__(
        self, *, model: nn.Module, optimizer: torch.optim.Optimizer, average: WeightAverage | None,
        scaler: LossScaler, autocast: Autocast, recipe: Recipe, derived: Derived, normalize: Normalizer,
        device: torch.device, rank: int = 0,
    ) -> None:  # fmt: skip
        self.scaler, self._autocast = scaler, autocast
        self._model, self._optimizer, self._average = model, optimizer, average
        self._recipe, self._derived, self._normalize, self._device, self._rank = (
            recipe,
            derived,
            normalize,
            device,
            rank,
        )

    def __call__(self, step: int, batches: Iterator[Batch]) -> tuple[torch.Tensor, float]:
        total_loss, wait_s = torch.zeros((), device=self._device), 0.0
        for micro in range(self._derived.accumulation):
            batch = next(batches)
            wait_s += batch.wait_s
            torch.default_generator.manual_seed(key(_STREAM_STEP, self._recipe.seed, step, micro, self._rank))
            loss = self._loss(step, micro, batch) / self._derived.accumulation
            self.scaler.backward(loss)
            total_loss += loss.detach()
        if self._recipe.optim.clip_norm > 0:
            self.scaler.unscale(self._optimizer)
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._recipe.optim.clip_norm)
        set_lr(self._optimizer, learning_rate(step, self._recipe.schedule, self._derived))
        self.scaler.step(self._optimizer)
        self._optimizer.zero_grad(set_to_none=True)
        if self._average is not None:
            self._average.update(step + 1)
        return total_loss, wait_s

    def _loss(self, step: int, micro: int, batch: Batch) -> torch.Tensor:
        images = self._normalize(batch.images.to(self._device, non_blocking=True))
        labels = batch.targets.to(self._device, non_blocking=True)
        mixed: Mixed | None = None
        draw = mix_draw(self._recipe.augment, self._recipe.seed, step)
        if draw is not None:
            order = mix_partners(self._recipe.seed, step, micro, self._rank, len(labels)).to(self._device)
            if draw.kind == "mixup":
                images, mixed = mix_images(images, labels, draw.weight, order)
            else:
                images, mixed = cut_images(images, labels, draw.weight, draw.centre, order)
        with self._autocast():
            logits = self._model(images)
        return training_loss(logits, labels, self._recipe.loss, mixed)


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
