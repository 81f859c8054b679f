"""How long a training will take, from a few of its own steps: with the head alone and with all layers.

The steps are those of `vernier train`, on its data, and change nothing that stays.
"""

from collections.abc import Generator

from vernier.clock import now_s
from vernier.config import Config
from vernier.data.loading.loader import Batch
from vernier.frozen import frozen

from .training.setup import Job, prepare

TIMED_STEPS = 2
_LONG_S = 5.0
"""A step that takes longer than this is not repeated."""


@frozen
class PhaseTimes:
    """Seconds per step of each phase, and of the whole training with its evaluations, which count as forward passes."""

    head_step_s: float
    step_s: float
    total_s: float
    steps: int
    """How many were timed."""


def time_phases(config: Config) -> PhaseTimes:
    """Time steps of both phases, each after one that is not counted. Raises as a training would."""
    job = prepare(config)
    batches = job.loader.batches(job.requests(0, 2**62))

    def mean_step_s(number: int) -> float:
        """Seconds of a step of the phase that step `number` belongs to; its data is that of the next one in order."""
        first_s = _timed(job, number, batches)
        if first_s > _LONG_S:
            timed.append(1)
            return first_s
        timed.append(TIMED_STEPS)
        return sum(_timed(job, number + 1 + i, batches) for i in range(TIMED_STEPS)) / TIMED_STEPS

    try:
        head_steps, derived = job.step.head_phase.steps, job.derived
        timed: list[int] = []
        head_step_s = mean_step_s(0)
        step_s = mean_step_s(head_steps) if head_steps else head_step_s
        evaluations = 0.0
        if job.val_source is not None:
            per_epoch = config.recipe.eval.every_epochs or config.recipe.schedule.epochs
            evaluations = config.recipe.schedule.epochs / per_epoch * len(job.val_source)
        training_s = head_steps * head_step_s + (derived.stop_step - head_steps) * step_s
        return PhaseTimes(
            head_step_s=head_step_s,
            step_s=step_s,
            total_s=training_s + evaluations * min(head_step_s, step_s) / config.recipe.global_batch,
            steps=sum(timed),
        )
    finally:
        batches.close()
        job.close()


def _timed(job: Job, number: int, batches: Generator[Batch]) -> float:
    """Seconds of a step, until the device has done it."""
    began_s = now_s()
    job.step(number % job.derived.total_steps, batches)
    job.device.synchronize()
    job.step.exchange.pop_times()
    return now_s() - began_s
