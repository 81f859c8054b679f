"""One optimiser step: micro-batches forward and backward, update, moving average. Nothing else happens in the hot path."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from vernier.clock import now_s
from vernier.config import Derived, Recipe
from vernier.data.augment.normalize import Normalizer
from vernier.data.loading.loader import Batch
from vernier.devices import Device
from vernier.engine.execution import Autocast
from vernier.engine.processes.world import World
from vernier.engine.training.loss_scaling import LossScaler
from vernier.optim.build import set_lr
from vernier.optim.ema import WeightAverage
from vernier.optim.schedules import learning_rate
from vernier.randomness import Stream, key
from vernier.tasks.base import MicroStep, Task

Phase = Callable[[str], AbstractContextManager[Any]]
"""Put around each part of a step by whoever measures or profiles it: data, copy, forward, backward, optimizer."""

_NOTHING = nullcontext()


def unmeasured(_: str) -> AbstractContextManager[Any]:
    """No one looks: the phases of a step are just the step."""
    return _NOTHING


class TrainStep:
    """Callable with the step's number and a stream of batches; returns the mean loss (on the device), seconds waited for
    data, and seconds until this process had nothing more to add to the gradients.

    `network` is the model as it is executed: compiled or traced, and with gradients averaged over processes.
    """

    def __init__(
        self, *, task: Task, model: nn.Module, network: nn.Module, optimizer: torch.optim.Optimizer,
        average: WeightAverage | None, scaler: LossScaler, autocast: Autocast, recipe: Recipe, derived: Derived,
        normalize: Normalizer, device: Device, place: torch.device, world: World,
    ) -> None:  # fmt: skip
        self.scaler, self._autocast, self._task = scaler, autocast, task
        self.phase: Phase = unmeasured
        self.apart = False
        """Keep gradients to oneself: to measure what exchanging them costs. Never when training."""
        self._model, self._network, self._optimizer, self._average = model, network, optimizer, average
        self._recipe, self._derived, self._normalize = recipe, derived, normalize
        self._device, self._place, self._world = device, place, world

    def __call__(self, step: int, batches: Iterator[Batch]) -> tuple[torch.Tensor, float, float]:
        total_loss, wait_s, began_s = torch.zeros((), device=self._place), 0.0, now_s()
        for micro in range(self._derived.accumulation):
            self._device.uploads_done()
            with self.phase("data"):
                batch = next(batches)
            self._world.count_collective()
            wait_s += batch.wait_s
            torch.default_generator.manual_seed(key(Stream.STEP, self._recipe.seed, step, micro, self._world.rank))
            with self._sharing(micro):
                loss = self._loss(step, micro, batch) / self._derived.accumulation
                with self.phase("backward"):
                    self.scaler.backward(loss)
            self._device.mark_step()
            total_loss += loss.detach()
        own_s = (self._world.last_bucket_sent_s or now_s()) - began_s
        self._world.note_exposed_communication()
        with self.phase("optimizer"):
            self._update(step)
        return total_loss, wait_s, own_s

    def _sharing(self, micro: int) -> AbstractContextManager[Any]:
        """Gradients are exchanged once a step: while those of the last micro-batch are computed."""
        if self._world.size == 1 or (micro == self._derived.accumulation - 1 and not self.apart):
            return nullcontext()
        quiet: AbstractContextManager[Any] = self._network.no_sync()  # type: ignore[operator]
        return quiet

    def _update(self, step: int) -> None:
        if self._recipe.optim.clip_norm > 0:
            self.scaler.unscale(self._optimizer)
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._recipe.optim.clip_norm)
        set_lr(self._optimizer, learning_rate(step, self._recipe.schedule, self._derived))
        self.scaler.step(self._optimizer)
        self._optimizer.zero_grad(set_to_none=True)
        self._device.mark_step()
        if self._average is not None:
            self._average.update(step + 1)

    def _forward(self, images: torch.Tensor) -> Any:
        with self._autocast():
            return self._network(images)

    def _loss(self, step: int, micro: int, batch: Batch) -> torch.Tensor:
        with self.phase("copy"):
            images = self._normalize(self._device.upload(batch.images, self._place))
            targets = batch.targets.to(self._place, non_blocking=True)
        with self.phase("forward"):
            return self._task.loss(self._forward, images, targets, MicroStep(step, micro, self._world.rank))
