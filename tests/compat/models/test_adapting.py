"""The layout of a module: found in its layers, or its own."""

from torch import nn

from vernier.compat.models.adapting import adapt
from vernier.models.contract import Layout, layout_of

from .my_models import Net


def test_parts_are_found_in_the_order_of_the_layers() -> None:
    layout = layout_of(adapt(Net(num_classes=10), 10))
    assert layout.classifier == "head"
    depths = {"position": 0, "model.0.weight": 0, "model.1.0.conv.weight": 1, "model.1.1.conv.bias": 2, "head.bias": 3}
    assert {name: layout.depth_of(name) for name in depths} == depths
    assert layout.frozen_parts(("backbone",)) == 3


def test_inside_of_a_wrapper_and_without_a_backbone() -> None:
    wrapped = layout_of(adapt(nn.ModuleDict({"net": Net(num_classes=10)}), 10))
    assert (wrapped.classifier, wrapped.depth_of("net.model.1.0.conv.weight")) == ("net.head", 1)
    head = layout_of(adapt(nn.Sequential(nn.Flatten(), nn.Linear(4, 10)), 10))
    assert (head.classifier, head.lowest, head.in_backbone("1.weight")) == ("1", (), False)


def test_a_layout_of_its_own_is_taken_at_its_word() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    module.layout = Layout(stem=("0",), stages=(), blocks=(), classifier="3")  # type: ignore[assignment]
    assert layout_of(adapt(module, 10)) == Layout(stem=("0",), stages=(), blocks=(), classifier="3", outside=True)
