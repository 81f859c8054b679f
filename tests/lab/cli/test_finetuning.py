"""`vernier finetune` as it is typed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import Done
from tests.refusals import config_error_of
from vernier.data.downloads import MIRROR
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.models import build, weights

Vernier = Callable[..., Done]


TINY = ["--image-px", "32", "--epochs", "3", "--set", "model.width=8", "--set", "machine.threads=1"]


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """A weights file that says which network it belongs to, with other classes."""
    torch.manual_seed(1)
    state = build("resnet8-small", num_classes=4, width=8).state_dict()
    weights.save_safetensors(state, path := tmp_path / "start.safetensors", {"model": "resnet8-small"})
    return path


@pytest.fixture
def tiny_run_file(shapes: Path, tmp_path: Path, vernier_here: Vernier) -> Path:
    """An exported model of a training with another width, stem and normalisation than the published network."""
    settings = ["model.width=8", "model.stem=small", "data.image_px=32", "data.mean=[0.5,0.5,0.5]", "machine.threads=1"]
    out, file = tmp_path / "first", tmp_path / "first.safetensors"
    words = [word for setting in settings for word in ("--set", setting)]
    short = ["--model", "resnet8-small", "--max-steps", "2", "--train-only", "--json"]
    trained = vernier_here("train", "--data", str(shapes), "--out", str(out), *short, *words)
    assert trained.code == 0, trained.err
    exported = vernier_here("export", trained.json()["run"], "--out", str(file))
    assert exported.code == 0, exported.err
    return file


def test_from_a_folder_to_an_exported_model_that_predicts(
    shapes: Path, classifier: Path, tmp_path: Path, vernier_here: Vernier
) -> None:
    shutil.copytree(shapes / "train", tmp_path / "photos" / "train")
    shutil.copytree(shapes / "val", tmp_path / "photos" / "test")
    photos = str(tmp_path / "photos")
    arguments = (photos, "--weights", str(classifier), "--out", str(tmp_path / "runs"), *TINY)
    done = vernier_here("finetune", *arguments)
    assert done.code == 0, done.err
    for line in (
        "found          160 images of 10 classes (class folders), 16 images per class, 32 x 32 pixels",
        "held out       20 of 160 training images, as there is no validation split",
        "network        resnet8-small: that of the weights",
        "image size     32 pixels: as given",
        "timed just now",
    ):
        assert line in done.err
    run = next((tmp_path / "runs").iterdir())
    for line in (
        "on 20 images, with the best weights",
        "on 50 images of the test split, by which nothing was chosen",
        f"use it     vernier predict {run}/model.safetensors photo.jpg",
    ):
        assert line in done.out
    assert (run / "report.html").is_file()
    held_out = json.loads((run / "held_out.json").read_text())
    assert (len(held_out["names"]), held_out["train_images"], held_out["share"]) == (20, 140, 0.15)
    assert all((shapes / "train" / name).is_file() for name in held_out["names"])
    record = json.loads((run / "finetuning.json").read_text())
    assert record["plan"]["choices"][0]["name"] == "held out"
    assert record["test"]["samples"] == 50
    image = next((shapes / "val" / "star").iterdir())
    predicted = vernier_here("predict", str(run / "model.safetensors"), str(image), "--json")
    assert predicted.code == 0, predicted.err
    # killed between the training and the export: the same command exports, and trains nothing
    (run / "model.safetensors").unlink()
    again = vernier_here("finetune", *arguments, "--json")
    assert again.code == 0, again.err
    assert again.json()["run"] == str(run)
    assert (run / "model.safetensors").is_file()
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_model_that_was_trained_before_brings_its_network_and_image_size(
    shapes: Path, tiny_run_file: Path, tmp_path: Path, vernier_here: Vernier
) -> None:
    given = ["--weights", str(tiny_run_file), "--epochs", "1", "--out", str(tmp_path / "runs")]
    done = vernier_here("finetune", str(shapes), *given, "--set", "machine.threads=1", "--json")
    assert done.code == 0, done.err
    recipe = done.json()["plan"]["config"]["recipe"]
    assert (recipe["model"]["width"], recipe["model"]["stem"]) == (8, "small")
    assert (recipe["data"]["mean"], recipe["data"]["image_px"]) == ([0.5, 0.5, 0.5], 32)


@pytest.mark.slow
def test_a_detector_from_a_backbone(tmp_path: Path, vernier_here: Vernier) -> None:
    root = make_shapes(tmp_path / "boxes", ShapesSpec(kind="detect", train=12, val=4, size_px=96, seed=3))
    torch.manual_seed(1)
    state = build("resnet18", num_classes=4, width=8).state_dict()
    weights.save_safetensors(state, tmp_path / "backbone.safetensors", {})
    settings = ["--image-px", "96", "--epochs", "2", "--global-batch", "4", "--set", "model.width=8"]
    given = ["--weights", str(tmp_path / "backbone.safetensors"), "--out", str(tmp_path / "runs"), *settings]
    done = vernier_here("finetune", str(root), *given, "--json")
    assert done.code == 0, done.err
    assert done.json()["plan"]["config"]["recipe"]["model"]["name"] == "ssd-fpn-resnet18"
    assert done.json()["held_out"]["samples"] == 4
    predicted = vernier_here("predict", done.json()["model"], str(root / "val"), "--json")
    assert predicted.code == 0, predicted.err


def test_explain_prints_and_leaves_nothing(shapes: Path, tmp_path: Path, vernier_here: Vernier) -> None:
    done = vernier_here("finetune", str(shapes), "--explain", "--out", str(tmp_path / "runs"))
    assert done.code == 0, done.err
    assert "weights        torchvision:resnet50-v1" in done.out
    assert "estimated from FLOPs at" in done.out, "nothing was fetched, so nothing could be timed"
    assert not (tmp_path / "runs").exists()


def test_without_weights_and_network_it_says_what_to_do_and_never_trains_from_scratch(
    shapes: Path, tmp_path: Path, vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MIRROR, "http://127.0.0.1:9")
    explained = vernier_here("finetune", str(shapes), "--weights", "torchvision:resnet18", "--explain")
    assert explained.code == 0, "nothing is fetched to explain"
    done = vernier_here("finetune", str(shapes), "--out", str(tmp_path / "runs"))
    assert done.code == 1
    for part in ("Cannot download http://127.0.0.1:9/resnet", "copy it into", "--weights FILE", "--weights none"):
        assert part in done.err
    assert not (tmp_path / "runs").exists()
    scratch = vernier_here("finetune", str(shapes), "--weights", "none", "--explain", *TINY)
    assert scratch.code == 0, scratch.err
    assert "FROM SCRATCH" in scratch.out
    assert "timed just now" in scratch.out


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("{shapes} --minutes 0", {"time": "0m"}),
        ("{shapes} --time ten", {"time": "ten"}),
        ("{shapes} --image-px 4", {"data.image_px": 4}),
        ("{shapes} --task masks", {"task": "masks"}),
        ("{shapes} --epochs 0", {"schedule.epochs": 0.0}),
    ],
)
def test_what_cannot_be_fine_tuned_is_refused_by_its_option(shapes: Path, words: str, given: dict[str, object]) -> None:
    assert config_error_of("finetune", *words.format(shapes=shapes).split()).given == given


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("", "FOLDER"),
        ("nowhere", "nowhere"),
        ("{shapes}/train --task boxes", "--task boxes"),
        ("{shapes} --weights missing.pth", "missing.pth"),
        ("{shapes} --weights torchvision:resnet51", "torchvision:resnet51"),
        ("{shapes} --set model.nane=x", "model.name"),
    ],
)
def test_wrong_input_is_one_message(shapes: Path, vernier_here: Vernier, words: str, named: str) -> None:
    done = vernier_here("finetune", *words.format(shapes=shapes).split())
    assert (done.code, done.out) == (2, "")
    assert named in done.err
    assert "Traceback" not in done.err
