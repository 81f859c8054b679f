"""Which parameters are decayed, and the learning rate of each depth."""

import pytest
import torch

from vernier.models import build
from vernier.optim.groups import parameter_groups, split_by_decay
from vernier.optim.kinds.sgd import Sgd


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


def test_the_backbone_can_learn_more_slowly_than_the_head() -> None:
    with torch.device("meta"):
        network = build("ssd-fpn-resnet18", num_classes=4)
    names = {id(p): n for n, p in network.named_parameters()}
    groups = parameter_groups(network, Sgd(backbone_lr_share=0.1))
    shares = {names[id(p)].partition(".")[0]: group["lr_share"] for group in groups for p in group["params"]}
    assert shares == {"backbone": 0.1, "pyramid": 1.0, "extras": 1.0, "loc": 1.0, "conf": 1.0}


def test_a_head_that_begins_before_the_others_has_groups_of_its_own() -> None:
    """A fused optimiser starts the momentum of a group as a whole."""
    with torch.device("meta"):
        network = build("resnet8-small", num_classes=4)
    head = {id(p) for n, p in network.named_parameters() if n.startswith("fc.")}
    groups = parameter_groups(network, Sgd(), head_apart=True)
    assert all(len(head & {id(p) for p in group["params"]}) in (0, len(group["params"])) for group in groups)
    assert {group["lr_share"] for group in groups} == {1.0}
    assert sum(len(group["params"]) for group in groups) == len(names_of(network))


def names_of(network: torch.nn.Module) -> list[str]:
    return [name for name, _ in network.named_parameters()]


def _lr_shares(model: str, layer_decay: float) -> dict[str, float]:
    with torch.device("meta"):
        network = build(model, num_classes=10)
    shares = {
        id(p): g["lr_share"] for g in parameter_groups(network, Sgd(layer_decay=layer_decay)) for p in g["params"]
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
        groups = parameter_groups(build("resnet18", num_classes=10), Sgd())
    assert [g["lr_share"] for g in groups] == [1.0, 1.0]
