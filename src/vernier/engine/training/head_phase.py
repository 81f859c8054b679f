"""Training in two phases: first the head alone, then all layers. Which one a step belongs to follows from its number.

So a checkpoint has nothing to say about it, and a resumed run is in the right phase. Layers that are frozen for the
whole training are `starting_weights.freeze`'s.
"""

import math
from collections.abc import Callable

from torch import nn

from vernier.config import Config, Derived
from vernier.engine.processes.gradients import Exchange
from vernier.engine.starting_weights import backbone_norms
from vernier.models.contract import layout_of


class HeadPhase:
    """The layers that wait while the head trains, and the exchange of gradients of the current phase.

    While they wait they get no gradients, so backward ends before them, and their batch norms use stored statistics. An
    exchange knows from its creation which parameters have gradients, so each phase has its own.
    """

    def __init__(self, model: nn.Module, steps: int, exchange: Callable[[], Exchange]) -> None:
        layout = layout_of(model)
        waiting = [p for n, p in model.named_parameters() if p.requires_grad and layout.in_backbone(n)]
        self.steps = steps
        self._parameters = waiting if steps else []
        self._norms = [norm for norm in backbone_norms(model) if norm.training] if steps else []
        self._make_exchange = exchange
        self._head_alone = steps > 0
        self._set_waiting()
        self.exchange = exchange()

    def enter(self, step: int) -> Exchange:
        """Make the model ready for a step, counted from 0; the exchange of its gradients."""
        if self._head_alone != (step < self.steps):
            self._head_alone = not self._head_alone
            self._set_waiting()
            self.exchange = self._make_exchange()
        return self.exchange

    def _set_waiting(self) -> None:
        for parameter in self._parameters:
            parameter.requires_grad_(not self._head_alone)
        for norm in self._norms:
            norm.train(not self._head_alone)


def count_head_steps(config: Config, derived: Derived) -> int:
    """Number of optimiser steps in which the head trains alone."""
    return math.ceil(config.recipe.schedule.head_epochs * derived.steps_per_epoch - 1e-9)
