"""The cost of networks by arithmetic is what PyTorch counts in the real network."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vernier import models
from vernier.models import Options
from vernier.models.cost import cost


def counted_by_torch(name: str, px: int, **options: Any) -> tuple[int, int]:
    """Parameters and multiply-accumulates per image of the real network, on the meta device."""
    with torch.device("meta"):
        model = models.build(name, **options)
        images = torch.empty(2, options.get("in_channels", 3), px, px)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(images)
    return sum(p.numel() for p in model.parameters()), counter.get_total_flops() // 2 // 2


@pytest.mark.parametrize("name", models.names())
def test_cost_of_every_network_is_what_torch_counts(name: str) -> None:
    entry = models.info(name)
    result = cost(name, Options(num_classes=entry.classes), entry.input_px)
    assert (result.params, result.macs) == (entry.params, entry.macs)
    px = {"image_px": entry.input_px} if models.is_detector(name) else {}
    assert (result.params, result.macs) == counted_by_torch(name, entry.input_px, num_classes=entry.classes, **px)


@pytest.mark.parametrize(
    ("name", "px", "options"),
    [
        ("resnet50", 160, {"num_classes": 1001, "blurpool": True}),
        ("resnet50", 63, {"num_classes": 7, "width": 32}),
        ("resnet8-small", 64, {"num_classes": 10, "width": 32, "stem": "imagenet"}),
        ("resnet8-small", 29, {"num_classes": 10, "stem": "small-pool", "in_channels": 1}),
        ("airbench94", 28, {"num_classes": 7, "width": 24, "in_channels": 1}),
        ("ssd-small", 256, {"num_classes": 4, "width": 32, "box_sizes": (0.07, 0.17, 0.36), "image_px": 256}),
        ("ssd300-resnet50", 512, {"num_classes": 21, "image_px": 512}),
    ],
)
def test_cost_with_options_is_what_torch_counts(name: str, px: int, options: dict[str, Any]) -> None:
    result = cost(name, Options(**options), px)
    assert (result.params, result.macs) == counted_by_torch(name, px, **options)


def test_activations_grow_with_the_image() -> None:
    small, large = (cost("resnet50", Options(num_classes=1000), px) for px in (112, 224))
    assert 3.9 < large.activations / small.activations < 4.1


def test_counting_does_not_import_torch() -> None:
    code = (
        "import sys; from vernier.config import Model; from vernier.models.cost import cost_of; "
        "cost_of(Model(name='resnet50'), px=224); cost_of(Model(name='ssd300-resnet34'), px=300); "
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
