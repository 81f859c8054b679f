import pytest
import torch

from tests.optim.one_layer import one_layer
from vernier.optim.kinds.lars import Lars


def test_lars_by_hand() -> None:
    """|w| = 5, |g| = 1: ratio 0.001 x 5 / (1 + 0.1 x 5) = 1/300; rate inside the momentum; bias skipped."""
    layer, optimizer = one_layer(Lars(momentum=0.9, weight_decay=0.1, trust_coefficient=0.001), 3.0, [3.0, 4.0])
    layer.weight.grad, layer.bias.grad = torch.tensor([[1.0, 0.0]]), torch.tensor([0.5])
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), torch.tensor([[3 - 0.01 * 1.3, 4 - 0.01 * 0.4]]))
    assert float(layer.bias.detach()) == pytest.approx(1 - 3 * 0.5)
    w = layer.weight.detach().double().clone()
    layer.weight.grad, layer.bias.grad = torch.tensor([[0.0, 2.0]]), torch.tensor([0.0])
    optimizer.step()
    norm = float(w.norm())
    ratio = 0.001 * norm / (2 + 0.1 * norm)
    v = 0.9 * torch.tensor([[0.013, 0.004]]).double() + 3 * ratio * (torch.tensor([[0.0, 2.0]]).double() + 0.1 * w)
    torch.testing.assert_close(layer.weight.detach().double(), w - v, atol=1e-6, rtol=1e-6)
    assert float(layer.bias.detach()) == pytest.approx(1 - 1.5 - 0.9 * 1.5)


def test_lars_leaves_zero_weights_their_plain_step() -> None:
    layer, optimizer = one_layer(Lars(momentum=0.0, weight_decay=0.1), 0.5, [0.0, 0.0])
    layer.weight.grad = torch.tensor([[1.0, -1.0]])
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), torch.tensor([[-0.5, 0.5]]))
