"""`vernier train` and `finetune` as they are typed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import Done
from tests.refusals import config_error_of
from vernier.data.preparing.pretrained import MIRROR
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.models import build, weights

Vernier = Callable[..., Done]


# -------------------------------------------------------------------------------------------------------------- train


def test_a_precision_that_the_device_does_not_have_is_refused(vernier_here: Vernier, tmp_path: Path) -> None:
    """Elsewhere bf16 on a device that was not listed ran fp32 without a word."""
    done = vernier_here("train", "--precision", "tf32", "--device", "cpu", "--out", str(tmp_path), "--max-steps", "1")
    assert done.code == 2
    assert "tf32" in done.err
    assert "--precision fp32" in done.err


def test_json_has_the_run_its_status_and_the_summary(tiny: list[str], vernier_here: Vernier) -> None:
    done = vernier_here("train", *tiny, "--max-steps", "2", "--json")
    assert done.code == 0, done.err
    document = done.json()
    assert document["status"] == "finished"
    assert Path(document["run"]).is_dir()
    assert document["result"]["samples"] == 50
    assert {"step", "epoch", "best", "agreement", "spent_s", "bad_images", "profile", "compilation"} <= set(document)
    assert document["training"]["images_per_s_total"] > 0


def test_a_recipe_and_a_configuration_cannot_both_be_given() -> None:
    assert config_error_of("train", "shapes-quick", "--config", "x.json").given == {"config": "x.json"}


@pytest.mark.parametrize("flag", ["--batch", "--batch-size", "--device-batch"])
def test_a_batch_that_could_mean_two_things_is_refused(vernier_here: Vernier, tmp_path: Path, flag: str) -> None:
    done = vernier_here("train", flag, "64", "--procs", "2", "--out", str(tmp_path / "runs"))
    assert done.code == 2
    for part in (f"{flag} could mean", "--global-batch N", "--set machine.process_batch=N"):
        assert part in done.err
    assert not (tmp_path / "runs").exists()


def test_explain_prints_what_a_run_would_do_and_leaves_nothing(
    tiny: list[str], vernier_here: Vernier, tmp_path: Path
) -> None:
    done = vernier_here("train", *tiny, "--dry-run", "--json", "--workers", "0")
    assert done.code == 0, done.err
    assert (done.json()["train_images"], done.json()["derived"]["process_batch"]) == (160, 16)
    assert vernier_here("train", *tiny, "--explain").code == 0
    assert not (tmp_path / "runs").exists()


def test_logs_of_nvidia_follow_the_result(tiny: list[str], vernier_here: Vernier, tmp_path: Path) -> None:
    log = tmp_path / "raport.json"
    done = vernier_here("train", *tiny, "--max-steps", "2", "--train-only", "--raport-file", str(log))
    assert done.code == 0, done.err
    assert log.is_file()
    assert f"written    {log}" in done.err
    again = vernier_here("train", *tiny, "--max-steps", "2", "--raport", str(log), "--resume", "never")
    assert again.code == 2, "nothing is overwritten"


def test_a_run_that_a_time_limit_stops_says_so(tiny: list[str], vernier_here: Vernier, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    done = vernier_here("train", *tiny, "--max-time", "1s", "--epochs", "500", "--dllogger", str(log), "--json")
    assert (done.code, done.json()["status"]) == (75, "stopped")
    assert "--dllogger: written when the run is finished" in done.err
    assert not log.exists()


def test_without_checkpoints_a_training_leaves_results_and_no_weights(
    tiny: list[str], vernier_here: Vernier, tmp_path: Path
) -> None:
    done = vernier_here("train", *tiny, "--max-steps", "3", "--no-checkpoints", "--json")
    assert done.code == 0, done.err
    run = Path(done.json()["run"])
    assert list((run / "checkpoints").iterdir()) == []
    assert done.json()["result"]["samples"] == 50
    assert (run / "events.jsonl").read_text().count('"kind": "checkpoint"') == 0
    refused = vernier_here("eval", str(run))
    assert refused.code == 2
    assert "Checkpoints by step: none" in refused.err


def test_the_folder_of_one_run_is_evaluated_by_its_name(tiny: list[str], vernier_here: Vernier, tmp_path: Path) -> None:
    assert vernier_here("train", *tiny, "--max-steps", "1", "--train-only").code == 0
    done = vernier_here("eval", str(tmp_path / "runs"), "--json")
    assert done.code == 0, done.err
    assert done.json()["samples"] == 50
    assert vernier_here("train", *tiny, "--max-steps", "1", "--train-only", "--resume", "never").code == 0
    refused = vernier_here("eval", str(tmp_path / "runs"))
    assert refused.code == 2
    assert "It holds 2 runs, the newest is" in refused.err


# ----------------------------------------------------------------------------------------------------------- finetune

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
    assert "by arithmetic at" in done.out, "nothing was fetched, so nothing could be timed"
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
