"""What is counted in the real module, beside the arithmetic of its layers' shapes and what autograd keeps of it."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vernier import models
from vernier.models import Options
from vernier.models.resnet import BlurConv2d
from vernier.models.trace import count

BATCH = 2


def count_by_shapes(name: str, px: int, options: dict[str, Any]) -> tuple[int, int]:
    """Parameters, and multiply-accumulates per image: every output of a layer needs one per weight of a row."""
    macs = []

    def add(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        assert isinstance(module, nn.Conv2d | nn.Linear)
        macs.append(output.numel() // BATCH * module.weight[0].numel())
        if isinstance(module, BlurConv2d):
            macs.append(inputs[0].numel() // BATCH * 9)

    with torch.device("meta"):
        model = models.build(name, **options)
        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.register_forward_hook(add)
        model(torch.empty(BATCH, options.get("in_channels", 3), px, px))
    return sum(p.numel() for p in model.parameters()), sum(macs)


@pytest.mark.parametrize("entry", models.describe(), ids=lambda entry: entry.name)
def test_every_model_at_its_own_size(entry: models.ModelInfo) -> None:
    assert (entry.params, entry.macs) == count_by_shapes(entry.name, entry.input_px, {"num_classes": entry.classes})


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
        ("convnext-tiny", 96, {"num_classes": 21, "width": 32}),
    ],
)
def test_options_and_sizes(name: str, px: int, options: dict[str, Any]) -> None:
    result = count(name, Options(**options), px)
    assert (result.params, result.macs) == count_by_shapes(name, px, options)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        # An image of 32 pixels. The stem: a convolution's output for the batch norm, and what the next layer reads.
        ("resnet8-small", [2 * 16 * 32**2]),
        # Of the stem GELU keeps its input and its output is read; then a pool, with positions of 64 bits.
        ("airbench94", [2 * 24 * 31**2, 64 * 31**2 + 5 * 64 * 15**2, 3 * 64 * 15**2]),
    ],
)
def test_values_that_autograd_keeps_of_the_first_layers(name: str, values: list[int]) -> None:
    result = count(name, Options(num_classes=10), 32)
    assert [layer.saved for layer in result.layers][: len(values)] == values


def test_parts_are_the_stem_the_blocks_and_the_head() -> None:
    parts = [layer.part for layer in count("convnext-tiny", Options(num_classes=3, width=8), 64).layers]
    assert parts == sorted(parts)
    assert set(parts) == set(range(1 + 18 + 1))
    # Downsampling belongs to the first block of its stage.
    assert [parts.count(part) for part in (0, 1, 3, 4, 5, 19)] == [1, 3, 3, 4, 3, 1]


def test_counting_changes_nothing_outside() -> None:
    """A run counts its model after the seed is set and before weights are drawn."""
    before = torch.get_rng_state()
    with torch.inference_mode():
        count("resnet8-small", Options(num_classes=3), 32)
    assert torch.equal(torch.get_rng_state(), before)
