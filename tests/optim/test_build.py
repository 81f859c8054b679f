"""The optimizer of a recipe: resuming, rates, state, and models without weights to train."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.optim.one_layer import one_layer
from vernier.config import Recipe, optimizers
from vernier.engine.training.checkpoints.contents import optimizer_tensors, restore_optimizer
from vernier.errors import ConfigError
from vernier.models import build
from vernier.optim.build import build_optimizer, set_lr
from vernier.optim.kinds.lamb import Lamb


@pytest.mark.parametrize("name", optimizers())
def test_an_optimizer_resumes_from_its_saved_state(name: str) -> None:
    def train(steps: int, layer: nn.Linear, optimizer: torch.optim.Optimizer, first: int = 0) -> None:
        for step in range(first, first + steps):
            layer.weight.grad = torch.full_like(layer.weight, 0.1 * step + 0.2)
            layer.bias.grad = torch.full_like(layer.bias, -0.3)
            optimizer.step()

    rates = {"bias_lr": 0.1, "head_lr": 0.1} if name == "muon" else {}
    optim = optimizers()[name](**rates)
    whole, optimizer = one_layer(optim, 0.1, [1.0, 2.0])
    train(4, whole, optimizer)
    half, optimizer = one_layer(optim, 0.1, [1.0, 2.0])
    train(2, half, optimizer)
    resumed, fresh = one_layer(optim, 0.1, [1.0, 2.0])
    resumed.load_state_dict(half.state_dict())
    restore_optimizer(resumed, fresh, optimizer_tensors(half, optimizer))
    train(2, resumed, fresh, first=2)
    assert torch.equal(whole.weight, resumed.weight)
    assert torch.equal(whole.bias, resumed.bias)


@pytest.mark.parametrize("name", optimizers())
def test_an_optimizer_keeps_the_tensors_it_names_and_nothing_else_of_their_size(name: str) -> None:
    """Memory is predicted from these names."""
    rates = {"bias_lr": 0.1, "head_lr": 0.1} if name == "muon" else {}
    layer, optimizer = one_layer(optimizers()[name](**rates), 0.1, [1.0, 2.0])
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    buffers = {key for key, value in optimizer.state[layer.weight].items() if value.numel() > 1}
    assert buffers == set(optimizers()[name].buffers)


def test_the_rate_of_a_group_is_its_share_of_the_schedules() -> None:
    with torch.device("meta"):
        network = build("resnet18", num_classes=10)
    optimizer = build_optimizer(network, Recipe(optim=Lamb(layer_decay=0.5)), 0.1)
    set_lr(optimizer, 0.8)
    assert {g["lr"] / g["lr_share"] for g in optimizer.param_groups} == {0.8}


def test_a_model_without_trainable_weights_is_refused() -> None:
    frozen = nn.Linear(1, 1).requires_grad_(False)
    with pytest.raises(ConfigError, match="Nothing is left to train"):
        build_optimizer(frozen, Recipe(), 0.1)


_UPDATES_ON_BOTH_DEVICES = """
import json
import rgpu, torch
from vernier.config import Ema, Recipe, optimizers
from vernier.optim.kinds.sgd import Sgd
from vernier.optim.kinds.lamb import Lamb
from vernier.engine.training.checkpoints.contents import optimizer_tensors, restore_optimizer
from vernier.models import build
from vernier.optim.build import build_optimizer, set_lr
from vernier.optim.ema import WeightAverage

def trained(name, device):
    torch.manual_seed(0)
    model = build("resnet8-small", num_classes=10, width=8).to(device)
    average, gradients = WeightAverage(model, Ema(decay=0.9)), torch.Generator().manual_seed(1)
    optimizer, round_trips = build_optimizer(model, Recipe(optim=optimizers()[name]()), 0.1), 0
    for step in range(4):
        if step == 2:
            saved = {key: tensor.cpu() for key, tensor in optimizer_tensors(model, optimizer).items()}
            optimizer = build_optimizer(model, Recipe(optim=optimizers()[name]()), 0.1)
            restore_optimizer(model, optimizer, saved)
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=gradients).to(device)
        before = rgpu.session.get().stats["waits"]
        set_lr(optimizer, 0.05)
        optimizer.step()
        average.update(step + 1)
        round_trips += rgpu.session.get().stats["waits"] - before
    tensors = [*average.tensors.values(), *model.parameters()]
    return torch.cat([t.detach().cpu().flatten().float() for t in tensors]), round_trips

results = {}
for name in ("sgd", "lars", "lamb", "adamw"):
    (cpu, _), (device, round_trips) = trained(name, "cpu"), trained(name, "rgpu")
    results[name] = [float((cpu - device).norm() / cpu.norm()), round_trips]
print(json.dumps(results))
"""


@pytest.mark.slow
def test_updates_and_averages_on_a_device_that_queues_are_those_of_the_cpu_and_read_nothing(
    on_rgpu: Callable[..., Any],
) -> None:
    """Across a checkpoint too: a step counter that came back to the device would be read in every step."""
    for name, (apart, round_trips) in on_rgpu(_UPDATES_ON_BOTH_DEVICES).items():
        assert apart < 1e-6, name
        assert round_trips == 0, name
