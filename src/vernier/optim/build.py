"""Creates the optimizer of a recipe, and sets its learning rate."""

from collections.abc import Callable

import torch
from torch import nn

from vernier.config import Optim, Recipe
from vernier.config.checks import check_optimizer
from vernier.errors import ConfigError
from vernier.torch_private import plain

from .groups import Group, parameter_groups


def build_optimizer(model: nn.Module, recipe: Recipe, lr: float, *, fused: bool = False) -> torch.optim.Optimizer:
    """Create the recipe's optimizer, with its weight decay and layer-wise rates.

    `lr` holds until the first `set_lr`; a training step calls that before it updates. `fused`: in one kernel, where
    the device has it; not with loss scaling, where it advances the momentum even in steps that the scaler skips.
    """
    optim = recipe.optim
    check_optimizer(optim)
    groups = optim.groups(model) or parameter_groups(model, optim, head_apart=recipe.schedule.head_epochs > 0)
    if not groups:
        raise ConfigError("Nothing is left to train: model.freeze covers every weight. Freeze fewer layers.")
    return optim.build(groups, lr, fused=fused) or Updates(groups, lr, optim)


@plain
class Updates(torch.optim.Optimizer):
    """An optimizer by the `update` of its settings."""

    def __init__(self, groups: list[Group], lr: float, optim: Optim) -> None:
        super().__init__(groups, {"lr": lr})
        self._optim = optim

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            for p in weights:
                if not self.state[p]:
                    self.state[p] |= {name: torch.zeros_like(p) for name in self._optim.buffers}
            if weights:
                self._optim.update(weights, self.state, group)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give each group its share of the schedule's rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_share"]
