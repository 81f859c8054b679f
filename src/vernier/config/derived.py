"""Values that follow from the settings: batch per process, accumulation, learning rate, steps, image size."""

import math

from vernier.errors import ConfigError
from vernier.frozen import frozen

from .settings import Augment, Config, Data, Machine, Recipe


@frozen
class Derived:
    """Everything that follows from a Config and the size of its data."""

    world: int
    process_batch: int
    accumulation: int
    lr: float
    end_lr: float
    steps_per_epoch: int
    total_steps: int
    stop_step: int
    """More than `total_steps` where schedule.steps asks for it."""


def derive(config: Config, *, train_samples: int) -> Derived:
    """Batch per process, accumulation, learning rate and steps. Raises ConfigError for a batch that does not divide."""
    recipe, machine = config.recipe, config.machine
    process_batch, accumulation = _split_batch(recipe.global_batch, machine)
    epoch_images = recipe.data.epoch_images or train_samples
    steps_per_epoch, rest = divmod(epoch_images, recipe.global_batch)
    if steps_per_epoch == 0:
        raise ConfigError(
            f"global_batch = {recipe.global_batch} is more than the {epoch_images} "
            f"{'images of an epoch (data.epoch_images)' if recipe.data.epoch_images else 'training images'}. "
            f"Use --global-batch {2 ** int(math.log2(max(epoch_images, 1)))} or less."
        )
    if rest and recipe.data.last_batch == "fill":
        steps_per_epoch += 1
    total_steps = max(1, round(recipe.schedule.epochs * steps_per_epoch))
    scale = 1.0 if recipe.optim.lr_batch is None else recipe.global_batch / recipe.optim.lr_batch
    steps, limit = recipe.schedule.steps or total_steps, config.limits.max_steps
    return Derived(
        world=machine.procs,
        process_batch=process_batch,
        accumulation=accumulation,
        lr=recipe.optim.lr * scale,
        end_lr=recipe.schedule.end_lr * scale,
        steps_per_epoch=steps_per_epoch,
        total_steps=total_steps,
        stop_step=steps if limit is None else min(limit, steps),
    )


def describe_lr(recipe: Recipe) -> str:
    """The peak rate with the arithmetic behind it: `0.1 per 256 x 2,048 = 0.8`."""
    optim, batch = recipe.optim, recipe.global_batch
    if optim.lr_batch is None or optim.lr_batch == batch:
        return f"{optim.lr * (batch / optim.lr_batch if optim.lr_batch else 1):g}"
    return f"{optim.lr:g} per {optim.lr_batch:,} x {batch:,} = {optim.lr * batch / optim.lr_batch:g}"


def train_px(data: Data, augment: Augment, epoch: int) -> int:
    """Side of a training image: in phases, or over augment.ramp_epochs in steps of 32 pixels, as FFCV's schedule."""
    first, last, (begin, end) = augment.start_px, data.image_px, augment.ramp_epochs
    if first is None:
        return last
    if augment.phase_epochs:
        return (first, *augment.phase_px, last)[sum(epoch >= begins for begins in augment.phase_epochs)]
    if epoch <= begin:
        return first
    if epoch >= end:
        return last
    between = first + (last - first) * (epoch - begin) / (end - begin)
    return min(last, max(first, round(between / 32) * 32))


def _split_batch(global_batch: int, machine: Machine) -> tuple[int, int]:
    procs, accumulation = machine.procs, machine.accumulation
    if machine.process_batch is not None:
        per_micro_step = procs * machine.process_batch
        if global_batch % per_micro_step:
            raise ConfigError(
                f"global_batch = {global_batch} is not a multiple of {procs} process(es) x {machine.process_batch} "
                f"images: {per_micro_step} does not divide it. Change machine.process_batch, --procs or --global-batch."
            )
        needed = global_batch // per_micro_step
        if accumulation not in (1, needed):
            raise ConfigError(
                f"machine.accumulation = {accumulation} contradicts machine.process_batch = {machine.process_batch}, "
                f"which needs {needed}. Leave one of them out."
            )
        accumulation = needed
    parts = procs * accumulation
    if global_batch % parts:
        low, high = global_batch // parts * parts, (global_batch // parts + 1) * parts
        near = f"{low} or {high}" if low else f"{high}"
        raise ConfigError(
            f"global_batch = {global_batch} does not divide by {procs} process(es) x {accumulation} accumulation "
            f"step(s). Use --global-batch {near}, or change --procs or machine.accumulation."
        )
    return global_batch // parts, accumulation
