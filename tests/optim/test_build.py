"""The optimizer of a recipe: resuming, rates, state, and models without weights to train."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.optim.one_layer import one_layer
from vernier.config import Recipe, optimizers
from vernier.engine.training.checkpoints.contents import _optimizer_tensors, restore_optimizer
from vernier.errors import ConfigError
from vernier.models import build
from vernier.optim.build import _parameter_groups, _split_by_decay, build_optimizer, set_lr
from vernier.optim.kinds.lamb import Lamb
from vernier.optim.kinds.sgd import Sgd


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
    restore_optimizer(resumed, fresh, _optimizer_tensors(half, optimizer))
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
from vernier.engine.training.checkpoints.contents import _optimizer_tensors, restore_optimizer
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
            saved = {key: tensor.cpu() for key, tensor in _optimizer_tensors(model, optimizer).items()}
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


@pytest.mark.parametrize(
    ("model", "rule", "exempt", "decayed"),
    [
        ("resnet50", "nvidia-name", 98, 63),
        ("resnext101-32x4d", "nvidia-name", 200, 114),
        ("resnet50", "norm-and-bias", 107, 54),
        ("resnet50", "norm-only", 106, 55),
        ("resnet50", "all", 0, 161),
        ("resnet50", "vectors", 107, 54),
        ("convnext-tiny", "vectors", 123, 59),  # all layer scales, norms and biases
    ],
)
def test_decay_groups(model: str, rule: str, exempt: int, decayed: int) -> None:
    with torch.device("meta"):
        network = build(model, num_classes=1000)
    with_decay, without = _split_by_decay(network, rule)
    assert (len(without), len(with_decay)) == (exempt, decayed)


def test_nvidia_rule_decays_the_projection_norms() -> None:
    with torch.device("meta"):
        network = build("resnet50", num_classes=1000)
    decayed = {id(p) for p in _split_by_decay(network, "nvidia-name")[0]}
    projections = [p for n, p in network.named_parameters() if "downsample.1" in n]
    assert len(projections) == 8
    assert sum(p.numel() for p in projections) == 7680
    assert all(id(p) in decayed for p in projections)


def test_the_backbone_can_learn_more_slowly_than_the_head() -> None:
    with torch.device("meta"):
        network = build("ssd-fpn-resnet18", num_classes=4)
    names = {id(p): n for n, p in network.named_parameters()}
    groups = _parameter_groups(network, Sgd(backbone_lr_share=0.1))
    shares = {names[id(p)].partition(".")[0]: group["lr_share"] for group in groups for p in group["params"]}
    assert shares == {"backbone": 0.1, "pyramid": 1.0, "extras": 1.0, "loc": 1.0, "conf": 1.0}


def test_a_head_that_begins_before_the_others_has_groups_of_its_own() -> None:
    """A fused optimiser starts the momentum of a group as a whole."""
    with torch.device("meta"):
        network = build("resnet8-small", num_classes=4)
    head = {id(p) for n, p in network.named_parameters() if n.startswith("fc.")}
    groups = _parameter_groups(network, Sgd(), head_apart=True)
    assert all(len(head & {id(p) for p in group["params"]}) in (0, len(group["params"])) for group in groups)
    assert {group["lr_share"] for group in groups} == {1.0}
    assert sum(len(group["params"]) for group in groups) == len(names_of(network))


def names_of(network: torch.nn.Module) -> list[str]:
    return [name for name, _ in network.named_parameters()]


def _lr_shares(model: str, layer_decay: float) -> dict[str, float]:
    with torch.device("meta"):
        network = build(model, num_classes=10)
    shares = {
        id(p): g["lr_share"] for g in _parameter_groups(network, Sgd(layer_decay=layer_decay)) for p in g["params"]
    }
    return {name: shares[id(p)] for name, p in network.named_parameters()}


def test_lower_layers_of_a_classifier_learn_slower() -> None:
    share = _lr_shares("resnet18", 0.5)
    assert share["fc.weight"] == 1
    assert share["layer4.1.conv1.weight"] == 0.5
    assert share["layer4.0.downsample.1.bias"] == 0.25
    assert share["conv1.weight"] == share["bn1.bias"] == 0.5**9


def test_lower_layers_of_a_detectors_backbone_learn_slower() -> None:
    share = _lr_shares("ssd300-resnet18", 0.5)
    heads = [value for name, value in share.items() if not name.startswith("backbone.")]
    assert set(heads) == {1.0}
    assert share["backbone.layer3.1.conv1.weight"] == 0.5
    assert share["backbone.layer3.0.downsample.0.weight"] == 0.25
    assert share["backbone.layer1.0.bn1.weight"] == 0.5**6
    assert share["backbone.conv1.weight"] == share["backbone.bn1.bias"] == 0.5**7


def test_downsampling_learns_as_the_block_after_it() -> None:
    share = _lr_shares("convnext-tiny", 0.5)
    assert share["classifier.0.weight"] == share["classifier.2.bias"] == 1
    assert share["features.7.2.layer_scale"] == 0.5
    assert share["features.6.1.weight"] == share["features.7.0.block.0.weight"] == 0.5**3
    assert share["features.0.0.weight"] == share["features.0.1.bias"] == 0.5**19


def test_without_layer_decay_there_are_two_groups_at_the_full_rate() -> None:
    with torch.device("meta"):
        groups = _parameter_groups(build("resnet18", num_classes=10), Sgd())
    assert [g["lr_share"] for g in groups] == [1.0, 1.0]
