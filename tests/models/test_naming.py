"""Names of layers in other code bases, and recognising networks by their weights."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.models.small_networks import same, tiny
from vernier import models
from vernier.models import Options, weights
from vernier.models.resnet import Arch, ResNet


def tiny_se() -> ResNet:
    arch = Arch(block="bottleneck", blocks=(1, 1, 1, 1), width=64, groups=32, group_width=4, squeeze=16)
    return ResNet(arch, Options(num_classes=3))


def test_two_models_in_one_state_are_not_merged() -> None:
    with pytest.raises(ValueError, match="two models"):
        weights.translate({"conv1.weight": torch.zeros(1), "module.conv1.weight": torch.zeros(1)})


def torchvision_like(net: ResNet) -> dict[str, Tensor]:
    return net.state_dict()


def nvidia_dle(net: ResNet) -> dict[str, Tensor]:
    """HEAD of NVIDIA's Deep Learning Examples: stages in one Sequential, SE as 1x1 convolutions."""
    outer = nn.Module()
    outer.conv1, outer.bn1, outer.fc = net.conv1, net.bn1, net.fc
    outer.layers = nn.Sequential(*net.stages)
    swapped = {
        key.replace(".se.fc1.", ".squeeze.squeeze.").replace(".se.fc2.", ".squeeze.expand."): value
        for key, value in outer.state_dict().items()
    }
    return {k: v[:, :, None, None] if ".squeeze." in k and v.dim() == 2 else v for k, v in swapped.items()}


def nvidia_2019(net: ResNet) -> dict[str, Tensor]:
    """The seed version: torchvision's names, SE as linear layers."""
    return {
        f"module.{key.replace('.se.fc1.', '.squeeze.squeeze.').replace('.se.fc2.', '.squeeze.expand.')}": value
        for key, value in net.state_dict().items()
    }


def timm_legacy(net: ResNet) -> dict[str, Tensor]:
    def old(key: str) -> str:
        stem = key.startswith(("conv1.", "bn1."))
        return ("layer0." if stem else "") + key.replace("fc.", "last_linear.", key.startswith("fc.")).replace(
            ".se.", ".se_module."
        )

    return {old(key): value for key, value in net.state_dict().items()}


@pytest.mark.parametrize(
    ("source", "foreign", "make"),
    [
        ("torchvision", torchvision_like, tiny),
        ("timm", torchvision_like, tiny_se),
        ("nvidia-dle", nvidia_dle, tiny),
        ("nvidia-dle", nvidia_dle, tiny_se),
        ("nvidia-dle", nvidia_2019, tiny_se),
        ("timm-legacy", timm_legacy, tiny_se),
    ],
)
def test_foreign_names_load_exactly(
    source: str, foreign: Callable[[ResNet], dict[str, Tensor]], make: Callable[[], ResNet]
) -> None:
    trained, fresh = make(), make()
    fitted, report = weights.adapt(foreign(trained), fresh)
    assert report.source == source
    assert same(fitted, trained.state_dict())
    assert (report.dropped, report.missing) == ((), ())
    fresh.load_state_dict(fitted)


def test_akamaster_linear_becomes_fc() -> None:
    net = models.build("resnet20-cifar", num_classes=10)
    theirs = {f"module.{key.replace('fc.', 'linear.')}": value for key, value in net.state_dict().items()}
    fitted, report = weights.adapt(theirs, models.build("resnet20-cifar", num_classes=10))
    assert same(fitted, net.state_dict())
    assert report.source == "akamaster-cifar"
    assert report.renamed == {"linear.weight": "fc.weight", "linear.bias": "fc.bias"}


@pytest.mark.parametrize("entry", models.describe(), ids=lambda entry: entry.name)
def test_identify_names_every_model_of_the_catalogue(entry: models.ModelInfo) -> None:
    with torch.device("meta"):
        state = models.build(entry.name, num_classes=17).state_dict()
    found = weights.identify({f"module.{key}": value for key, value in state.items()})
    assert found == entry.name.removesuffix("-v1")  # one set of names and shapes for both


def test_identify_does_not_guess_wildly() -> None:
    assert weights.identify({"classifier.weight": torch.zeros(3, 3)}) is None
    assert weights.identify({"conv1.weight": torch.zeros(8, 3, 3, 3)}) is None
    assert weights.identify(tiny_se().state_dict()) is None
