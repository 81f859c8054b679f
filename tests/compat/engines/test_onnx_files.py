"""ONNX files for engines: cached exports, and their INT8 form."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.compat.engines.small_model import small_model
from vernier.compat.engines import onnx_files
from vernier.compat.engines.onnx_files import (
    KEPT_FILES,
    cached_file,
    divide,
    measure_accuracy,
    onnx_file,
    quantized_file,
)
from vernier.compat.export.network import ExportedNetwork
from vernier.engine.inference.model_file import FileNetwork
from vernier.errors import ConfigError, RunFailed
from vernier.tasks import task_of


def test_the_same_weights_are_exported_once(shapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    monkeypatch.setattr(onnx_files.FORMAT, "write", lambda network, names, images, path, metadata: written.append(path))
    trained, images = small_model(shapes), torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    network = ExportedNetwork(trained, normalized_input=False)
    first = onnx_file(trained, network, images)
    assert onnx_file(trained, network, images) == first
    with torch.no_grad():
        trained.model.fc.bias.add_(1)  # type: ignore[union-attr, operator]
    assert onnx_file(trained, network, images) != first
    assert len(written) == 2


def test_a_network_that_cannot_be_exported_is_refused_and_leaves_no_file(
    shapes: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TypeError("no such operator\nat line 3")

    monkeypatch.setattr(onnx_files.FORMAT, "write", fail)
    trained, images = small_model(shapes), torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    with pytest.raises(RunFailed, match=r"cannot be exported to ONNX: no such operator\."):
        onnx_file(trained, ExportedNetwork(trained, normalized_input=False), images)
    assert [path for path in own_cache.iterdir() if path.name != ".lock"] == []


def test_only_the_newest_files_stay(own_cache: Path) -> None:
    for number in range(KEPT_FILES + 2):
        path = cached_file(f"{number:032}", Path.touch)
        os.utime(path, (number, number))
    cached_file("f" * 32, Path.touch)
    names = sorted(path.stem for path in own_cache.glob("*.onnx"))
    assert len(names) == KEPT_FILES
    assert names[0] == f"{3:032}"


def test_no_image_is_calibrated_on_and_compared_on(shapes: Path) -> None:
    source = task_of(small_model(shapes).config.recipe).open("val")
    calibrated, compared = divide(source, str(shapes))
    assert (len(calibrated), len(compared)) == (17, 33)
    assert sorted({*calibrated.tolist(), *compared.tolist()}) == list(range(50))


def test_random_pixels_and_few_images_are_refused() -> None:
    with pytest.raises(ConfigError, match="random pixels") as caught:
        divide([], "synthetic")  # type: ignore[arg-type]
    assert caught.value.given == {"machine.int8": True, "data.source": "synthetic"}
    assert caught.value.works == [("data.source", "PATH")]
    with pytest.raises(ConfigError, match="3 are too few, give at least 30"):
        divide([1, 2, 3], "photos")  # type: ignore[arg-type]


def test_a_file_that_is_no_network_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x08\x07broken")
    with pytest.raises(RunFailed, match=r"cannot be quantized to INT8: "):
        quantized_file(broken, torch.zeros(8, 3, 8, 8, dtype=torch.uint8))


def _next_rows(rows: Iterator[torch.Tensor], images: torch.Tensor) -> tuple[torch.Tensor]:
    return (next(rows),)


def test_accuracy_is_that_of_both_networks_on_the_same_images(shapes: Path) -> None:
    trained = small_model(shapes)
    task = task_of(trained.config.recipe)
    source = task.open("val")
    _, compared = divide(source, str(shapes))
    labels = torch.tensor([int(source.labels[i]) for i in compared])
    right = torch.nn.functional.one_hot(labels, 10).float()
    half = torch.cat([right[:16], right[16:].roll(1, 1)])
    networks = [FileNetwork(partial(_next_rows, iter(torch.split(rows, 8))), "rows") for rows in (right, half)]
    accuracy = measure_accuracy(task, source, compared, *networks, labelled=True)
    assert (accuracy.images, accuracy.fp32) == (33, 100.0)
    assert accuracy.same_top1 == pytest.approx(16 / 33)
    assert accuracy.int8 == pytest.approx(100 * 16 / 33)
