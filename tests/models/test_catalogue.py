"""The catalogue: published sizes and costs, and requests that cannot be met."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from tests.models.small_networks import CLASSIFIERS
from vernier import models
from vernier.models import ModelInfo

PUBLISHED_PARAMS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnet50-v1": 25_557_032,
    "resnext50-32x4d": 25_028_904,
    "resnext101-32x4d": 44_177_704,
    "resnext101-32x8d": 88_791_336,
    "resnext101-64x4d": 83_455_272,
    "resnet20-cifar": 269_722,
}


PUBLISHED_GMAC = {"resnet50": 4.089, "resnet50-v1": 3.858, "resnext101-32x4d": 7.970}


@pytest.mark.parametrize("entry", models.describe(), ids=lambda entry: entry.name)
def test_layer_groups_are_those_of_the_network(entry: ModelInfo) -> None:
    with torch.device("meta"):
        model = models.build(entry.name, num_classes=entry.classes)
    assert models.layer_groups(entry.name) == tuple(dict.fromkeys(n.split(".")[0] for n, _ in model.named_parameters()))


PUBLISHED_CIFAR_MILLIONS = {20: 0.27, 32: 0.46, 44: 0.66, 56: 0.85, 110: 1.7}


@pytest.mark.parametrize("entry", CLASSIFIERS, ids=lambda entry: entry.name)
def test_depth_in_the_name_is_that_of_the_network(entry: ModelInfo) -> None:
    with torch.device("meta"):
        model = models.build(entry.name, num_classes=entry.classes)
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    aside = [name for name, _ in model.named_modules() if name.endswith(("downsample.0", "se.fc1", "se.fc2"))]
    assert str(entry.depth) in entry.name or entry.family == "airbench"  # named after its accuracy
    assert entry.depth == len(layers) - len(aside)


@pytest.mark.parametrize(("name", "params"), PUBLISHED_PARAMS.items())
def test_published_parameter_counts(name: str, params: int) -> None:
    assert models.info(name).params == params


@pytest.mark.parametrize(("name", "gmac"), PUBLISHED_GMAC.items())
def test_published_multiply_accumulates(name: str, gmac: float) -> None:
    assert round(models.info(name).gmac, 3) == gmac


@pytest.mark.parametrize(("depth", "millions"), PUBLISHED_CIFAR_MILLIONS.items())
def test_published_cifar_sizes(depth: int, millions: float) -> None:
    assert models.info(f"resnet{depth}-cifar").params / 1e6 == pytest.approx(millions, abs=0.03)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.build("resnet-50", num_classes=2), "Did you mean resnet50"),
        (lambda: models.build("resnet50", num_clases=2), "num_classes"),
        (lambda: models.build("resnet50"), "num_classes"),
        (lambda: models.build("resnext50-32x4d", num_classes=2, width=20), "32 groups"),
        (lambda: models.build("airbench94", num_classes=2, blurpool=True), "model.blurpool out"),
        (lambda: models.build("airbench94", num_classes=2, stem="small"), "model.stem out"),
    ],
)
def test_wrong_requests_say_what_would_work(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_listing_does_not_import_torch() -> None:
    code = "import sys, vernier.models as m; m.names(); m.describe()[0].gmac; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
