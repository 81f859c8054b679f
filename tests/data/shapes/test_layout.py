"""Where objects lie: enough of every one is visible."""

from typing import Any

import pytest

from vernier.data.shapes import ShapesSpec
from vernier.data.shapes.layout import Random, lay_out


@pytest.mark.parametrize(("kind", "share"), [("classify", 0.75), ("detect", 0.60)])
def test_enough_of_every_object_is_visible(kind: Any, share: float) -> None:
    spec = ShapesSpec(kind=kind, size_px=64)
    for index in range(40):
        layout = lay_out(Random(0, 0, index), spec, index % 10)
        assert layout.classes[0] == index % 10
        assert len(layout.objects) == len(layout.classes) == len(layout.visible) <= (5 if kind == "detect" else 1)
        for body, mask in zip(layout.objects, layout.visible, strict=True):
            assert mask.sum() >= share * (body.distance <= 0).sum()
        assert sum(mask.astype(int) for mask in layout.visible).max() == 1, "no pixel belongs to two objects"
