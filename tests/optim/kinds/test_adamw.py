"""AdamW: PyTorch's own arithmetic with the recipe's settings, by hand and bit for bit."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from tests.optim.one_layer import one_layer
from vernier.config import Recipe
from vernier.models import build
from vernier.optim.build import build_optimizer, set_lr
from vernier.optim.kinds.adamw import AdamW

ADAMW = AdamW(lr=0.1, momentum=0.8, beta2=0.95, eps=1e-5, weight_decay=0.2)


def test_adamw_by_hand() -> None:
    """Weight decay is decoupled and scaled by the rate; biases have none."""
    layer, optimizer = one_layer(ADAMW, 0.1, [3.0, 4.0])
    w, m, v = (torch.tensor([3.0, 4.0, 1.0]).double(), torch.zeros(3).double(), torch.zeros(3).double())
    decay = torch.tensor([0.2, 0.2, 0.0]).double()
    for t, g in enumerate([(1.0, -2.0, 0.5), (0.5, 1.0, -1.0), (0.1, 0.1, 2.0)], start=1):
        layer.weight.grad, layer.bias.grad = torch.tensor([g[:2]]), torch.tensor(g[2:])
        optimizer.step()
        grad = torch.tensor(g).double()
        m, v = 0.8 * m + 0.2 * grad, 0.95 * v + 0.05 * grad**2
        w = w - 0.1 * decay * w - 0.1 * (m / (1 - 0.8**t)) / ((v / (1 - 0.95**t)).sqrt() + 1e-5)
    ours = torch.cat([layer.weight.detach()[0], layer.bias.detach()]).double()
    torch.testing.assert_close(ours, w, atol=1e-6, rtol=1e-5)


def _gradients(model: nn.Module, seed: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(p.shape, generator=generator) for p in model.parameters())


@pytest.mark.parametrize("fused", [False, True])
def test_a_network_gets_the_weights_of_torchs_adamw(fused: bool) -> None:
    """With two groups by weight decay, a rate that changes, and layers that learn slower."""
    recipe = Recipe(optim=AdamW(momentum=0.8, beta2=0.95, eps=1e-5, weight_decay=0.2, layer_decay=0.5))
    models = []
    for ours in (True, False):
        torch.manual_seed(0)
        model = build("resnet8-small", num_classes=4, width=8)
        optimizer = build_optimizer(model, recipe, 0.1, fused=fused)
        if not ours:
            groups = [{k: group[k] for k in ("params", "weight_decay", "lr_share")} for group in optimizer.param_groups]
            optimizer = torch.optim.AdamW(groups, lr=0.1, betas=(0.8, 0.95), eps=1e-5, fused=fused)
        for step in range(3):
            for p, gradient in zip(model.parameters(), _gradients(model, step), strict=True):
                p.grad = gradient
            set_lr(optimizer, 0.1 / (step + 1))
            optimizer.step()
        models.append(model)
    assert all(map(torch.equal, models[0].parameters(), models[1].parameters()))
