"""A layer with one weight and one bias tensor, and its optimizer: small enough to update by hand."""

import torch
from torch import nn

from vernier.config import Optim, Recipe
from vernier.optim.build import build_optimizer


def one_layer(optim: Optim, lr: float, weights: list[float]) -> tuple[nn.Linear, torch.optim.Optimizer]:
    layer = nn.Linear(len(weights), 1, bias=True)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([weights]))
        layer.bias.fill_(1.0)
    return layer, build_optimizer(layer, Recipe(optim=optim), lr)
