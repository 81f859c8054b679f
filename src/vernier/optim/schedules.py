"""Learning rate as a pure function of the step: nothing to save, nothing to restore."""

import math

from vernier.config import Derived, Schedule


def learning_rate(step: int, schedule: Schedule, derived: Derived) -> float:
    """The rate for optimiser step `step`, counted from 0."""
    epoch = step / derived.steps_per_epoch
    total = derived.total_steps / derived.steps_per_epoch
    if schedule.unit == "epoch":
        epoch, total = float(step // derived.steps_per_epoch), float(math.ceil(total))
    warmup = schedule.warmup_epochs
    if epoch < warmup:
        return derived.lr * _warmup_share(epoch, step, schedule, derived)
    begin = warmup if schedule.origin == "after-warmup" else 0.0
    progress = 0.0 if total <= begin else min(1.0, (epoch - begin) / (total - begin))
    return _decayed(progress, epoch, schedule, derived)


def _warmup_share(epoch: float, step: int, schedule: Schedule, derived: Derived) -> float:
    if schedule.unit == "epoch":
        return min(1.0, (epoch + 1) / schedule.warmup_epochs)
    done = step / (schedule.warmup_epochs * derived.steps_per_epoch)
    return schedule.warmup_start + (1 - schedule.warmup_start) * done


def _decayed(progress: float, epoch: float, schedule: Schedule, derived: Derived) -> float:
    peak, end = derived.lr, derived.end_lr
    match schedule.kind:
        case "cosine":
            return end + (peak - end) * 0.5 * (1 + math.cos(math.pi * progress))
        case "linear":
            return end + (peak - end) * (1 - progress)
        case "polynomial":
            return end + (peak - end) * math.pow(1 - progress, schedule.power)
        case "step":
            drops = sum(epoch >= m for m in schedule.milestones)
            return peak * math.pow(schedule.gamma, drops)
        case _:
            return peak
