"""The optimiser of a recipe."""

import torch
from torch import nn

from vernier.config import Optim
from vernier.optim.groups import split


def build_optimizer(model: nn.Module, optim: Optim, lr: float) -> torch.optim.SGD:
    """SGD with momentum in PyTorch's form, weight decay by the recipe's rule, one fused update for all tensors."""
    decayed, exempt = split(model, optim.decay_rule)
    groups = [{"params": decayed, "weight_decay": optim.weight_decay}, {"params": exempt, "weight_decay": 0.0}]
    return torch.optim.SGD(
        [g for g in groups if g["params"]], lr=lr, momentum=optim.momentum, nesterov=optim.nesterov, fused=True
    )


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
