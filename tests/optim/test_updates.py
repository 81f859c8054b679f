"""Decay groups, the optimiser and the moving average, against values worked out by hand or by plain PyTorch."""

import pytest
import torch
from torch import nn

from vernier.config import Ema, Optim
from vernier.engine.training.checkpoint import optimizer_tensors, restore_optimizer
from vernier.errors import ConfigError
from vernier.models import build
from vernier.optim.build import build_optimizer, set_lr
from vernier.optim.ema import WeightAverage
from vernier.optim.groups import parameter_groups, split


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


def test_the_average_is_updated_now_and_then_and_copies_at_first() -> None:
    """torchvision's: every so many steps of an epoch, copies while the rate warms up."""
    model = nn.Linear(1, 1, bias=False)
    average = WeightAverage(model, Ema(decay=0.5, warmup=False, every_steps=3, copy_epochs=1), steps_per_epoch=4)
    seen = []
    for step in range(1, 9):
        with torch.no_grad():
            model.weight.fill_(step)
        average.update(step)
        seen.append(float(average.tensors["weight"]))
    assert seen == [1, 1, 1, 4, 4.5, 4.5, 4.5, 6.25]


def _one_tensor(optim: Optim, lr: float, weights: list[float]) -> tuple[nn.Linear, torch.optim.Optimizer]:
    layer = nn.Linear(len(weights), 1, bias=True)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([weights]))
        layer.bias.fill_(1.0)
    return layer, build_optimizer(layer, optim, lr)


def test_lars_by_hand() -> None:
    """|w| = 5, |g| = 1: ratio 0.001 x 5 / (1 + 0.1 x 5) = 1/300; the rate is inside the momentum; the bias is skipped."""
    layer, optimizer = _one_tensor(
        Optim(name="lars", momentum=0.9, weight_decay=0.1, trust_coefficient=0.001), 3.0, [3.0, 4.0]
    )
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
    layer, optimizer = _one_tensor(Optim(name="lars", momentum=0.0, weight_decay=0.1), 0.5, [0.0, 0.0])
    layer.weight.grad = torch.tensor([[1.0, -1.0]])
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), torch.tensor([[-0.5, 0.5]]))


def test_lamb_by_hand() -> None:
    optim = Optim(name="lamb", momentum=0.9, beta2=0.99, eps=1e-6, weight_decay=0.02)
    layer, optimizer = _one_tensor(optim, 0.1, [3.0, 4.0])
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


@pytest.mark.parametrize("name", ["sgd", "lars", "lamb"])
def test_an_optimiser_goes_on_from_its_saved_state(name: str) -> None:
    def train(steps: int, layer: nn.Linear, optimizer: torch.optim.Optimizer, first: int = 0) -> None:
        for step in range(first, first + steps):
            layer.weight.grad = torch.full_like(layer.weight, 0.1 * step + 0.2)
            layer.bias.grad = torch.full_like(layer.bias, -0.3)
            optimizer.step()

    optim = Optim(name=name)  # type: ignore[arg-type]
    whole, optimizer = _one_tensor(optim, 0.1, [1.0, 2.0])
    train(4, whole, optimizer)
    half, optimizer = _one_tensor(optim, 0.1, [1.0, 2.0])
    train(2, half, optimizer)
    resumed, fresh = _one_tensor(optim, 0.1, [1.0, 2.0])
    resumed.load_state_dict(half.state_dict())
    restore_optimizer(resumed, fresh, optimizer_tensors(half, optimizer))
    train(2, resumed, fresh, first=2)
    assert torch.equal(whole.weight, resumed.weight)
    assert torch.equal(whole.bias, resumed.bias)


def test_layers_further_down_learn_slower() -> None:
    with torch.device("meta"):
        network = build("resnet18", num_classes=10)
    groups = parameter_groups(network, Optim(layer_decay=0.5))
    share = {id(p): g["lr_share"] for g in groups for p in g["params"]}
    named = dict(network.named_parameters())
    assert len(share) == len(named)
    assert share[id(named["fc.weight"])] == 1
    assert share[id(named["layer4.1.conv1.weight"])] == 0.5
    assert share[id(named["layer4.0.downsample.1.bias"])] == 0.25
    assert share[id(named["conv1.weight"])] == 0.5**9
    plain = build_optimizer(network, Optim(), 0.1)
    assert [g["lr_share"] for g in plain.param_groups] == [1.0, 1.0]


def test_the_rate_of_a_group_is_its_share_of_the_schedules() -> None:
    with torch.device("meta"):
        network = build("resnet18", num_classes=10)
    optimizer = build_optimizer(network, Optim(layer_decay=0.5, name="lamb"), 0.1)
    set_lr(optimizer, 0.8)
    assert {g["lr"] / g["lr_share"] for g in optimizer.param_groups} == {0.8}


def test_what_cannot_be_combined_is_refused() -> None:
    with pytest.raises(ConfigError, match="nesterov"):
        build_optimizer(nn.Linear(1, 1), Optim(name="lars", nesterov=True), 0.1)
    frozen = nn.Linear(1, 1).requires_grad_(False)
    with pytest.raises(ConfigError, match="Nothing is left to learn"):
        build_optimizer(frozen, Optim(), 0.1)
