"""One optimiser step: micro-batches forward and backward, update, moving average. Nothing else is in the hot path.

The order of steps, reporting and evaluation are `loop`'s; `setup` creates the step.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vernier.config import Config, Derived, own_references
from vernier.data.augment.normalize import Normalizer
from vernier.data.loading.loader import Batch
from vernier.devices import Device
from vernier.engine.processes.gradients import GradientReduction
from vernier.engine.processes.world import World
from vernier.models import is_outside
from vernier.models.drop_path import PathMasks
from vernier.optim.build import set_lr
from vernier.optim.ema import WeightAverage
from vernier.optim.schedules import learning_rate
from vernier.randomness import Stream, key
from vernier.tasks.base import MicroStep, Task
from vernier.torch_private import foreach_norm

from .guard import Guard, Watch
from .head_warmup import HeadWarmup
from .loss_scaling import LossScaler
from .totals import CorrectCounter

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
    then. `reduction` has the model as it is executed, compiled or traced, and averages gradients over processes; where
    it does so for losses as well, the loss is that of all processes. Each phase of training has its own.
    """

    config: Config
    derived: Derived
    task: Task
    model: nn.Module
    head_warmup: HeadWarmup
    optimizer: torch.optim.Optimizer
    average: WeightAverage | None
    device: Device
    world: World
    paths: PathMasks
    phase: Phase = untimed
    no_sync: bool = False
    """Omit the gradient all-reduce, to measure what it costs. Never when training."""

    def __post_init__(self) -> None:
        self.reduction: GradientReduction = self.head_warmup.reduction
        self._torch_device = self.device.torch_device(self.world.topology.local_rank)
        self.scaler = LossScaler(self.config.machine, self._torch_device)
        self.correct = CorrectCounter(self._torch_device, enabled=self.config.limits.train_accuracy)
        self.guard = Guard()
        self._own_code = is_outside(self.config.recipe.model.name) or bool(own_references(self.config.recipe))
        self._normalize = Normalizer(self.config.recipe.data, self._torch_device)
        self.lr_factor = 1.0
        """On the schedule's learning rate: lower after a rollback."""
        self.gradient_norm: torch.Tensor | None = None
        """Not finite if a gradient of the last step was not. None where loss scaling skips such steps."""
        self.own_loss: torch.Tensor | None = None
        """This process's part of the last loss, where the step returned that of all processes."""
        self._parts = self.derived.virtual_shards or self.derived.accumulation
        """Losses of so many micro-batches are averaged here, those of further processes by the reduction."""

    def __call__(self, step: int, batches: Iterator[Batch]) -> tuple[torch.Tensor, float]:
        total_loss, wait_s = torch.zeros((), device=self._torch_device), 0.0
        # Before anything is queued: at the end of head warm-up the reduction is another object, with other parameters.
        self.reduction = self.head_warmup.enter(step)
        self.reduction.begin_step()
        self.guard.begin_step(step + 1)
        for micro in range(self.derived.accumulation):
            if micro:  # on a lazy device each micro-batch is a program: all together would hold their activations
                self.device.end_step()
            with self.phase("data"):
                batch = next(batches)
            # Once per micro-batch in every process: the heartbeat names the rank that entered fewest.
            self.world.count_collective()
            wait_s += batch.wait_s
            at = self._position(step, micro)
            self._begin_random(at)
            self.reduction.begin_micro()
            self.reduction.watch = self.guard.watch(at.micro)
            with self._gradient_sync(micro):
                loss = self._loss(at, batch) / self._parts
                with self.phase("backward"):
                    self.scaler.backward(loss)
                    self.reduction.backward_done()
            # Summed on the device: reading the loss here would wait for the step.
            total_loss += loss.detach()
        self.guard.gradients_done()
        if self.reduction.after_backward and not self.no_sync:
            with self.phase("communication"):
                self.reduction.average()
        with self.phase("optimizer"):
            self._update(step)
        if self.reduction.loss is None:
            return total_loss, wait_s
        self.correct.add(self.reduction.correct)
        self.own_loss = total_loss
        return self.reduction.loss, wait_s

    def _begin_random(self, at: MicroStep) -> None:
        """Make what a micro-batch draws a function of its position."""
        seed = self.config.recipe.seed
        # Drawn here, not in forward: with activation checkpointing forward runs twice and must drop the same paths.
        self.paths.draw(key(Stream.STEP, seed, at.step, at.micro, at.rank))
        if self._own_code:  # dropout in a user's model, noise in a loss: a resumed run draws the same
            # PyTorch's function seeds every kind of device, which takes a millisecond where CUDA is not in use.
            seed_all: Any = torch.default_generator if self._torch_device.type == "cpu" else torch
            seed_all.manual_seed(key(Stream.OWN_STEP, seed, at.step, at.micro, at.rank))

    def _position(self, step: int, micro: int) -> MicroStep:
        """What random choices of a micro-batch depend on: a virtual shard is the same one in any process."""
        if self.derived.virtual_shards is None:
            return MicroStep(step, micro, self.world.rank)
        return MicroStep(step, self.world.rank * self.derived.accumulation + micro, 0)

    def _gradient_sync(self, micro: int) -> AbstractContextManager[Any]:
        """Gradients are all-reduced once per step: those of the last micro-batch and all before it."""
        # DistributedDataParallel sums into .grad without sending until the last micro-batch: one all-reduce per step.
        synced = micro == self.derived.accumulation - 1 and not self.no_sync
        return nullcontext() if synced else self.reduction.no_sync()

    def _update(self, step: int) -> None:
        self.gradient_norm = self._clip()
        self.guard.before_update(step + 1)
        # Set in every step from its number, so that a resumed run needs no state of a scheduler.
        set_lr(self.optimizer, self.lr_factor * learning_rate(step, self.config.recipe.schedule, self.derived))
        if self.scaler.enabled:
            self.scaler.step(self.optimizer)
        else:
            self.device.optimizer_step(self.optimizer)
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(step + 1)
        self.guard.after_update(step + 1)
        # Once, after all that belongs to the step: on a lazy device the whole step is one program.
        self.device.end_step()

    def _clip(self) -> torch.Tensor | None:
        """Clip the gradients where the recipe does; a norm of all of them, on the device."""
        limit = self.config.recipe.optim.clip_norm
        if limit > 0:
            # The limit is on the true gradients; the norm of scaled ones would change with the scale.
            self.scaler.unscale(self.optimizer)
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        elif not self.scaler.enabled:
            # Only whether it is finite matters, so a sum of norms does: it needs no second pass for squares.
            norms = foreach_norm([p.grad for p in self.model.parameters() if p.grad is not None])
            norm = torch.stack(norms).sum()
        return None if self.scaler.enabled else norm

    def _forward(self, images: torch.Tensor) -> Any:
        with self.device.autocast(self.config.machine.precision):
            return self.reduction.network(images)

    def compute_shard(self, at: MicroStep, batch: Batch, watch: Watch) -> None:
        """Compute the gradients of a virtual shard for `watch` alone, before those of the step are averaged."""
        self._begin_random(at)
        self.reduction.begin_micro()
        self.reduction.watch, self.reduction.only_watch = watch, True
        try:
            self.scaler.backward(self._loss(at, batch, again=True) / self._parts)
        finally:
            self.reduction.watch, self.reduction.only_watch = None, False

    def _loss(self, at: MicroStep, batch: Batch, *, again: bool = False) -> torch.Tensor:
        with self.phase("copy"):
            images = self._normalize(self.device.upload(batch.images, self._torch_device))
            batch.copied()
            targets = batch.targets.to(self._torch_device, non_blocking=True)
        with self.phase("forward"):
            result = self.task.loss(self._forward, images, targets, at, count_correct=self.correct.enabled)
        if again:
            return result.loss
        self.reduction.forward_done(result.loss, result.correct)
        if self.derived.virtual_shards is None:
            self.correct.add(result.correct)
        return result.loss
