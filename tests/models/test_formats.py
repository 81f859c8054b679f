"""Weight formats plug in: TensorFlow's is found as one of an outside package would be."""

from pathlib import Path

import pytest
import torch

from vernier.models import formats, weights
from vernier.models.formats import WeightFormat, find_format


def test_other_files_are_not_claimed(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "x.pth")
    assert find_format(tmp_path / "x.pth") is None
    assert find_format(tmp_path / "none") is None


def test_tensorflow_is_found_through_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt-7.index").touch()
    (tmp_path / "model.ckpt-7.data-00000-of-00001").touch()
    found = find_format(tmp_path / "model.ckpt-7")
    assert found is not None
    assert found[0].about == "TensorFlow checkpoint"


def test_weights_of_an_outside_format_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "weights.mine"
    file.touch()
    mine = WeightFormat(
        about="My file",
        find=lambda path: path if path.suffix == ".mine" else None,
        read=lambda path: {"fc.weight": torch.ones(2, 2)},
    )
    monkeypatch.setattr(formats, "load_group", lambda group, kind: {"mine": mine})
    read = weights.read_file(file)
    assert list(read.state) == ["fc.weight"]
    assert read.notes == ("My file weights.mine",)
