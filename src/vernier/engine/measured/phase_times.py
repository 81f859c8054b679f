"""How long a training will take, from a few of its own steps: with the head alone and with all layers.

The steps are those of `vernier train`, on its data, and change nothing that stays.
"""

from vernier.clock import now_s
from vernier.config import Config
from vernier.frozen import frozen

from .workloads import TrainingLoad

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
    load = TrainingLoad(config)
    try:
        job = load.job
        head_steps, derived = job.step.head_phase.steps, job.derived
        timed: list[int] = []
        head_step_s = _mean_step(load, 0, timed)
        step_s = _mean_step(load, head_steps, timed) if head_steps else head_step_s
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
        load.close()


def _mean_step(load: TrainingLoad, number: int, timed: list[int]) -> float:
    """Seconds of a step of the phase that step `number` belongs to."""
    load.go_to(number)
    began_s = now_s()
    load.step()
    first_s = now_s() - began_s
    if first_s > _LONG_S:
        timed.append(1)
        return first_s
    began_s = now_s()
    for _ in range(TIMED_STEPS):
        load.step()
    timed.append(TIMED_STEPS)
    return (now_s() - began_s) / TIMED_STEPS
