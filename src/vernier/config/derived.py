"""What follows from the settings: the one place where per-process batch, accumulation, learning rate and steps are computed."""

import math
from dataclasses import dataclass

from vernier.config.settings import Augment, Config, Data, Machine, Recipe
from vernier.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
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


def derive(config: Config, *, train_samples: int) -> Derived:
    """Per-process batch, accumulation, learning rate and steps; what does not divide is an error that says what to change."""
    recipe, machine = config.recipe, config.machine
    process_batch, accumulation = _split_batch(recipe.global_batch, machine)
    steps_per_epoch = train_samples // recipe.global_batch
    if steps_per_epoch == 0:
        raise ConfigError(
            f"global_batch = {recipe.global_batch} is more than the {train_samples} training images. "
            f"Use --global-batch {2 ** int(math.log2(max(train_samples, 1)))} or less."
        )
    total_steps = max(1, round(recipe.schedule.epochs * steps_per_epoch))
    if recipe.schedule.warmup_epochs > recipe.schedule.epochs:
        raise ConfigError(
            f"schedule.warmup_epochs = {recipe.schedule.warmup_epochs} is longer than the training "
            f"(schedule.epochs = {recipe.schedule.epochs})."
        )
    _check_recipe(recipe)
    scale = 1.0 if recipe.optim.lr_batch is None else recipe.global_batch / recipe.optim.lr_batch
    limit = config.limits.max_steps
    return Derived(
        world=machine.procs,
        process_batch=process_batch,
        accumulation=accumulation,
        lr=recipe.optim.lr * scale,
        end_lr=recipe.schedule.end_lr * scale,
        steps_per_epoch=steps_per_epoch,
        total_steps=total_steps,
        stop_step=total_steps if limit is None else min(limit, total_steps),
    )


def _check_recipe(recipe: Recipe) -> None:
    """What no single field can see."""
    schedule, augment, data = recipe.schedule, recipe.augment, recipe.data
    if schedule.kind == "list" and len(schedule.shares) != len(schedule.milestones) + 1:
        raise ConfigError(
            f"schedule.kind = list needs one share more than milestones: {len(schedule.shares)} shares and "
            f"{len(schedule.milestones)} milestones are given. Change schedule.shares or schedule.milestones."
        )
    if augment.start_px is not None and augment.start_px > data.image_px:
        raise ConfigError(
            f"augment.start_px = {augment.start_px} is larger than data.image_px = {data.image_px}: images grow during "
            "training. Swap them, or leave augment.start_px out."
        )
    if augment.ramp_epochs[0] > augment.ramp_epochs[1]:
        raise ConfigError(f"augment.ramp_epochs = {list(augment.ramp_epochs)} must not end before it begins.")
    if recipe.loss.bce_threshold is not None and recipe.loss.kind != "bce":
        raise ConfigError("loss.bce_threshold is for loss.kind = bce. Leave it out, or change loss.kind.")


def train_px(data: Data, augment: Augment, epoch: int) -> int:
    """Side of a training image: grows over augment.ramp_epochs in steps of 32 pixels, as FFCV's schedule does."""
    first, last, (begin, end) = augment.start_px, data.image_px, augment.ramp_epochs
    if first is None:
        return last
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
                f"global_batch = {global_batch} cannot be made of {procs} process(es) x {machine.process_batch} images: "
                f"{per_micro_step} does not divide it. Change machine.process_batch, --procs or --global-batch."
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
            f"global_batch = {global_batch} does not divide by {procs} process(es) x {accumulation} accumulation step(s). "
            f"Use --global-batch {near}, or change --procs or machine.accumulation."
        )
    return global_batch // parts, accumulation
