"""The contract of what checks, while a run trains, that its devices compute right. `lab.audit` has one.

It plugs in with the entry point `vernier.guards`, whose object is called with the job. All processes call its methods
at the same points of the same steps, so that they can be collective. Without a plug-in nothing is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from vernier.engine.observe import Observers
from vernier.plugins import only_plugin

if TYPE_CHECKING:
    from .checkpoints.contents import TensorFiles
    from .setup import Job

Watch = Callable[[int, torch.Tensor], None]
"""Gets the number of a parameter, and its gradient for one virtual shard as soon as backward has it."""


class Guard:
    """Checks nothing. Steps are counted from 1."""

    def begin_step(self, step: int) -> None:
        """A step begins."""

    def watch(self, shard: int) -> Watch | None:
        """Return what is to see the gradients of a virtual shard, which is computed next."""

    def gradients_done(self) -> None:
        """This process has computed its gradients of the step, which are not yet averaged everywhere."""

    def before_update(self, step: int) -> None:
        """The gradients are averaged and clipped; the optimizer comes next."""

    def after_update(self, step: int) -> None:
        """The weights, and their average, are those after the step."""

    def step_done(self, observers: Observers) -> None:
        """The step is queued. Raises Diverged if it must not count."""

    def report(self, observers: Observers) -> None:
        """The device is synchronized and steps are reported. Raises Diverged if they must not count."""

    def before_checkpoint(self, step: int, observers: Observers) -> None:
        """The state after a step is saved next. Raises Diverged if it must not be."""

    def check_copy(self, files: TensorFiles) -> None:
        """The copy of that state, which is written next; in the first process alone. Raises Diverged likewise."""

    def forget(self) -> None:
        """The run went back: what was seen since the last report does not count."""


def open_guard(job: Job) -> Guard:
    """The guard of a job."""
    factory = only_plugin("vernier.guards")
    guard: Guard = Guard() if factory is None else factory(job)
    return guard
