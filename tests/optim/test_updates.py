"""Decay groups, the optimiser and the moving average, against values worked out by hand or by plain PyTorch."""

import pytest
import torch
from torch import nn

from vernier.config import Ema, Optim
from vernier.models import build
from vernier.optim.ema import WeightAverage
from vernier.optim.groups import split
from vernier.optim.sgd import build_optimizer


@pytest.mark.parametrize(
    ("model", "rule", "exempt", "decayed"),
    [
        ("resnet50", "nvidia-name", 98, 63),
        ("resnext101-32x4d", "nvidia-name", 200, 114),
        ("resnet50", "norm-and-bias", 107, 54),
        ("resnet50", "norm-only", 106, 55),
        ("resnet50", "all", 0, 161),
    ],
)
def test_decay_groups(model: str, rule: str, exempt: int, decayed: int) -> None:
    with torch.device("meta"):
        network = build(model, num_classes=1000)
    with_decay, without = split(network, rule)
    assert (len(without), len(with_decay)) == (exempt, decayed)


def test_nvidia_rule_decays_the_projection_norms() -> None:
    with torch.device("meta"):
        network = build("resnet50", num_classes=1000)
    decayed = {id(p) for p in split(network, "nvidia-name")[0]}
    projections = [p for n, p in network.named_parameters() if "downsample.1" in n]
    assert len(projections) == 8
    assert sum(p.numel() for p in projections) == 7680
    assert all(id(p) in decayed for p in projections)


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_pytorchs_form(nesterov: bool) -> None:
    """v = m v + (g + wd w); w -= lr (v, or g + m v with Nesterov)."""
    layer = nn.Linear(3, 1, bias=True)
    w, b = layer.weight.detach().double().clone(), layer.bias.detach().double().clone()
    optimizer = build_optimizer(layer, Optim(momentum=0.9, nesterov=nesterov, weight_decay=0.1), lr=0.5)
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


def test_moving_average_with_warmup() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1))
    average = WeightAverage(model, Ema(decay=0.5, warmup=True))
    expected = float(model[0].weight.detach())  # type: ignore[arg-type]
    for step in range(1, 30):
        with torch.no_grad():
            model[0].weight.fill_(step)  # type: ignore[operator]
            model[1].running_mean.fill_(step)  # type: ignore[operator]
            model[1].num_batches_tracked.fill_(step)  # type: ignore[operator]
        average.update(step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    assert float(average.tensors["0.weight"]) == pytest.approx(expected, rel=1e-5)
    assert int(average.tensors["1.num_batches_tracked"]) == 29
    assert float(average.tensors["1.running_mean"]) > 27
