"""When a number of a training stops being finite: at which step, in which process, on which images, and what follows.

A loss or gradient that is not finite in one process is not finite in the mean over all of them, so all processes find
out at the same report and decide the same. `loop` checks the numbers and, with `limits.on_divergence` = rollback, goes
back to a checkpoint.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

from vernier.config import own_references
from vernier.errors import RunFailed
from vernier.optim.schedules import learning_rate
from vernier.own_code import OwnPart, defined_at
from vernier.records.events import DivergenceEvent

from .setup import Job
from .window import WindowValues

_SUBJECTS = {"loss": "The loss", "gradients": "A gradient", "weights": "A weight"}
_SHOWN_IMAGES = 3


class Diverged(RunFailed):
    """A number became infinite or not a number: the run cannot go on from here."""

    def __init__(self, message: str, event: DivergenceEvent, advice: str = "", final: bool = False) -> None:
        super().__init__(message)
        self.event, self.advice, self.final = event, advice, final
        """`advice`: what to do if neither data nor learning rate is the reason; `final`: the run does not go back."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The first process sends it to the others: what is saved is wrong in that one alone.
        return type(self), (self.message, self.event, self.advice, self.final)

    @classmethod
    def check(cls, job: Job, values: WindowValues, last_step: int) -> None:
        """Raise Diverged for the first step of a window with a loss or gradient that is not finite; in all alike."""
        first_step = last_step - len(values.losses) + 1
        # With loss scaling there are none: a step that overflowed is skipped and ends nothing.
        norms = values.gradient_norms or [0.0] * len(values.losses)
        for position, (loss, norm) in enumerate(zip(values.losses, norms, strict=True)):
            own_loss, step = values.own_losses[position], first_step + position
            if not math.isfinite(loss):
                raise cls.after(job, step, "loss", str(loss), here=not math.isfinite(own_loss))
            if not math.isfinite(norm):
                raise cls.after(job, step, "gradients", str(norm))

    @classmethod
    def after(cls, job: Job, step: int, quantity: str, value: str, *, here: bool = True) -> Self:
        """The error for a quantity that is not finite after a step; `here`: in this process. All processes call it."""
        samples = [int(index) for _, indices in job.requests(step - 1, step) for index in indices]
        # Gathered by all, as only the process with the bad images knows them.
        by_rank = job.world.gather((here, samples)) or [(here, samples)]
        ranks = [rank for rank, (affected, _) in enumerate(by_rank) if affected]
        lr = job.step.lr_factor * learning_rate(step - 1, job.config.recipe.schedule, job.derived)
        event = DivergenceEvent(
            step=step,
            quantity=quantity,
            value=value,
            lr=lr,
            ranks=tuple(ranks),
            samples=tuple(tuple(by_rank[rank][1]) for rank in ranks),
        )
        own = [defined_at(OwnPart(*each).value) for each in own_references(job.config.recipe) if each[0] == "loss.kind"]
        subject = f"The loss{own[0]}" if own and quantity == "loss" else ""
        subject = subject or _SUBJECTS.get(quantity) or f"The evaluation's {quantity.removeprefix('evaluation ')}"
        return cls(f"{subject} became {value} at step {step} (learning rate {lr:.6g}){_where(job, event)}.", event)

    def rolled_back(self, step: int, lr_factor: float) -> DivergenceEvent:
        """The event of a run that goes on from an earlier step with a lower rate."""
        return replace(self.event, resumed_from=step, lr_factor=lr_factor)


def _where(job: Job, event: DivergenceEvent) -> str:
    """Which process and which images, where they are the reason."""
    if event.quantity not in ("loss", "gradients"):
        return ""
    processes = f" on rank {', '.join(map(str, event.ranks))}" if len(event.ranks) < job.world.size else ""
    samples = [index for indices in event.samples for index in indices]
    return f"{processes}, after a batch with {_names(job, samples)}"


def _names(job: Job, samples: Sequence[int]) -> str:
    source = job.train_source
    names = ", ".join(source.describe(index % len(source)) for index in samples[:_SHOWN_IMAGES])
    more = len(samples) - _SHOWN_IMAGES
    return f"{names} and {more} more images (all are in events.jsonl)" if more > 0 else names
