"""One optimiser step: micro-batches forward and backward, update, moving average. Nothing else is in the hot path.

The order of steps, reporting and evaluation are `loop`'s; `setup` creates the step.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from vernier.clock import now_s
from vernier.config import Config, Derived
from vernier.data.augment.normalize import Normalizer
from vernier.data.loading.loader import Batch
from vernier.devices import Device
from vernier.engine.processes.world import World
from vernier.engine.training.loss_scaling import LossScaler
from vernier.optim.build import set_lr
from vernier.optim.ema import WeightAverage
from vernier.optim.schedules import learning_rate
from vernier.randomness import Stream, key
from vernier.tasks.base import MicroStep, Task

Phase = Callable[[str], AbstractContextManager[Any]]
"""Wraps each part of a step that is measured or profiled: data, copy, forward, backward, optimizer."""

_NO_TIMER = nullcontext()


def untimed(_: str) -> AbstractContextManager[Any]:
    """The phase timer that does nothing."""
    return _NO_TIMER


class TrainStep:
    """One step, called with its number and a stream of batches.

    Returns the mean loss (on the device), the seconds waited for data, and the seconds until this process had sent its
    last gradients.

    `network` is the model as it is executed: compiled or traced, and with gradients averaged over processes.
    """

    def __init__(
        self,
        *,
        config: Config,
        derived: Derived,
        task: Task,
        model: nn.Module,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        average: WeightAverage | None,
        device: Device,
        world: World,
    ) -> None:
        self._torch_device = device.torch_device(world.topology.local_rank)
        self.scaler = LossScaler(config.machine, self._torch_device)
        self.phase: Phase = untimed
        self.apart = False
        """Do not exchange gradients: to measure what the exchange costs. Never when training."""
        self._recipe, self._precision, self._derived = config.recipe, config.machine.precision, derived
        self._task, self._model, self._network = task, model, network
        self._optimizer, self._average, self._device, self._world = optimizer, average, device, world
        self._normalize = Normalizer(config.recipe.data, self._torch_device)

    def __call__(self, step: int, batches: Iterator[Batch]) -> tuple[torch.Tensor, float, float]:
        total_loss, wait_s, began_s = torch.zeros((), device=self._torch_device), 0.0, now_s()
        for micro in range(self._derived.accumulation):
            self._device.uploads_done()
            with self.phase("data"):
                batch = next(batches)
            self._world.count_collective()
            wait_s += batch.wait_s
            torch.default_generator.manual_seed(key(Stream.STEP, self._recipe.seed, step, micro, self._world.rank))
            with self._gradient_sync(micro):
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

    def _gradient_sync(self, micro: int) -> AbstractContextManager[Any]:
        """Gradients are exchanged once per step: during the backward pass of the last micro-batch."""
        if self._world.size == 1 or (micro == self._derived.accumulation - 1 and not self.apart):
            return nullcontext()
        no_sync: AbstractContextManager[Any] = self._network.no_sync()  # type: ignore[operator]
        return no_sync

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
        with self._device.autocast(self._precision):
            return self._network(images)

    def _loss(self, step: int, micro: int, batch: Batch) -> torch.Tensor:
        with self.phase("copy"):
            images = self._normalize(self._device.upload(batch.images, self._torch_device))
            targets = batch.targets.to(self._torch_device, non_blocking=True)
        with self.phase("forward"):
            return self._task.loss(self._forward, images, targets, MicroStep(step, micro, self._world.rank))
