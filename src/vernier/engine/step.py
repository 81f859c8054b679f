"""One optimiser step: micro-batches forward and backward, update, moving average. Nothing else happens in the hot path."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from vernier.config import Derived, Recipe
from vernier.data.chance import key
from vernier.data.loader import Batch
from vernier.data.transforms import Normalizer
from vernier.optim.ema import WeightAverage
from vernier.optim.schedules import learning_rate
from vernier.optim.sgd import set_lr
from vernier.tasks.classify import Mixed, mix_images, training_loss

_STREAM_STEP = 3
_STREAM_MIX = 4


class TrainStep:
    """Callable with the step's number and a stream of batches; returns the mean loss (on the device) and seconds waited for data."""

    def __init__(
        self, *, model: nn.Module, optimizer: torch.optim.Optimizer, average: WeightAverage | None,
        recipe: Recipe, derived: Derived, normalize: Normalizer, device: torch.device, rank: int = 0,
    ) -> None:  # fmt: skip
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
            loss.backward()  # type: ignore[no-untyped-call]
            total_loss += loss.detach()
        set_lr(self._optimizer, learning_rate(step, self._recipe.schedule, self._derived))
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        if self._average is not None:
            self._average.update(step + 1)
        return total_loss, wait_s

    def _loss(self, step: int, micro: int, batch: Batch) -> torch.Tensor:
        images = self._normalize(batch.images.to(self._device, non_blocking=True))
        labels = batch.labels.to(self._device, non_blocking=True)
        mixed: Mixed | None = None
        if self._recipe.augment.mixup > 0:
            weight, order = mixup_draw(
                self._recipe.seed, step, micro, self._rank, self._recipe.augment.mixup, len(labels)
            )
            images, mixed = mix_images(images, labels, weight, order.to(self._device))
        return training_loss(self._model(images), labels, self._recipe.loss, mixed)


def mixup_draw(seed: int, step: int, micro: int, rank: int, alpha: float, count: int) -> tuple[float, torch.Tensor]:
    """MixUp's weight, one for the whole step, and this micro-batch's partners."""
    weight = np.random.Generator(np.random.Philox(key=key(_STREAM_MIX, seed, step))).beta(alpha, alpha)
    partners = np.random.Generator(np.random.Philox(key=key(_STREAM_MIX, seed, step, micro, rank))).permutation(count)
    return float(weight), torch.from_numpy(partners)
