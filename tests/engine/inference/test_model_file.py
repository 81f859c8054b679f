"""What a model file says about itself, and the network in it."""

import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from vernier.compat.export.onnx import FORMAT
from vernier.engine.inference.model_file import (
    _read_metadata,
    describe,
    kind_of,
    open_network,
    read_description,
    to_metadata,
)
from vernier.errors import ConfigError, RunFailed
from vernier.models import weights
from vernier.records.run import EvalResult, ModelFile

ABOUT = ModelFile(
    model="resnet8-small",
    network="resnet8-small, width 8",
    recipe="123",
    ran="train resnet8-small",
    settings={"schema": 2, "recipe": {"name": "tiny"}},
    classes=("a", "1"),
    mean=(0.5,),
    std=(0.25,),
    channels=1,
    eval_px=32,
    eval_short_side_px=36,
    interpolation="bicubic",
    pixels=True,
    step=7,
    result=EvalResult(samples=3, figures={"top1": 33.3}),
    figures={"top1": 33.3},
)


def test_a_description_survives_as_strings() -> None:
    metadata = to_metadata(ABOUT)
    assert all(isinstance(value, str) for value in metadata.values())
    assert metadata["format"] == "pt"
    assert describe(metadata, Path("x")) == ABOUT


def test_files_of_others_describe_nothing_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    assert describe({"format": "pt"}, tmp_path) is None
    with pytest.raises(ConfigError, match="cannot be read"):
        describe({"model": "resnet50", "classes": "7", "eval_px": "32"}, tmp_path)


def test_weights_carry_their_description(tmp_path: Path) -> None:
    state = {"fc.weight": torch.ones(2, 2)}
    weights.save_torch(state, tmp_path / "w.pth", to_metadata(ABOUT))
    weights.save_safetensors(state, tmp_path / "w.safetensors", to_metadata(ABOUT))
    for name, kind in (("w.pth", "torch"), ("w.safetensors", "safetensors")):
        assert kind_of(tmp_path / name) == kind
        assert read_description(tmp_path / name) == ABOUT
    assert list(torch.load(tmp_path / "w.pth", weights_only=True)) == ["fc.weight"]


class Sum(nn.Module):
    """The simplest network: the sum of every image."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.float().sum((1, 2, 3))[:, None]


def test_a_network_is_read_whatever_its_name_is(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    images = torch.ones(2, 3, 4, 4, dtype=torch.uint8)
    FORMAT.write(Sum().eval(), ("sums",), images, tmp_path / "renamed", {"model": "resnet8-small"})
    assert kind_of(tmp_path / "renamed") == "onnx"
    assert _read_metadata(tmp_path / "renamed") == {"model": "resnet8-small"}
    network = open_network(tmp_path / "renamed", "onnx").eval()
    assert network(torch.ones(5, 3, 4, 4, dtype=torch.uint8)).tolist() == [[48.0]] * 5
    assert "onnxruntime" in network.runtime


def test_a_damaged_safetensors_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes((2**40).to_bytes(8, "little") + b"{")
    with pytest.raises(ConfigError, match="is damaged"):
        _read_metadata(tmp_path / "x.safetensors")


def test_a_network_that_no_runtime_takes_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    (tmp_path / "x.onnx").write_bytes(b"\x08 and nothing else")
    with pytest.raises(RunFailed, match="cannot be run"):
        open_network(tmp_path / "x.onnx", "onnx")


def test_a_file_of_torch_export_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt2", "w") as archive:
        archive.writestr("x/models/model.json", "{}")
    assert kind_of(tmp_path / "x.pt2") == "torch"
    with pytest.raises(ConfigError, match="neither safetensors nor a torch file"):
        read_description(tmp_path / "x.pt2")
