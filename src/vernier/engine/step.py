"""One optimiser step: micro-batches forward and backward, update, moving average. Nothing else happens in the hot path."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from vernier.config import Derived, Recipe
from vernier.data.chance import key
from vernier.data.loader import Batch
from vernier.data.transforms import Normalizer
from vernier.engine.scaling import LossScaler
from vernier.optim.build import set_lr
from vernier.optim.ema import WeightAverage
from vernier.optim.schedules import learning_rate
from vernier.tasks.base import Moment, Task

Autocast = Callable[[], AbstractContextManager[Any]]

_STREAM_STEP = 3


class TrainStep:
    """Callable with the step's number and a stream of batches; returns the mean loss (on the device) and seconds waited for data."""

    def __init__(
        self, *, task: Task, model: nn.Module, optimizer: torch.optim.Optimizer, average: WeightAverage | None,
        scaler: LossScaler, autocast: Autocast, recipe: Recipe, derived: Derived, normalize: Normalizer,
        device: torch.device, rank: int = 0,
    ) -> None:  # fmt: skip
        self.scaler, self._autocast, self._task = scaler, autocast, task
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

    def _forward(self, images: torch.Tensor) -> Any:
        with self._autocast():
            return self._model(images)

    def _loss(self, step: int, micro: int, batch: Batch) -> torch.Tensor:
        images = self._normalize(batch.images.to(self._device, non_blocking=True))
        targets = batch.targets.to(self._device, non_blocking=True)
        return self._task.loss(self._forward, images, targets, Moment(step, micro, self._rank))
