"""The contract that every family keeps, and what follows from a layout."""

import pytest
import torch

from vernier import models
from vernier.config import Model
from vernier.models.contract import Layout, layout_of, name_of

LAYOUT = Layout(stem=("stem",), stages=(("one",), ("two", "down")), blocks=(2, 11), classifier="head.fc")


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        ("stem.0.weight", 0),
        ("one.0.conv.weight", 1),
        ("one.1.conv.weight", 2),
        ("down.1.weight", 3),
        ("two.0.conv.weight", 3),
        ("two.10.conv.weight", 13),
        ("head.norm.weight", 14),
        ("stemmed.weight", 14),
    ],
)
def test_the_depth_of_a_parameter(name: str, depth: int) -> None:
    assert LAYOUT.depth_of(name) == depth
    assert LAYOUT.in_backbone(name) == (depth < LAYOUT.head_depth)


@pytest.mark.parametrize(
    ("freeze", "parts"),
    [
        ((), 0),
        (("backbone",), 14),
        (("stem",), 1),
        (("one",), 0),
        (("stem", "one"), 3),
        (("stem", "one", "two"), 3),
        (("stem", "one", "two", "down"), 14),
    ],
)
def test_frozen_parts_are_counted_from_the_input(freeze: tuple[str, ...], parts: int) -> None:
    assert LAYOUT.frozen_parts(freeze) == parts


@pytest.mark.parametrize("entry", models.describe(), ids=lambda entry: entry.name)
def test_every_model_keeps_the_contract(entry: models.ModelInfo) -> None:
    with torch.device("meta"):
        model = models.build(entry.name, num_classes=5)
    layout, names = layout_of(model), [name for name, _ in model.named_parameters()]
    assert name_of(model) == entry.name
    assert {layout.depth_of(name) for name in names} == set(range(layout.head_depth + 1))
    assert all(any(name.startswith(f"{lowest}.") for name in names) for lowest in layout.lowest)
    weight = layout.classifier_weight(names)
    assert weight is not None
    assert len(model.get_parameter(weight)) == 5 * layout.boxes
    assert layout.first_weight(model.state_dict()).shape[1] == 3  # type: ignore[union-attr]
    assert isinstance(models.entry_of(entry.name)[1].why_not_torchvision(Model(name=entry.name), 3), str)


def test_all_layers_of_a_module_without_a_layout_are_the_head() -> None:
    model = torch.nn.Linear(1, 1)
    assert not layout_of(model).in_backbone("weight")
    assert name_of(model) == "this Linear"
