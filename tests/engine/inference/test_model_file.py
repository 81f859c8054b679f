"""What a model file says about itself, and the network in it."""

from pathlib import Path

import pytest
import torch
from torch import nn

from vernier.engine.inference.model_file import (
    describe,
    kind_of,
    open_network,
    read_description,
    read_metadata,
    require_onnx,
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
    images = torch.ones(2, 3, 4, 4, dtype=torch.uint8)
    program = torch.export.export(Sum(), (images,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, tmp_path / "x.pt2", extra_files={"about.json": '{"model": "resnet8-small"}'})
    (tmp_path / "x.pt2").rename(tmp_path / "renamed")
    assert kind_of(tmp_path / "renamed") == "torch-export"
    assert read_metadata(tmp_path / "renamed") == {"model": "resnet8-small"}
    network = open_network(tmp_path / "renamed", "torch-export").eval()
    assert network(torch.ones(5, 3, 4, 4, dtype=torch.uint8)).tolist() == [[48.0]] * 5
    assert "torch.export" in network.runtime


def test_metadata_of_an_onnx_file_needs_no_package(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs vernier[onnx]")
    graph = onnx.helper.make_graph([], "g", [], [])
    model = onnx.helper.make_model(graph)
    onnx.helper.set_model_props(model, {"model": "resnet50", "classes": '["ä"]'})
    onnx.save(model, tmp_path / "x.onnx")
    assert kind_of(tmp_path / "x.onnx") == "onnx"
    assert read_metadata(tmp_path / "x.onnx") == {"model": "resnet50", "classes": '["ä"]'}
    cut = (tmp_path / "x.onnx").read_bytes()[:-5]
    (tmp_path / "cut.onnx").write_bytes(cut)
    with pytest.raises(ConfigError, match="is damaged"):
        read_metadata(tmp_path / "cut.onnx")


def test_a_damaged_safetensors_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes((2**40).to_bytes(8, "little") + b"{")
    with pytest.raises(ConfigError, match="is damaged"):
        read_metadata(tmp_path / "x.safetensors")


def test_a_network_that_no_runtime_takes_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.pt2").write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(RunFailed, match="cannot be run"):
        open_network(tmp_path / "x.pt2", "torch-export")


def test_a_missing_package_is_named_with_its_command() -> None:
    require_onnx(("torch",), "This")
    with pytest.raises(ConfigError, match=r"This needs no-such-package: pip install 'vernier\[onnx\]'"):
        require_onnx(("no-such-package",), "This")
