"""`vernier export`: networks that other runtimes run as PyTorch does, and the card beside them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import TINY, Done, only_run
from tests.integration.test_detect import boxes, train  # noqa: F401
from vernier.cli import main
from vernier.data.sources import open_split

Vernier = Callable[..., Done]


@pytest.fixture(scope="module")
def run(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trained classifier with two outputs that no class has, and averaged weights."""
    out = tmp_path_factory.mktemp("runs")
    extra = ["--set", "ema.decay=0.5", "--set", "model.unused_outputs=2", "--max-steps", "6"]
    assert main(["train", "--data", str(shapes), "--out", str(out), *TINY, *extra]) == 0
    return only_run(out)


def _pixels(shapes: Path, count: int) -> np.ndarray:
    source = open_split(str(shapes), "val")
    return np.stack([source.image(i) for i in range(count)]).transpose(0, 3, 1, 2).copy()


def _predicted(run: Path, shapes: Path, vernier_here: Vernier) -> list[str]:
    done = vernier_here("predict", str(run), str(shapes / "val"), "--json")
    return [image["found"][0]["class"] for image in done.json()["images"]]


def test_onnx_gives_the_same_classes_in_another_runtime(
    run: Path, shapes: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    out = tmp_path / "mine.onnx"
    done = vernier_here("export", str(run), "--format", "onnx", "--out", str(out), "--json")
    assert done.code == 0, done.err
    document = done.json()
    assert document["check"]["same_top1"] == document["check"]["images"] == 50
    assert 0 <= document["check"]["max_difference"] < 1e-3
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    expected = _predicted(run, shapes, vernier_here)
    for count in (1, 7):
        (logits,) = session.run(["logits"], {"images": _pixels(shapes, count)})
        assert logits.shape == (count, 10)
        assert [classes[c] for c in logits.argmax(1)] == expected[:count]
    card = (tmp_path / "model_card.md").read_text()
    assert f"{document['check']['max_difference']:.2g}" in card
    assert "the same class for 50 of 50" in card
    assert list(tmp_path.glob(".*")) == []


def test_torch_export_is_read_back_and_takes_normalised_images(
    run: Path, shapes: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    out = tmp_path / "mine.pt2"
    done = vernier_here("export", str(run), "--format", "torch-export", "--normalized-input", "--out", str(out))
    assert done.code == 0, done.err
    assert done.out.strip() == str(out)
    assert "the same class for 50 of 50" in done.err
    files = {"about.json": ""}
    network = torch.export.load(out, extra_files=files).module()
    about = json.loads(files["about.json"])
    mean, std = (torch.tensor(json.loads(about[k])).view(1, 3, 1, 1) for k in ("mean", "std"))
    images = (torch.from_numpy(_pixels(shapes, 9)) / 255 - mean) / std
    classes = [json.loads(about["classes"])[c] for c in network(images).argmax(1)]
    assert classes == _predicted(run, shapes, vernier_here)[:9]


def test_one_card_for_the_same_weights_and_another_for_others(run: Path, vernier_here: Vernier, tmp_path: Path) -> None:
    for arguments in (["--out", "a.safetensors"], ["--out", "b.pt2", "--format", "torch-export"]):
        name = str(tmp_path / arguments[1])
        assert vernier_here("export", str(run), "--out", name, *arguments[2:]).code == 0
    card = (tmp_path / "model_card.md").read_text()
    assert card.count(": resnet8-small, 10 classes\n") == 1
    assert "`a.safetensors`" in card
    assert "`b.pt2`" in card
    for section in ("Model", "Result", "Recipe", "Data", "Trained on", "Limits", "Files"):
        assert f"\n## {section}\n" in card
    assert "6 of 60 steps" in card
    assert "on 50 validation images" in card
    other = vernier_here("export", str(run), "--no-ema", "--out", str(tmp_path / "raw.safetensors"), "--json").json()
    assert Path(other["card"]).name == "raw.safetensors.model_card.md"
    assert "not exactly the weights that were evaluated" in Path(other["card"]).read_text()
    assert (tmp_path / "model_card.md").read_text() == card
    bare = vernier_here("export", str(run), "--no-card", "--out", str(tmp_path / "bare.safetensors"), "--json").json()
    assert bare["card"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "onnx", "--data", "/no/such/place"], "give --data PATH"),
        (["--format", "safetensors", "--normalised-input"], "weights alone"),
        (["--format", "onnx", "--out", "/no/such/folder/x.onnx"], "does not exist"),
        (["--format", "onn"], "Did you mean onnx?"),
        (["--format", "torch-export", "--data", "{shapes}/val/disc"], "--data PATH"),
        (["--which", "77"], "no 77 checkpoint"),
    ],
)
def test_wrong_exports_are_refused_with_a_remedy(
    run: Path,
    shapes: Path,
    vernier_here: Vernier,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = vernier_here("export", str(run), *(a.format(shapes=shapes) for a in arguments))
    assert done.code == 2, done.out
    assert words in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can write")
@pytest.mark.parametrize("form", ["safetensors", "torch-export"])
def test_a_folder_without_write_permission_is_an_error(run: Path, vernier_here: Vernier, form: str) -> None:
    done = vernier_here("export", str(run), "--format", form, "--out", "/proc/self/x.bin")
    assert done.code == 2
    assert "Cannot write /proc/self/x.bin" in done.err
    assert "Traceback" not in done.err


def test_a_detector_is_exported_with_both_outputs(
    boxes: Path,  # noqa: F811
    vernier_here: Vernier,
    tmp_path: Path,
) -> None:
    assert train(vernier_here, boxes, tmp_path / "runs", "--max-steps", "2", "--train-only").code == 0
    run, out = str(only_run(tmp_path / "runs")), tmp_path / "ssd.pt2"
    done = vernier_here("export", run, "--format", "torch-export", "--out", str(out), "--json")
    assert done.code == 0, done.err
    assert done.json()["check"]["same_top1"] is None
    assert done.json()["check"]["images"] == 10
    network = torch.export.load(out).module()
    offsets, logits = network(torch.zeros((3, 3, 96, 96), dtype=torch.uint8))
    assert offsets.shape == (3, 756, 4)
    assert logits.shape == (3, 756, 11)
    assert "resized to 96 x 96 px" in (tmp_path / "model_card.md").read_text()
    refused = vernier_here("export", run, "--format", "torchvision", "--out", str(tmp_path / "ssd.pth"))
    assert refused.code == 2
    assert "it is a detector" in refused.err
