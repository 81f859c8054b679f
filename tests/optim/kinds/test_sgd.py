import pytest
import torch
from torch import nn

from vernier.config import Recipe
from vernier.optim.build import build_optimizer
from vernier.optim.kinds.sgd import Sgd


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_pytorchs_form(nesterov: bool) -> None:
    """v = m v + (g + wd w); w -= lr (v, or g + m v with Nesterov)."""
    layer = nn.Linear(3, 1, bias=True)
    w, b = layer.weight.detach().double().clone(), layer.bias.detach().double().clone()
    optimizer = build_optimizer(layer, Recipe(optim=Sgd(nesterov=nesterov, weight_decay=0.1)), lr=0.5)
    v, u = torch.zeros_like(w), torch.zeros_like(b)
    for step in range(3):
        g, h = torch.full_like(layer.weight, step + 1.0), torch.full_like(layer.bias, -1.0)
        layer.weight.grad, layer.bias.grad = g, h
        optimizer.step()
        decayed = g + 0.1 * w
        v, u = 0.9 * v + decayed, 0.9 * u + h
        w = w - 0.5 * (decayed + 0.9 * v if nesterov else v)
        b = b - 0.5 * (h + 0.9 * u if nesterov else u)
    torch.testing.assert_close(layer.weight.detach().double(), w, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(layer.bias.detach().double(), b, atol=1e-5, rtol=1e-5)
