"""One optimiser step: micro-batches forward and backward, update, moving average. Nothing else is in the hot path.

The order of steps, reporting and evaluation are `loop`'s; `setup` creates the step.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vernier.config import Config, Derived
from vernier.data.augment.normalize import Normalizer
from vernier.data.loading.loader import Batch
from vernier.devices import Device
from vernier.engine.processes.gradients import Exchange
from vernier.engine.processes.world import World
from vernier.models.drop_path import PathMasks
from vernier.optim.build import set_lr
from vernier.optim.ema import WeightAverage
from vernier.optim.schedules import learning_rate
from vernier.randomness import Stream, key
from vernier.tasks.base import MicroStep, Task
from vernier.torch_private import foreach_norm

from .head_phase import HeadPhase
from .loss_scaling import LossScaler
from .totals import HitCounter

Phase = Callable[[str], AbstractContextManager[Any]]
"""Wraps each part of a step that is measured or profiled: data, copy, forward, backward, optimizer."""

_NO_TIMER = nullcontext()


def untimed(_: str) -> AbstractContextManager[Any]:
    """The phase timer that does nothing."""
    return _NO_TIMER


@dataclass(kw_only=True)
class TrainStep:
    """One step, called with its number and a stream of batches.

    Returns the mean loss (on the device) and the seconds waited for data. On a device that queues, the step is not done
    then. `exchange` has the model as it is executed, compiled or traced, and averages gradients over processes; where
    it does so for losses as well, the loss is that of all processes. Each phase of training has its own.
    """

    config: Config
    derived: Derived
    task: Task
    model: nn.Module
    head_phase: HeadPhase
    optimizer: torch.optim.Optimizer
    average: WeightAverage | None
    device: Device
    world: World
    paths: PathMasks
    phase: Phase = untimed
    apart: bool = False
    """Do not exchange gradients: to measure what the exchange costs. Never when training."""

    def __post_init__(self) -> None:
        self.exchange: Exchange = self.head_phase.exchange
        self._torch_device = self.device.torch_device(self.world.topology.local_rank)
        self.scaler = LossScaler(self.config.machine, self._torch_device)
        self.hits = HitCounter(self._torch_device, enabled=self.config.limits.train_accuracy)
        self._normalize = Normalizer(self.config.recipe.data, self._torch_device)
        self.lr_factor = 1.0
        """On the schedule's learning rate: lower after a rollback."""
        self.gradient_norm: torch.Tensor | None = None
        """Not finite if a gradient of the last step was not. None where loss scaling skips such steps."""
        self.own_loss: torch.Tensor | None = None
        """This process's part of the last loss, where the step returned that of all processes."""
        self._parts = self.derived.virtual_shards or self.derived.accumulation
        """Losses of so many micro-batches are averaged here, those of further processes by the exchange."""

    def __call__(self, step: int, batches: Iterator[Batch]) -> tuple[torch.Tensor, float]:
        total_loss, wait_s = torch.zeros((), device=self._torch_device), 0.0
        self.exchange = self.head_phase.enter(step)
        self.exchange.begin_step()
        for micro in range(self.derived.accumulation):
            self.device.uploads_done()
            with self.phase("data"):
                batch = next(batches)
            self.world.count_collective()
            wait_s += batch.wait_s
            at = self._position(step, micro)
            self.paths.draw(key(Stream.STEP, self.config.recipe.seed, at.step, at.micro, at.rank))
            self.exchange.begin_micro()
            with self._gradient_sync(micro):
                loss = self._loss(step, micro, batch) / self._parts
                with self.phase("backward"):
                    self.scaler.backward(loss)
                    self.exchange.backward_done()
            self.device.mark_step()
            total_loss += loss.detach()
        if self.exchange.after_backward and not self.apart:
            with self.phase("communication"):
                self.exchange.average()
        with self.phase("optimizer"):
            self._update(step)
        if self.exchange.loss is None:
            return total_loss, wait_s
        self.hits.add(self.exchange.hits)
        self.own_loss = total_loss
        return self.exchange.loss, wait_s

    def _position(self, step: int, micro: int) -> MicroStep:
        """What random choices of a micro-batch depend on: a virtual shard is the same one in any process."""
        if self.derived.virtual_shards is None:
            return MicroStep(step, micro, self.world.rank)
        return MicroStep(step, self.world.rank * self.derived.accumulation + micro, 0)

    def _gradient_sync(self, micro: int) -> AbstractContextManager[Any]:
        """Gradients are exchanged once per step: those of the last micro-batch and all before it."""
        exchanged = micro == self.derived.accumulation - 1 and not self.apart
        return nullcontext() if exchanged else self.exchange.without_exchange()

    def _update(self, step: int) -> None:
        self.gradient_norm = self._clip()
        set_lr(self.optimizer, self.lr_factor * learning_rate(step, self.config.recipe.schedule, self.derived))
        self.scaler.step(self.optimizer)
        self.optimizer.zero_grad(set_to_none=True)
        self.device.mark_step()
        if self.average is not None:
            self.average.update(step + 1)

    def _clip(self) -> torch.Tensor | None:
        """Clip the gradients where the recipe does; a norm of all of them, on the device."""
        limit = self.config.recipe.optim.clip_norm
        if limit > 0:
            self.scaler.unscale(self.optimizer)
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        elif not self.scaler.enabled:
            norms = foreach_norm([p.grad for p in self.model.parameters() if p.grad is not None])
            norm = torch.stack(norms).sum()
        return None if self.scaler.enabled else norm

    def _forward(self, images: torch.Tensor) -> Any:
        with self.device.autocast(self.config.machine.precision):
            return self.exchange.network(images)

    def _loss(self, step: int, micro: int, batch: Batch) -> torch.Tensor:
        with self.phase("copy"):
            images = self._normalize(self.device.upload(batch.images, self._torch_device))
            targets = batch.targets.to(self._torch_device, non_blocking=True)
        with self.phase("forward"):
            at = self._position(step, micro)
            result = self.task.loss(self._forward, images, targets, at, count_hits=self.hits.enabled)
        self.exchange.forward_done(result.loss, result.hits)
        if self.derived.virtual_shards is None:
            self.hits.add(result.hits)
        return result.loss
