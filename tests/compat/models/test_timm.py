"""Models of timm, through Vernier's training, export and benchmarks, at small sizes."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import vernier as v
from tests.conftest import REPO, Done
from vernier.errors import ConfigError
from vernier.models import info
from vernier.recipes import load

from . import torchvision_operators

assert torchvision_operators
timm = pytest.importorskip("timm", reason="timm is not installed", exc_type=ImportError)

FAMILIES = ("timm:test_convnext", "timm:test_efficientnet", "timm:test_vit", "timm:test_resnet")
"""timm's own small models of the four families: 160 pixels, 0.3 to 0.5 million parameters."""
OPTIONS: dict[str, Any] = {"global_batch": 16, "quiet": True, "tensorboard": False, "procs": 1, "epochs": 1}
SETTINGS = {"data.image_px": 32, "machine.threads": 1, "machine.workers": 0, "machine.eval_batch": 16}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_trains_resumes_to_the_same_bits_and_exports(
    name: str, shapes: Path, tmp_path: Path, vernier_here: Any
) -> None:
    settings = {**SETTINGS, "optim.layer_decay": 0.9, "checkpoint.every_steps": 2}
    options = {**OPTIONS, "model": f"{name}(drop_path_rate=0.1)", "data": shapes, "settings": settings}
    whole = v.train(out=tmp_path / "whole", max_steps=6, **options)
    begun = v.train(out=tmp_path / "parts", max_steps=3, **options)
    v.train(resume=begun.path, out=tmp_path / "parts", max_steps=6, **options)
    first, second = (max(run.path.glob("checkpoints/*/model.safetensors")) for run in (whole, begun))
    assert first.parent.name == second.parent.name
    assert first.read_bytes() == second.read_bytes()
    done: Done = vernier_here("export", str(whole.path), "--out", str(tmp_path / "model.onnx"), "--json")
    assert done.code == 0, done.err
    photo = min((shapes / "val").rglob("*.jpg"))
    scores = [v.load(path).predict(photo).score for path in (whole.path, tmp_path / "model.onnx")]
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)


@pytest.mark.slow
def test_killed_and_started_again_it_ends_with_the_same_bits(shapes: Path, tmp_path: Path) -> None:
    words = [
        "train",
        "--model",
        "timm:test_resnet(drop_rate=0.1)",
        "--data",
        str(shapes),
        "--epochs",
        "1",
        "--workers=0",
    ]
    words += [
        "--global-batch=16",
        "--set",
        "data.image_px=32",
        "--procs=1",
        "--train-only",
        "--set",
        "checkpoint.every_steps=2",
    ]
    start = "import tests.compat.models.torchvision_operators; from vernier.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", start, *words]
    environment = {**os.environ, "PYTHONPATH": str(REPO)}

    def weights(folder: str) -> bytes:
        done = subprocess.run([*command, "-o", folder], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return max((tmp_path / folder).glob("*/checkpoints/*/model.safetensors")).read_bytes()

    child = subprocess.Popen([*command, "-o", "killed"], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("killed/*/checkpoints/step-*/state.json")) and child.poll() is None:
        assert time.monotonic() < deadline, "the run does not start"
        time.sleep(0.01)
    child.kill()
    child.wait()
    assert weights("killed") == weights("whole")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("timm:resnet18.a1_in1k", (224, 288, 288, "bicubic")),
        ("timm:vit_tiny_patch16_224", (224, 224, 248, "bicubic")),
    ],
)
def test_images_are_prepared_as_published(name: str, expected: tuple[int, int, int, str]) -> None:
    data = load(name).recipe.data
    assert (data.image_px, data.eval_px, data.eval_short_side_px, data.interpolation) == expected


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("timm:resnet81", "Did you mean resnet18"),
        ("timm:resnet18.a9_in1k", "no such weights"),
        ("timm:test_vit(depht=3)", "depht"),
        ("timm:test_vit(3)", "arguments by name"),
        ("timm:test_vit(pretrained=True)", "model.weights"),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest(name: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        info(name)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """Weights of test_resnet: timm finds them in its cache, as it would after it had fetched them."""
    published = timm.create_model("test_resnet", num_classes=1000).state_dict()
    snapshot = tmp_path / "models--timm--test_resnet.r160_in1k" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    save_file(published, snapshot / "model.safetensors")
    (tmp_path / "models--timm--test_resnet.r160_in1k" / "refs").mkdir()
    (tmp_path / "models--timm--test_resnet.r160_in1k" / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return published


def test_published_weights_start_a_run_with_a_new_head(
    shapes: Path, tmp_path: Path, published: dict[str, torch.Tensor]
) -> None:
    name = "timm:test_resnet.r160_in1k"
    settings = {**SETTINGS, "model.reset_head": True, "model.freeze": ["backbone"]}
    options = {**OPTIONS, "max_steps": 1, "train_only": True, "settings": settings, "out": tmp_path / "runs"}
    run = v.train(model=name, weights=name, data=shapes, **options)
    trained = load_file(max(run.path.glob("checkpoints/*/model.safetensors")))
    kept = [key for key in published if torch.equal(published[key], trained[key])]
    assert set(published) - set(kept) == {"fc.weight", "fc.bias"}
    with pytest.raises(v.ConfigError, match="test_resnet"):
        v.train(model=name, weights="timm:test_resent", data=shapes, **options)


@pytest.mark.slow
@pytest.mark.parametrize("which", [{"model": "timm:test_resnet"}, {"weights": "timm:test_resnet.r160_in1k"}])
def test_a_model_is_fine_tuned_from_its_published_weights(
    shapes: Path, tmp_path: Path, published: dict[str, torch.Tensor], which: dict[str, Any]
) -> None:
    """The model says which weights, and the weights say which model."""
    settings = {"machine.threads": 1, "machine.workers": 0}
    options: dict[str, Any] = {"image_px": 32, "epochs": 1, "quiet": True, "out": tmp_path, "settings": settings}
    run = v.finetune(shapes, **which, **options)
    trained = load_file(max(run.path.glob("checkpoints/*/model.safetensors")))
    assert torch.equal(trained["conv1.0.weight"], published["conv1.0.weight"])  # frozen: few images
    assert run.config.recipe.data.mean == (0.5, 0.5, 0.5)  # as timm publishes it
    assert v.load(run.model_file).predict(min(shapes.rglob("*.jpg"))).label in v.load(run).classes
