"""Creates the optimiser of a recipe, and sets its learning rate."""

import torch
from torch import nn

from vernier.config import Optim
from vernier.errors import ConfigError
from vernier.torch_private import PlainSgd

from .groups import parameter_groups
from .lamb import Lamb
from .lars import Lars
from .muon import Muon


def build_optimizer(
    model: nn.Module, optim: Optim, lr: float, *, fused: bool = False, head_apart: bool = False
) -> torch.optim.Optimizer:
    """Create SGD (PyTorch's form), LARS, LAMB or Muon, with the recipe's weight decay and layer-wise rates.

    `lr` holds until the first `set_lr`; a training step calls that before it updates. `fused`: SGD in one kernel, where
    the device has it; not with loss scaling, where it advances the momentum even in steps that the scaler skips.
    `head_apart`: the head begins to learn before the others, and a fused group must begin as a whole.
    """
    groups = [dict(vars(group)) for group in parameter_groups(model, optim, head_apart=head_apart)]
    if not groups:
        raise ConfigError("Nothing is left to train: model.freeze covers every weight. Freeze fewer layers.")
    match optim.name:
        case "lars":
            return Lars(groups, lr=lr, momentum=optim.momentum, trust_coefficient=optim.trust_coefficient)
        case "lamb":
            return Lamb(groups, lr=lr, beta1=optim.momentum, beta2=optim.beta2, eps=optim.eps)
        case "muon":
            return Muon(groups, lr=lr, momentum=optim.momentum, filter_momentum=optim.filter_momentum)
        case _:
            return PlainSgd(groups, lr=lr, momentum=optim.momentum, nesterov=optim.nesterov, fused=fused)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give each group its share of the schedule's rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_share"]
