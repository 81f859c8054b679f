"""Which model `eval`, `predict` and `export` are about, and what is refused."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import Done
from tests.data.http_server import Server
from vernier.data.preparing.pretrained import MIRROR, TORCHVISION
from vernier.engine.inference.preparation import published_as
from vernier.models import build

Vernier = Callable[..., Done]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    torch.save(build("resnet8-small", num_classes=3).state_dict(), tmp_path / "theirs.pth")
    return tmp_path / "theirs.pth"


def test_weights_are_the_model_whether_they_have_the_flag_or_not(
    theirs: Path, shapes: Path, vernier_here: Vernier
) -> None:
    photo = str(next((shapes / "val" / "disc").iterdir()))
    named = ["--model", "resnet8-small", "--classes", "cat,dog,emu", "--json"]
    by_flag, by_place = (
        vernier_here("predict", "--weights", str(theirs), photo, *named),
        vernier_here("predict", str(theirs), photo, *named),
    )
    assert by_flag.code == 0, by_flag.err
    assert by_flag.json() == by_place.json()
    assert by_flag.json()["classes"] == ["cat", "dog", "emu"]
    for command in ("eval", "predict", "export"):
        assert vernier_here(command).code == 2
        assert vernier_here(command, "/no/such", "x").code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--weights", "/no/such.pth", "photo.png"], "does not exist"),
        (["--weights", "{folder}", "photo.png"], "is a folder"),
        (["--weights", "{theirs}", "photo.png"], "they look like resnet8-small"),
        (["--weights", "{theirs}", "--model", "resnet8", "photo.png"], "Did you mean"),
        (["--weights", "{theirs}", "--model", "resnet18", "photo.png"], "They look like resnet8-small"),
        (["--weights", "{theirs}", "--model", "resnet8-small"], "predict needs IMAGE|DIR"),
        (["{theirs}", "--model", "resnet8-small"], "predict needs IMAGE|DIR"),
        (["{theirs}", "--which", "best", "photo.png"], "is one file"),
        (["{theirs}", "--model", "resnet8-small", "--classes", "/no/such", "photo.png"], "cannot be read"),
        (["{theirs}", "--model", "resnet8-small", "--classes", "{two}", "photo.png"], "3 classes, and 2 names"),
        (["{theirs}", "--model", "resnet8-small", "--classes", "{twice}", "photo.png"], "contains 'cat' twice"),
        (["{theirs}", "--model", "resnet8-small", "--ema", "photo.png"], "has no averaged weights"),
        (["{folder}", "--classes", "{two}", "photo.png"], "--classes is for weights files"),
        (["{folder}", "--data", "shapes", "photo.png"], "has its own. Omit --data"),
        (["{other}", "photo.png"], "does not describe itself"),
    ],
)
def test_wrong_choices_are_refused_with_a_remedy(
    arguments: list[str], words: str, theirs: Path, shapes: Path, vernier_here: Vernier, tmp_path: Path
) -> None:
    (tmp_path / "two.txt").write_text("cat\ndog\n")
    (tmp_path / "twice.txt").write_text("cat\ndog\ncat\n")
    (tmp_path / "other.onnx").write_bytes(b"\x08\x08")
    files = {
        "folder": tmp_path,
        "theirs": theirs,
        "two": tmp_path / "two.txt",
        "twice": tmp_path / "twice.txt",
        "other": tmp_path / "other.onnx",
    }
    photo = str(next((shapes / "val" / "disc").iterdir()))
    done = vernier_here("predict", *(photo if a == "photo.png" else a.format(**files) for a in arguments))
    assert done.code == 2, done.out
    assert words in done.err
    assert "Traceback" not in done.err


def test_published_weights_are_evaluated_and_trained_from_by_name(
    shapes: Path, tiny: list[str], tmp_path: Path, vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher on loopback; the network is a small one, and its file carries the hash of its weights."""
    assert published_as(Path(TORCHVISION["resnet18"])) is not None
    torch.save(build("resnet8-small", num_classes=10, width=8).state_dict(), tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    server, file = Server(), f"resnet18-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    server.files[file] = content
    monkeypatch.setitem(TORCHVISION, "resnet18", file)
    monkeypatch.setenv(MIRROR, server.url)
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "home"))
    try:
        named = ("--model", "resnet8-small", "--weights", "torchvision:resnet18")
        settings = ("--set", "model.width=8", "--set", "data.eval_px=32", "--set", "data.eval_short_side_px=32")
        evaluated = vernier_here("eval", *named, "--data", str(shapes), *settings, "--json")
        assert evaluated.code == 0, evaluated.err
        assert evaluated.json()["samples"] == 50
        assert f"fetching torchvision:resnet18 from {server.url}/{file}" in evaluated.err
        trained = vernier_here("train", *tiny, *named[2:], "--max-steps", "1", "--train-only", "--json")
        assert trained.code == 0, trained.err
        config = json.loads((Path(trained.json()["run"]) / "config.json").read_text())
        assert config["recipe"]["model"]["weights"] == "torchvision:resnet18", "the name, not a path of this machine"
        assert server.hits == 1
    finally:
        server.close()
