"""What comes after training on the device: evaluation, prediction, export."""

from pathlib import Path

import pytest

from .product import Product

LOSS_TOLERANCE = 1e-3
"""Relative difference of an evaluation's loss on the device and on the CPU, with the same weights."""


def test_an_evaluation_has_the_result_of_the_cpu(product: Product) -> None:
    run = product.trained(f"everything-{product.device}", product.everything())
    here = product.run("eval", str(run), "--json").json()
    cpu = product.run("eval", str(run), "--json", "--set", "machine.device=cpu").json()
    assert here["samples"] == cpu["samples"] == 50
    assert here["loss"] == pytest.approx(cpu["loss"], rel=LOSS_TOLERANCE)
    assert here["ran"]["device"].startswith(product.device)


def test_an_exported_model_predicts(product: Product, tmp_path: Path) -> None:
    run = product.trained(f"everything-{product.device}", product.everything())
    file, images = tmp_path / "model.safetensors", product.classes / "val" / "star"
    product.run("export", str(run), "--out", str(file))
    exported = product.run("predict", str(file), str(images), "--json", "--set", f"machine.device={product.device}")
    direct = product.run("predict", str(run), str(images), "--json")
    assert len(direct.json()["images"]) == 5
    assert exported.json()["images"] == direct.json()["images"]


def test_a_detector_evaluates_and_predicts(product: Product) -> None:
    run = product.trained(f"detector-{product.device}", product.detector())
    assert product.run("eval", str(run), "--json").json()["samples"] == 10
    images = product.run("predict", str(run), str(product.boxes / "val"), "--json").json()["images"]
    assert len(images) == 10
    assert any(image["found"] for image in images)
