import pytest
import torch

from tests.optim.one_layer import one_layer
from vernier.optim.kinds.lamb import Lamb


def test_lamb_by_hand() -> None:
    optim = Lamb(momentum=0.9, beta2=0.99, eps=1e-6, weight_decay=0.02)
    layer, optimizer = one_layer(optim, 0.1, [3.0, 4.0])
    w, b = torch.tensor([3.0, 4.0]).double(), 1.0
    m = v = torch.zeros(2).double()
    mb = vb = 0.0
    for t, (g, gb) in enumerate([((1.0, -2.0), 0.5), ((0.5, 1.0), -1.0), ((0.1, 0.1), 2.0)], start=1):
        layer.weight.grad, layer.bias.grad = torch.tensor([g]), torch.tensor([gb])
        optimizer.step()
        grad = torch.tensor(g).double()
        m, v = 0.9 * m + 0.1 * grad, 0.99 * v + 0.01 * grad**2
        u = (m / (1 - 0.9**t)) / ((v / (1 - 0.99**t)).sqrt() + 1e-6) + 0.02 * w
        w = w - 0.1 * w.norm() / u.norm() * u
        mb, vb = 0.9 * mb + 0.1 * gb, 0.99 * vb + 0.01 * gb**2
        b -= 0.1 * (mb / (1 - 0.9**t)) / ((vb / (1 - 0.99**t)) ** 0.5 + 1e-6)  # no decay, no trust ratio
    torch.testing.assert_close(layer.weight.detach().double()[0], w, atol=1e-5, rtol=1e-5)
    assert float(layer.bias.detach()) == pytest.approx(b, rel=1e-5)
