"""A network is exported once; other weights are another file; the oldest files go."""

import os
from pathlib import Path

import pytest
import torch

from tests.engine.runtimes.small_model import small_model
from vernier.engine.inference.export import ExportedNetwork
from vernier.engine.runtimes import onnx_cache
from vernier.engine.runtimes.onnx_cache import KEPT_FILES, cached_file, onnx_file
from vernier.errors import RunFailed


def test_the_same_weights_are_exported_once(shapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    monkeypatch.setattr(onnx_cache, "save_onnx", lambda network, names, images, path, metadata: written.append(path))
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

    monkeypatch.setattr(onnx_cache, "save_onnx", fail)
    trained, images = small_model(shapes), torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    with pytest.raises(RunFailed, match=r"cannot be exported to ONNX: no such operator\."):
        onnx_file(trained, ExportedNetwork(trained, normalized_input=False), images)
    assert list(own_cache.iterdir()) == []


def test_only_the_newest_files_stay(own_cache: Path) -> None:
    for number in range(KEPT_FILES + 2):
        path = cached_file(f"{number:032}", lambda path: None)
        os.utime(path, (number, number))
    cached_file("f" * 32, lambda path: None)
    names = sorted(path.stem for path in own_cache.iterdir())
    assert len(names) == KEPT_FILES
    assert names[0] == f"{3:032}"
