"""Head warm-up: first the head trains alone, then all layers. Which phase a step is in follows from its number.

So a checkpoint has nothing to say about it, and a resumed run is in the right phase. Layers that are frozen for the
whole training are `starting_weights.freeze`'s.
"""

import math
from collections.abc import Callable

from torch import nn

from vernier.config import Config, Derived
from vernier.engine.processes.gradients import GradientReduction
from vernier.engine.starting_weights import backbone_norms
from vernier.models.contract import layout_of


class HeadWarmup:
    """The layers that wait while the head trains, and the gradient all-reduce of the current phase.

    While they wait they get no gradients, so backward ends before them, and their batch norms use stored statistics. A
    reduction knows from its creation which parameters have gradients, so each phase has its own.
    """

    def __init__(self, model: nn.Module, steps: int, reduction: Callable[[], GradientReduction]) -> None:
        layout = layout_of(model)
        waiting = [p for n, p in model.named_parameters() if p.requires_grad and layout.in_backbone(n)]
        self.steps = steps
        self._parameters = waiting if steps else []
        self._norms = [norm for norm in backbone_norms(model) if norm.training] if steps else []
        self._build_reduction = reduction
        self._head_alone = steps > 0
        self._set_waiting()
        self.reduction = reduction()

    @staticmethod
    def count_steps(config: Config, derived: Derived) -> int:
        """Number of optimizer steps in which the head trains alone."""
        return math.ceil(config.recipe.schedule.head_epochs * derived.steps_per_epoch - 1e-9)

    def enter(self, step: int) -> GradientReduction:
        """Make the model ready for a step, counted from 0; the reduction of its gradients."""
        if self._head_alone != (step < self.steps):
            self._head_alone = not self._head_alone
            self._set_waiting()
            self.reduction = self._build_reduction()
        return self.reduction

    def _set_waiting(self) -> None:
        for parameter in self._parameters:
            parameter.requires_grad_(not self._head_alone)
        for norm in self._norms:
            norm.train(not self._head_alone)
