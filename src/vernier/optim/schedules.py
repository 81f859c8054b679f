"""The learning rate as a pure function of the step, so that a checkpoint need not save it."""

import math
from functools import cache

from vernier.config import Derived, Schedule
from vernier.config.settings import SCHEDULES
from vernier.own_code import OwnPart


def learning_rate(step: int, schedule: Schedule, derived: Derived) -> float:
    """Compute the rate of optimizer step `step`, counted from 0."""
    if schedule.extends and step >= schedule.extends_step:
        return _extended(step, schedule, derived)
    if schedule.kind == "mlperf":
        return _mlperf(step, schedule, derived)
    epoch = step / derived.steps_per_epoch
    total = derived.total_steps / derived.steps_per_epoch
    # As schedulers that are called once per epoch: all of its steps have the rate of its start.
    if schedule.unit == "epoch":
        epoch, total = float(step // derived.steps_per_epoch), float(math.ceil(total))
    warmup = schedule.warmup_epochs
    if epoch < warmup:
        return derived.lr * _warmup_share(epoch, schedule)
    begin = warmup if schedule.origin == "after-warmup" else 0.0
    # A run that is all warm-up has no decay to divide by.
    progress = 0.0 if total <= begin else min(1.0, (epoch - begin) / (total - begin))
    return _decayed(progress, epoch, schedule, derived)


def _extended(step: int, schedule: Schedule, derived: Derived) -> float:
    """The rate after the end of the run that is extended, which has had its own schedule."""
    stop = schedule.steps or derived.total_steps
    if schedule.tail == "constant":
        return schedule.extends_rate
    # From the first step: where a cosine that was planned for the whole length would be by now. Else SGDR's restart.
    begin = 0 if schedule.tail == "cosine" else schedule.extends_step
    progress = min(1.0, (step - begin) / max(1, stop - begin))
    return derived.end_lr + (derived.lr - derived.end_lr) * 0.5 * (1 + math.cos(math.pi * progress))


def _warmup_share(epoch: float, schedule: Schedule) -> float:
    if schedule.warmup_form == "stairs":
        return min(1.0, (math.floor(epoch) + 1) / schedule.warmup_epochs)
    return schedule.warmup_start + (1 - schedule.warmup_start) * epoch / schedule.warmup_epochs


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
            return peak * math.pow(schedule.gamma, _passed(epoch, schedule))
        case "list":
            return peak * schedule.shares[_passed(epoch, schedule)]
        case "constant":
            return peak
        case kind:
            return peak * _own_share(kind, progress)


@cache
def _own(kind: str) -> OwnPart:
    return OwnPart("schedule.kind", kind, SCHEDULES, "cosine")  # called in every step, so it is loaded once


def _own_share(kind: str, progress: float) -> float:
    share = _own(kind)(progress)
    if not isinstance(share, int | float) or not 0 <= share < math.inf:
        raise _own(kind).wrong(f"returned {share!r} at progress {progress:g}; it is a fraction of the peak rate")
    return float(share)


def _passed(epoch: float, schedule: Schedule) -> int:
    return sum(epoch >= m for m in schedule.milestones)


def _mlperf(step: int, schedule: Schedule, derived: Derived) -> float:
    """MLPerf's LARS schedule as Habana runs it: steps counted from 1, and epochs one step shorter.

    Warm-up over W (steps_per_epoch - 1) steps to the peak, then end + (peak - end) (1 - t / T)^power, where
    T = (D - W) (steps_per_epoch - 1) + 1; after that the rate is constant.
    """
    per_epoch = max(1, derived.steps_per_epoch - 1)
    number, warmup = step + 1, schedule.warmup_epochs * per_epoch
    if number <= warmup:
        return derived.lr * number / warmup
    decay = (schedule.decay_epochs or schedule.epochs) * per_epoch - warmup + 1
    done = min(1.0, max(1.0, number - warmup) / decay)
    return derived.end_lr + (derived.lr - derived.end_lr) * math.pow(1 - done, schedule.power)
