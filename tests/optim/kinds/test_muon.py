"""Muon: filters by hand, the others as SGD, and which weight belongs to which."""

import pytest
import torch
from torch import nn

from vernier.config import Recipe
from vernier.models import build
from vernier.optim.build import build_optimizer, set_lr
from vernier.optim.kinds.muon import Muon, _orthogonalised

MUON = Recipe(optim=Muon(lr=0.2, bias_lr=4.0, head_lr=0.1, momentum=0.8, filter_momentum=0.5, weight_decay=0.05))


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (6, 6)])
def test_singular_values_come_out_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(_orthogonalised(torch.randn(shape) * 100))
    assert values.min() > 0.3
    assert values.max() < 1.6


def test_the_directions_of_a_matrix_stay() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(4, 9, dtype=torch.float64)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    turned = left.T @ _orthogonalised(matrix) @ right.T
    assert (turned - torch.diag(turned.diag())).abs().max() < 1e-6


def test_filters_by_hand() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, 3, bias=False)
    optimizer = build_optimizer(conv, MUON, 0.2)
    w, v = conv.weight.detach().clone(), torch.zeros_like(conv.weight)
    for rate in (0.2, 0.1):
        gradient = torch.randn_like(w)
        conv.weight.grad = gradient.clone()
        set_lr(optimizer, rate)
        optimizer.step()
        v = 0.5 * v + gradient
        w = w * 2 / w.norm()  # sqrt(4 filters)
        w = w - rate * _orthogonalised((gradient + 0.5 * v).reshape(4, -1)).reshape(w.shape)
    torch.testing.assert_close(conv.weight.detach(), w)


def test_the_head_and_biases_by_hand() -> None:
    network = build("airbench94", num_classes=3, width=8)
    optimizer = build_optimizer(network, MUON, 0.2)
    watched = {"fc.weight": 0.1, "layer1.0.bn1.bias": 4.0, "conv1.bias": 4.0}
    parameters = dict(network.named_parameters())
    weights = {name: parameters[name].detach().clone() for name in watched}
    buffers = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for rate in (0.2, 0.1):
        set_lr(optimizer, rate)
        for name, peak in watched.items():
            gradient = torch.randn_like(weights[name])
            parameters[name].grad = gradient.clone()
            decayed = gradient + 0.05 * 0.2 / peak * weights[name]
            buffers[name] = 0.8 * buffers[name] + decayed
            weights[name] = weights[name] - peak * rate / 0.2 * (decayed + 0.8 * buffers[name])
        optimizer.step()
    for name, weight in weights.items():
        torch.testing.assert_close(parameters[name].detach(), weight)


def test_every_trained_weight_is_in_one_group() -> None:
    network = build("airbench94", num_classes=3, width=8)
    optimizer = build_optimizer(network, MUON, 0.2)
    names = {id(p): name for name, p in network.named_parameters() if p.requires_grad}
    groups = [sorted(names.pop(id(p)) for p in group["params"]) for group in optimizer.param_groups]
    assert not names
    assert groups[0] == sorted(f"layer{s}.0.conv{n}.weight" for s in (1, 2, 3) for n in (1, 2))
    assert groups[2] == ["fc.weight"]
