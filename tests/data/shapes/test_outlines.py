"""The ten outlines are different shapes inside the unit circle."""

from typing import Any

import numpy as np

from vernier.data.shapes import CLASSES
from vernier.data.shapes.outlines import OUTLINES


def _inside() -> dict[str, Any]:
    """The pixels inside each outline, on a grid that is larger than the unit circle."""
    steps = np.linspace(-1.5, 1.5, 121, dtype=np.float32)
    return {name: outline(steps[None, :], steps[:, None]) <= 0 for name, outline in OUTLINES.items()}


def test_every_outline_fills_a_part_of_the_unit_circle() -> None:
    steps = np.linspace(-1.5, 1.5, 121)
    reach = np.hypot(steps[None, :], steps[:, None])
    for name, inside in _inside().items():
        assert 0.1 < inside.sum() / (reach <= 1).sum() < 0.95, name
        assert reach[inside].max() < 1.1, name


def test_no_two_outlines_are_alike() -> None:
    shapes = list(_inside().values())
    assert tuple(sorted(OUTLINES)) == CLASSES
    for number, first in enumerate(shapes):
        for second in shapes[:number]:
            assert (first & second).sum() < 0.9 * (first | second).sum()
