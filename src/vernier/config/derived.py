"""Values that follow from the settings: batch per process, accumulation, learning rate, steps, image size."""

import math

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import given, use
from vernier.wording import plural

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
    virtual_shards: int | None = None
    """machine.reduction = exact: parts of the global batch. A process computes one per accumulation step."""


def derive(config: Config, *, train_samples: int) -> Derived:
    """Batch per process, accumulation, learning rate and steps. Raises ConfigError for a batch that does not divide."""
    recipe, machine = config.recipe, config.machine
    shards = count_virtual_shards(recipe) if machine.reduction == "exact" else None
    if shards is None:
        process_batch, accumulation = _split_batch(recipe.global_batch, machine)
    else:
        process_batch, accumulation = _split_into_shards(recipe.global_batch, shards, machine)
    epoch_images = recipe.data.epoch_images or train_samples
    steps_per_epoch, rest = divmod(epoch_images, recipe.global_batch)
    if steps_per_epoch == 0:
        epoch_setting = given("data.epoch_images", recipe.data.epoch_images)
        raise ConfigError(
            f"{given('global_batch', recipe.global_batch)} is more than the {epoch_images} "
            f"{f'images of an epoch ({epoch_setting})' if recipe.data.epoch_images else 'training images'}. "
            # A power of two divides evenly among most numbers of processes.
            f"Use {use('global_batch', 2 ** int(math.log2(max(epoch_images, 1))))} or less."
        )
    if rest and recipe.data.last_batch == "fill":
        steps_per_epoch += 1
    # At least one: a fraction of an epoch can round to no step.
    total_steps = max(1, round(recipe.schedule.epochs * steps_per_epoch))
    # The linear scaling rule (Goyal et al. 2017): the rate is given for lr_batch images.
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
        virtual_shards=shards,
    )


DEFAULT_EXACT_THREADS = 1
"""Compute threads of a process with exact reduction, where none are set: kernels divide their sums by threads."""
_USUAL_SHARDS = (12, 8, 6, 4, 3, 2, 1)
"""The first one divides among 1, 2, 3, 4 and 6 processes."""


def count_virtual_shards(recipe: Recipe) -> int:
    """Into how many parts exact reduction divides the global batch: a matter of the recipe alone."""
    return recipe.virtual_shards or next(n for n in _USUAL_SHARDS if recipe.global_batch % n == 0)


def describe_target(recipe: Recipe) -> str:
    """What ends training before its schedule does: a target, or no more gain; empty if nothing does."""
    targets = {"eval.target_ap": recipe.eval.target_ap, "eval.target_top1": recipe.eval.target_top1}
    if not (recipe.eval.every_epochs > 0 or recipe.eval.at_epochs):
        return ""
    for name, target in targets.items():
        if target is not None:
            reached = f"AP reaches {target:g}" if name == "eval.target_ap" else f"top-1 reaches {target:g} %"
            return (
                f"training ends once {reached} ({name}), a target for the recipe's own data; {use(name, None)} trains "
                "to the end of the schedule"
            )
    if recipe.eval.patience is not None:
        return f"training ends after {plural(recipe.eval.patience, 'evaluation')} in a row without a gain"
    return ""


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
    # 32 is the total stride of a ResNet; few sizes mean few shapes to choose or compile kernels for.
    between = first + (last - first) * (epoch - begin) / (end - begin)
    return min(last, max(first, round(between / 32) * 32))


def _split_into_shards(global_batch: int, shards: int, machine: Machine) -> tuple[int, int]:
    """Images per virtual shard, and shards per process. Raises ConfigError for what does not divide."""
    if global_batch % shards:
        raise ConfigError(
            f"{given('global_batch', global_batch)} does not divide into {given('virtual_shards', shards)}. Use "
            f"{_multiples_near(global_batch, shards)}, or another {use('virtual_shards')}, the same one in all runs "
            "that are to have the same weights."
        )
    if shards % machine.procs:
        # Up to 64, so that the list fits into a message.
        fitting = ", ".join(str(n) for n in range(1, min(shards, 64) + 1) if shards % n == 0)
        more = next((n for n in range(shards, global_batch + 1) if global_batch % n == 0 and n % machine.procs == 0), 0)
        advice = f", or {use('virtual_shards', more)} in all runs that are to have the same weights" if more else ""
        raise ConfigError(
            f"{given('virtual_shards', shards)} cannot be divided evenly among the processes "
            f"({given('machine.procs', machine.procs)}, {given('machine.reduction', 'exact')}). Use "
            f"{use('machine.procs', slot=fitting)}{advice}."
        )
    images, per_process = global_batch // shards, shards // machine.procs
    # 1 is the default and cannot be told from a choice; any other number is one.
    if machine.accumulation not in (1, per_process):
        raise ConfigError(
            f"{given('machine.accumulation', machine.accumulation)} contradicts {given('virtual_shards', shards)}: "
            f"each of {plural(machine.procs, 'process')} has {per_process} of them and computes one after the other. "
            f"Omit {given('machine.accumulation')}."
        )
    if machine.process_batch is not None and images > machine.process_batch:
        raise ConfigError(
            f"{given('machine.process_batch', machine.process_batch)} is less than the {images} images of a virtual "
            "shard. Raise it, or divide the batch further: "
            f"{use('virtual_shards', -(-global_batch // machine.process_batch))} or more."
        )
    return images, per_process


def _split_batch(global_batch: int, machine: Machine) -> tuple[int, int]:
    procs, accumulation = machine.procs, machine.accumulation
    if machine.process_batch is not None:
        per_micro_step = procs * machine.process_batch
        if global_batch % per_micro_step:
            raise ConfigError(
                f"{given('global_batch', global_batch)} is not a multiple of {plural(procs, 'process')} x "
                f"{plural(machine.process_batch, 'image')}: {per_micro_step} does not divide it. Change "
                f"{given('machine.process_batch')}, {given('machine.procs')} or {given('global_batch')}."
            )
        needed = global_batch // per_micro_step
        if accumulation not in (1, needed):
            raise ConfigError(
                f"{given('machine.accumulation', accumulation)} contradicts "
                f"{given('machine.process_batch', machine.process_batch)}, which needs "
                f"{use('machine.accumulation', needed)}. Omit one of them."
            )
        accumulation = needed
    parts = procs * accumulation
    if global_batch % parts:
        raise ConfigError(
            f"{given('global_batch', global_batch)} does not divide by {plural(procs, 'process')} x "
            f"{plural(accumulation, 'accumulation step')}. Use {_multiples_near(global_batch, parts)}, or change "
            f"{given('machine.procs')} or {given('machine.accumulation')}."
        )
    return global_batch // parts, accumulation


def _multiples_near(global_batch: int, parts: int) -> str:
    """The global batches next to this one that divide into `parts`, as something to use."""
    low = global_batch // parts * parts
    return " or ".join(use("global_batch", batch) for batch in (low, low + parts) if batch)
