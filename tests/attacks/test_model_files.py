"""Model files from strangers: archives of torch.export and TorchScript, ONNX files that lead elsewhere, bombs."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from vernier.data.decoding.decode import BadImage, decode
from vernier.engine.inference.model_file import FileNetwork, kind_of, open_network
from vernier.errors import ConfigError, RunFailed
from vernier.models.weights import read_file


class _Payload:
    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self._mark,))


def test_an_archive_of_torch_export_runs_no_code(tmp_path: Path) -> None:
    """A real .pt2 file, and one whose constants and custom objects are hostile pickles."""
    mark, file = tmp_path / "executed", tmp_path / "model.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), file)
    with pytest.raises(ConfigError):
        read_file(file)
    payload = pickle.dumps(_Payload(mark))
    with zipfile.ZipFile(file) as sound, zipfile.ZipFile(tmp_path / "hostile.pt2", "w") as hostile:
        for name in sound.namelist():
            is_json = name.endswith((".json", "version", "byteorder", "archive_format"))
            hostile.writestr(name, sound.read(name) if is_json else payload)
        hostile.writestr("model/data.pkl", payload)
    with pytest.raises(ConfigError):
        read_file(tmp_path / "hostile.pt2")
    assert not mark.exists()


def test_torchscript_is_refused_and_not_run(tmp_path: Path) -> None:
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(tmp_path / "model.pt"))
    with pytest.raises(ConfigError):
        read_file(tmp_path / "model.pt")


@pytest.mark.parametrize("place", ["absolute", "parent", "link"])
def test_weights_of_an_onnx_file_are_not_read_from_another_folder(tmp_path: Path, place: str) -> None:
    """External data is a path in the file: it must not lead to what only this user can read."""
    onnx = pytest.importorskip("onnx", reason="needs vernier[onnx]")
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    secret, folder = tmp_path / "secret", tmp_path / "models"
    secret.write_bytes(np.arange(4, dtype=np.float32).tobytes())
    folder.mkdir()
    (folder / "link").symlink_to(secret)
    location = {"absolute": str(secret), "parent": "../secret", "link": "link"}[place]
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[4], data_location=1)
    weight.external_data.add(key="location", value=location)
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])], "g", values[:1], values[1:], [weight]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    assert kind_of(folder / "model.onnx") == "onnx"
    with pytest.raises((ConfigError, RunFailed)):
        _sum_of(open_network(folder / "model.onnx", "onnx"))


def _sum_of(network: FileNetwork) -> torch.Tensor:
    answer: torch.Tensor = network(torch.zeros(4))
    return answer


def test_an_onnx_file_with_operations_of_its_own_is_refused(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs vernier[onnx]")
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in ("x", "y")]
    node = onnx.helper.make_node("PyOp", ["x"], ["y"], domain="ai.onnx.contrib", code="import os")
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    onnx.save(onnx.helper.make_model(graph, ir_version=8), tmp_path / "x.onnx")
    with pytest.raises((ConfigError, RunFailed)):
        open_network(tmp_path / "x.onnx", "onnx")


def test_a_weights_archive_that_unpacks_to_gigabytes_takes_no_such_memory(tmp_path: Path) -> None:
    """torch.load reads stored members only; this one is compressed: a gigabyte of zeros in a megabyte."""
    with zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("archive/data.pkl", "w", force_zip64=True) as member:
            for _ in range(256):
                member.write(bytes(1 << 22))
        archive.writestr("archive/version", b"3\n")
    before = Path("/proc/self/status").read_text()
    with pytest.raises(ConfigError):
        read_file(tmp_path / "bomb.pth")
    assert _peak_mb(Path("/proc/self/status").read_text()) - _peak_mb(before) < 512


def _peak_mb(status: str) -> int:
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) >> 10


@pytest.mark.parametrize("form", ["PNG", "GIF", "TIFF", "WEBP"])
def test_an_image_of_one_colour_that_claims_a_billion_pixels_is_refused(form: str) -> None:
    from PIL import Image

    out = io.BytesIO()
    Image.new("L", (64, 64)).save(out, form)
    small = bytearray(out.getvalue())
    if form == "PNG":
        small[16:24] = (40_000).to_bytes(4, "big") * 2
    elif form == "GIF":
        small[6:10] = (65_000).to_bytes(2, "little") * 2
    elif form == "TIFF":
        for tag in (b"\x00\x01", b"\x01\x01"):  # width and height, little-endian
            at = (
                small.index(tag + b"\x04\x00\x01")
                if tag + b"\x04\x00\x01" in small
                else small.index(tag + b"\x03\x00\x01")
            )
            small[at + 2 : at + 12] = b"\x04\x00\x01\x00\x00\x00" + (40_000).to_bytes(4, "little")
    else:
        small = bytearray(b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0") + (39_999).to_bytes(3, "little") * 2
    with pytest.raises(BadImage):
        decode(bytes(small))
