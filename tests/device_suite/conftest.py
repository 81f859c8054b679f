"""The device under test, and tiny data."""

import os
from pathlib import Path

import pytest

from vernier.data.shapes import ShapesSpec, make_shapes

from .product import Product, device_under_test, once


@pytest.fixture(scope="session")
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, vernier_home: Path) -> Product:
    """The product on the device under test."""
    device, folder = device_under_test(), tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / "device-suite"
    folder.mkdir(exist_ok=True)
    environment = request.getfixturevalue("rgpu_environment") if device == "rgpu" else dict(os.environ)
    classes, boxes = folder / "classes", folder / "boxes"
    once(classes, lambda: make_shapes(classes, ShapesSpec(train=160, val=50, size_px=32, seed=3)))
    once(boxes, lambda: make_shapes(boxes, ShapesSpec(kind="detect", train=24, val=10, size_px=64, seed=5)))
    return Product(device=device, environment=environment, folder=folder, classes=classes, boxes=boxes)
