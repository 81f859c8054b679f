"""The optimiser of a recipe, and how its rate is set."""

import torch
from torch import nn

from vernier.config import Optim
from vernier.errors import ConfigError
from vernier.optim.groups import parameter_groups
from vernier.optim.lamb import Lamb
from vernier.optim.lars import Lars


def build_optimizer(model: nn.Module, optim: Optim, lr: float, *, scaled: bool = False) -> torch.optim.Optimizer:
    """SGD in PyTorch's form with one fused update, LARS or LAMB; weight decay and layer-wise rates by the recipe's rule.

    With loss scaling SGD is not fused: the fused kernel advances the momentum even in steps that the scaler skips.
    """
    groups = parameter_groups(model, optim)
    if not groups:
        raise ConfigError("Nothing is left to learn: model.freeze covers every weight. Leave out part of it.")
    if optim.nesterov and optim.name != "sgd":
        raise ConfigError(f"optim.nesterov is for optim.name = sgd, not {optim.name}. Set optim.nesterov=false.")
    match optim.name:
        case "lars":
            return Lars(groups, lr=lr, momentum=optim.momentum, trust_coefficient=optim.trust_coefficient)
        case "lamb":
            return Lamb(groups, lr=lr, beta1=optim.momentum, beta2=optim.beta2, eps=optim.eps)
        case _:
            return torch.optim.SGD(groups, lr=lr, momentum=optim.momentum, nesterov=optim.nesterov, fused=not scaled)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """The schedule's rate, times each group's own share of it."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_share"]
