"""What an ONNX file says about itself, and what is missing to make one."""

from pathlib import Path

import pytest

from vernier.compat.export.onnx import require_onnx
from vernier.engine.inference.model_file import _read_metadata, kind_of
from vernier.errors import ConfigError


def test_metadata_of_an_onnx_file_needs_no_package(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs vernier[onnx]")
    graph = onnx.helper.make_graph([], "g", [], [])
    model = onnx.helper.make_model(graph)
    onnx.helper.set_model_props(model, {"model": "resnet50", "classes": '["ä"]'})
    onnx.save(model, tmp_path / "x.onnx")
    assert kind_of(tmp_path / "x.onnx") == "onnx"
    assert _read_metadata(tmp_path / "x.onnx") == {"model": "resnet50", "classes": '["ä"]'}
    cut = (tmp_path / "x.onnx").read_bytes()[:-5]
    (tmp_path / "cut.onnx").write_bytes(cut)
    with pytest.raises(ConfigError, match="is damaged"):
        _read_metadata(tmp_path / "cut.onnx")


def test_a_missing_package_is_named_with_its_command() -> None:
    require_onnx(("torch",), "This")
    with pytest.raises(ConfigError, match=r"This needs no-such-package: pip install 'vernier\[onnx\]'"):
        require_onnx(("no-such-package",), "This")
