"""Which parameters are decayed, and the learning rate of each depth."""

import pytest
import torch

from vernier.config import Optim
from vernier.models import build
from vernier.optim.groups import parameter_groups, split_by_decay


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
    with_decay, without = split_by_decay(network, rule)
    assert (len(without), len(with_decay)) == (exempt, decayed)


def test_nvidia_rule_decays_the_projection_norms() -> None:
    with torch.device("meta"):
        network = build("resnet50", num_classes=1000)
    decayed = {id(p) for p in split_by_decay(network, "nvidia-name")[0]}
    projections = [p for n, p in network.named_parameters() if "downsample.1" in n]
    assert len(projections) == 8
    assert sum(p.numel() for p in projections) == 7680
    assert all(id(p) in decayed for p in projections)


def _lr_shares(model: str, layer_decay: float) -> dict[str, float]:
    with torch.device("meta"):
        network = build(model, num_classes=10)
    shares = {id(p): g.lr_share for g in parameter_groups(network, Optim(layer_decay=layer_decay)) for p in g.params}
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


def test_without_layer_decay_there_are_two_groups_at_the_full_rate() -> None:
    with torch.device("meta"):
        groups = parameter_groups(build("resnet18", num_classes=10), Optim())
    assert [g.lr_share for g in groups] == [1.0, 1.0]
