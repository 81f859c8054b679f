"""How long a training run will take, from a few of its own steps: with the head alone and with all layers.

The steps are those of `vernier train`, on its data, and change nothing that stays.
"""

import math
from collections.abc import Generator

from vernier.clock import now_s
from vernier.config import Config
from vernier.data.loading.loader import Batch
from vernier.engine.training.setup import Job, prepare
from vernier.frozen import frozen

_TIMED_STEPS = 2
_LONG_S = 5.0
"""A step that takes longer than this is not repeated."""


@frozen
class _PhaseTimes:
    """Seconds per step of each phase, and of an evaluation, whose images count as forward passes."""

    head_step_s: float
    step_s: float
    evaluation_s: float
    epoch_steps: float
    steps: int
    """How many were timed."""

    def total_s(self, config: Config) -> float:
        """Seconds of the whole run with its evaluations, for any number of epochs."""
        schedule = config.recipe.schedule
        head, steps = (self.epoch_steps * epochs for epochs in (schedule.head_epochs, schedule.epochs))
        steps = min(steps, config.limits.max_steps or math.inf)
        head = min(head, steps)
        evaluations = schedule.epochs / (config.recipe.eval.every_epochs or schedule.epochs)
        return head * self.head_step_s + (steps - head) * self.step_s + evaluations * self.evaluation_s


def time_phases(config: Config) -> _PhaseTimes:
    """Time steps of both phases, each after one that is not counted. Raises as a training would."""
    job = prepare(config)
    # Without end: how many steps are timed depends on how long they take.
    batches = job.loader.batches(job.requests(0, 2**62))

    def mean_step_s(number: int) -> float:
        """Seconds of a step of the phase that step `number` belongs to; its data is that of the next one in order."""
        first_s = _timed(job, number, batches)
        if first_s > _LONG_S:
            timed.append(1)
            return first_s
        timed.append(_TIMED_STEPS)
        return sum(_timed(job, number + 1 + i, batches) for i in range(_TIMED_STEPS)) / _TIMED_STEPS

    try:
        head_steps = job.step.head_warmup.steps
        timed: list[int] = []
        head_step_s = mean_step_s(0)
        step_s = mean_step_s(head_steps) if head_steps else head_step_s
        held_out = 0 if job.val_source is None else len(job.val_source)
        return _PhaseTimes(
            head_step_s=head_step_s,
            step_s=step_s,
            # An evaluation has no backward pass, so it costs less than the cheaper kind of step.
            evaluation_s=held_out / config.recipe.global_batch * min(head_step_s, step_s),
            epoch_steps=job.derived.total_steps / config.recipe.schedule.epochs,
            steps=sum(timed),
        )
    finally:
        batches.close()
        job.close()


def _timed(job: Job, number: int, batches: Generator[Batch]) -> float:
    """Seconds of a step, until the device has done it."""
    began_s = now_s()
    # A schedule has no step beyond its last: those of a very short training are timed again.
    job.step(number % job.derived.total_steps, batches)
    job.device.synchronize()
    job.step.reduction.pop_times()
    return now_s() - began_s
