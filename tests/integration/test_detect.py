"""Detection through the command line: learn, score, predict, stop and resume, and wrong settings."""

import hashlib
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import Done, only_run
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.tasks.detection.coco import coco_figures

Vernier = Callable[..., Done]
SMALL = [
    "--set",
    "data.image_px=96",
    "--set",
    "data.eval_px=96",
    "--set",
    "model.width=16",
    "--set",
    "global_batch=8",
    "--set",
    "machine.eval_batch=8",
    "--workers",
    "1",
    "--set",
    "machine.threads=1",
]


@pytest.fixture(scope="session")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rendered shapes with boxes: 24 images to learn from, 10 to be judged by."""
    return make_shapes(
        tmp_path_factory.mktemp("boxes") / "set", ShapesSpec(kind="detect", train=24, val=10, size_px=96, seed=5)
    )


def train(vernier: Vernier, data: Path, out: Path, *more: str) -> Done:
    return vernier("train", "ssd-shapes-quick", "--data", str(data), "--out", str(out), *SMALL, *more)


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_eight_images_are_learned_by_heart(vernier_here: Vernier, tmp_path: Path) -> None:
    """The loss goes to nearly 0 and every object is detected: model, matching, loss and scoring agree."""
    data = make_shapes(tmp_path / "eight", ShapesSpec(kind="detect", train=8, val=1, size_px=96, seed=2))
    done = train(
        vernier_here,
        data,
        tmp_path / "runs",
        "--epochs",
        "220",
        "--train-only",
        "--lr",
        "0.02",
        "--set",
        "augment.flip=0",
        "--set",
        "ema.decay=0",
        "--set",
        "optim.lr_batch=8",
        "--set",
        "checkpoint.every_epochs=0",
    )
    assert done.code == 0, done.err
    run = only_run(tmp_path / "runs")
    losses = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [e["loss"] for e in losses if e["kind"] == "step"][-1] < 0.15
    scored = json.loads(vernier_here("eval", str(run), "--split", "train", "--json").out)
    assert scored["AP"] >= 0.95
    assert scored["AP50"] >= 0.95
    assert scored["samples"] == 8


def test_train_eval_and_predict_tell_the_same_story(vernier_here: Vernier, boxes: Path, tmp_path: Path) -> None:
    done = train(vernier_here, boxes, tmp_path / "runs", "--epochs", "8", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)["result"]
    run = only_run(tmp_path / "runs")
    scored = json.loads(vernier_here("eval", str(run), "--out", str(tmp_path / "eval"), "--json").out)
    assert {k: scored[k] for k in ("AP", "AP50", "samples", "detections")} == {
        k: result[k] for k in ("AP", "AP50", "samples", "detections")
    }
    assert len(scored["classes"]) == 10

    written = json.loads((run / "predictions" / "detections.json").read_text())
    assert written == json.loads((tmp_path / "eval" / "detections.json").read_text())
    truth = json.loads((boxes / "annotations" / "instances_val.json").read_text())
    rows = np.array([[d["image_id"], *d["bbox"], d["score"], d["category_id"]] for d in written]).reshape(-1, 7)
    again = coco_figures(truth, rows, [i["id"] for i in truth["images"]])
    assert again.figures["AP"] == pytest.approx(result["AP"], abs=1e-9)

    out = tmp_path / "drawn"
    predicted = json.loads(vernier_here("predict", str(run), str(boxes / "val"), "--out", str(out), "--json").out)
    predicted_boxes = sorted(
        (t["score"], *t["box"]) for image in predicted["images"] for t in image["found"]
    )  # the same detections, corner by corner
    scored_boxes = sorted(
        (d["score"], d["bbox"][0], d["bbox"][1], d["bbox"][0] + d["bbox"][2], d["bbox"][1] + d["bbox"][3])
        for d in written
    )
    assert np.array(predicted_boxes).reshape(-1, 5) == pytest.approx(np.array(scored_boxes).reshape(-1, 5), abs=1e-4)
    for image in predicted["images"]:
        with Image.open(image["picture"]) as drawn:
            assert drawn.size == (96, 96)


def test_a_stopped_training_resumes_bit_for_bit(vernier_here: Vernier, boxes: Path, tmp_path: Path) -> None:
    changed = ["--set", "augment.crop=ssd", "--set", "augment.jitter=mlperf", "--train-only", "--epochs", "3"]
    assert train(vernier_here, boxes, tmp_path / "whole", *changed).code == 0
    assert train(vernier_here, boxes, tmp_path / "parts", *changed, "--max-steps", "4").code == 0
    assert train(vernier_here, boxes, tmp_path / "parts", *changed, "--resume", "auto").code == 0
    whole, parts = only_run(tmp_path / "whole"), only_run(tmp_path / "parts")
    for name in ("model", "optimizer", "ema"):
        file = Path("checkpoints") / "step-00000009" / f"{name}.safetensors"
        assert sha(whole / file) == sha(parts / file), name


def test_real_annotations_train_and_every_checkpoint_is_scored_in_order(
    vernier_here: Vernier, real_data: Callable[[str], Path], tmp_path: Path
) -> None:
    bccd = real_data("bccd")
    done = train(
        vernier_here,
        bccd,
        tmp_path / "runs",
        "--max-steps",
        "2",
        "--set",
        "checkpoint.every_steps=1",
        "--max-eval-steps",
        "2",
    )
    assert done.code == 0, done.err
    run = only_run(tmp_path / "runs")
    scored = json.loads(
        vernier_here("eval", str(run), "--which", "all", "--split", "test", "--max-eval-steps", "1", "--json").out
    )
    assert [s["step"] for s in scored] == [1, 2]
    assert [c["name"] for c in scored[0]["classes"]] == ["Platelets", "RBC", "WBC"]
    assert all(s["split"] == "test" and not s["exact"] for s in scored)
    pytest.importorskip("tensorboard", reason="needs vernier[tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run / "tensorboard" / "eval"))
    read.Reload()
    assert {"test/AP", "test/AR1", "test/AR100"} <= set(read.Tags()["scalars"])
    assert [s.step for s in read.Scalars("test/AR100")] == [1, 2]


def test_categories_keep_their_own_numbers(
    vernier_here: Vernier, real_data: Callable[[str], Path], tmp_path: Path
) -> None:
    """COCO's 80 classes have ids up to 90; results must speak of those."""
    done = train(
        vernier_here,
        real_data("coco"),
        tmp_path / "runs",
        "--max-steps",
        "1",
        "--max-eval-steps",
        "1",
        "--set",
        "detect.min_score=0.001",
    )
    assert done.code == 0, done.err
    run = only_run(tmp_path / "runs")
    ids = {d["category_id"] for d in json.loads((run / "predictions" / "detections.json").read_text())}
    truth = json.loads((real_data("coco") / "annotations" / "instances_val2017.json").read_text())
    assert ids <= {c["id"] for c in truth["categories"]}
    assert max(ids) > 80


def test_fake_and_fixed_data_need_no_images(vernier_here: Vernier, tmp_path: Path) -> None:
    for name in ("synthetic", "static"):
        done = train(vernier_here, Path(name), tmp_path / name, "--max-steps", "2", "--train-only", "--json")
        assert done.code == 0, done.err
        assert math.isfinite(json.loads(done.out)["training"]["images_per_s_total"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--set", "data.eval_px=64"], "one image size"),
        (["--set", "eval.flip_tta=true"], "--set eval.flip_tta=true"),
        (["--set", "machine.backend=dali-cpu"], "Use --set machine.backend=native"),
        (["--backbone-weights", "none.pth"], "does not exist"),
        (["--set", "detect.nms_iou=0"], "must be above 0"),
        (["--set", "detect.match=near"], "not one of: above, at-least"),
        (["--set", "data.image_px=16", "--set", "data.eval_px=16"], "too small for this detector"),
        (["--set", "augment.mixup=0.2"], "mixup"),
        (["--set", "model.num_classes=3"], "10 classes"),
        (["--set", "model.box_sizes=[0.2, 0.1, 0.5]"], "three rising fractions"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_reason(
    vernier_here: Vernier, boxes: Path, tmp_path: Path, given: list[str], words: str
) -> None:
    done = train(vernier_here, boxes, tmp_path / "runs", *given)
    assert done.code == 2, done.err
    assert words in done.err
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_data_of_the_other_kind_is_named_as_such(
    vernier_here: Vernier, boxes: Path, shapes: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    for split in ("train", "val"):
        (tmp_path / "folder" / split).symlink_to(shapes / split)
    classified = train(vernier_here, tmp_path / "folder", tmp_path / "runs")
    assert classified.code == 2
    assert "boxes" in classified.err
    boxed = vernier_here("train", "shapes-quick", "--data", str(boxes), "--out", str(tmp_path / "runs"))
    assert boxed.code == 2
    assert "detect" in boxed.err
    backbone = vernier_here(
        "train", "shapes-quick", "--data", str(shapes), "--out", str(tmp_path / "runs"), "--backbone-weights", __file__
    )
    assert backbone.code == 2
    assert "it is for the backbone of a detector" in backbone.err


def test_a_large_detector_without_a_backbone_is_warned_of(vernier_here: Vernier, boxes: Path, tmp_path: Path) -> None:
    done = train(
        vernier_here,
        boxes,
        tmp_path / "runs",
        "--model",
        "ssd300-resnet18",
        "--max-steps",
        "1",
        "--train-only",
        "--set",
        "global_batch=2",
    )
    assert done.code == 0, done.err
    assert "FROM SCRATCH" in done.err


def test_two_processes_find_what_one_finds(vernier: Vernier, boxes: Path, tmp_path: Path) -> None:
    """Averaged weights, batch norm over all images: the same training, and figures that agree to the last digit."""
    same = ["--epochs", "2", "--set", "model.batch_norm_images=0", "--json"]
    one = json.loads(train(vernier, boxes, tmp_path / "one", *same).out)
    done = train(vernier, boxes, tmp_path / "two", *same, "--procs", "2")
    assert done.code == 0, done.err
    two = json.loads(done.out)
    assert two["result"]["samples"] == one["result"]["samples"] == 10
    assert two["step"] == one["step"]
    assert 0 < two["spent_s"]["communication"] < two["spent_s"]["total"]
    assert "communication" not in one["spent_s"]
    run = only_run(tmp_path / "two")
    assert (run / "logs" / "rank1.log").is_file()  # what the second process printed
    study = vernier("convert", str(run), "--to", "study", "--out", str(tmp_path / "study"))
    assert study.code == 0, study.err
    names = [re.search(r"_iterdur_\d+_[a-zA-Z0-9-]+-\d+_(\d+)_0\.txt$", line) for line in study.out.splitlines()]
    assert [name[1] for name in names if name] == ["0", "1"]
    alone = json.loads(vernier("eval", str(run), "--json").out)
    assert {k: alone[k] for k in ("AP", "AP50", "AR100", "detections")} == {
        k: two["result"][k] for k in ("AP", "AP50", "AR100", "detections")
    }
