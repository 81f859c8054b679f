"""What people took the result of an evaluation for, and what it was of."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import Done
from tests.data.sources.small_sets import write_image, write_tar
from tests.engine.inference.loading import load_trained
from tests.tiny_training import events_of, run_training, tiny_config
from vernier import recipes
from vernier.config import Data, Limits, override
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.data.sources import folder, open_split
from vernier.engine.inference.evaluate import _choose_samples, evaluate_trained
from vernier.engine.training.checkpoints.resume import _find_resume_point
from vernier.engine.training.session import train
from vernier.errors import ConfigError
from vernier.models import build
from vernier.records.events import StartEvent, WarningEvent
from vernier.store import RunDir

Runner = Callable[..., Done]


@pytest.fixture(scope="module")
def run(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the ten shapes, arrow to triangle, long enough to tell some of them apart."""
    config = replace(tiny_config(shapes), limits=Limits(max_steps=12))
    return run_training(config, tmp_path_factory.mktemp("runs")).run.path


@pytest.fixture
def copied_val(shapes: Path, tmp_path: Path) -> Path:
    """The validation images of the shapes as a set of their own, without training images."""
    shutil.copytree(shapes / "val", tmp_path / "set" / "val")
    return tmp_path / "set"


def figures(document: dict[str, object]) -> tuple[object, ...]:
    return document["top1"], document["top5"], document["loss"], document["samples"]


# ------------------------------------------------------------------------------------------------------------- classes


def test_eval_on_other_class_names_is_refused(run: Path, copied_val: Path, vernier_here: Runner) -> None:
    """Folders with other names were taken for the model's classes by position: a confident wrong figure."""
    for path in (copied_val / "val").iterdir():
        path.rename(path.with_name(f"x-{path.name}"))
    done = vernier_here("eval", str(run), "--data", str(copied_val))
    assert (done.code, done.out) == (2, "")
    assert "0: arrow | x-arrow, 1: crescent | x-crescent" in done.err
    assert "--classes-by-number" in done.err


def test_eval_by_number_is_done_on_request_and_says_so(run: Path, copied_val: Path, vernier_here: Runner) -> None:
    """Who knows that other names stand for the same classes could not say so."""
    own = vernier_here("eval", str(run), "--json").json()
    for path in (copied_val / "val").iterdir():
        path.rename(path.with_name(f"x-{path.name}"))
    done = vernier_here("eval", str(run), "--data", str(copied_val), "--classes-by-number", "--json")
    document = done.json()
    assert figures(document) == figures(own)
    assert document["classes_matched"] == "number"
    assert "classes taken by number" in document["notes"][-1]


def test_eval_on_the_same_classes_in_another_order_gives_the_same_result(
    run: Path, shapes: Path, tmp_path: Path, vernier_here: Runner
) -> None:
    """Classes were compared by their number, so another order of the same names gave a result near chance."""
    names = sorted(path.name for path in (shapes / "val").iterdir())
    samples = []
    for i, path in enumerate(sorted((shapes / "val").rglob("*.jpg"))):
        label = len(names) - 1 - names.index(path.parent.name)
        samples += [(f"{i:05d}.jpg", path.read_bytes()), (f"{i:05d}.cls", str(label).encode())]
    write_tar(tmp_path / "set" / "val-000.tar", samples)
    (tmp_path / "set" / "classes.txt").write_text("\n".join(reversed(names)))
    own = vernier_here("eval", str(run), "--json").json()
    other = vernier_here("eval", str(run), "--data", str(tmp_path / "set"), "--json").json()
    assert own["classes_matched"] == "name"
    assert other["classes_matched"] == "order"
    assert "in another order (triangle, " in other["notes"][-1]
    assert figures(other) == figures(own)


def test_eval_on_some_of_the_classes_is_over_all_outputs_and_says_so(
    run: Path, copied_val: Path, tmp_path: Path, vernier_here: Runner
) -> None:
    """A model could not be evaluated on a part of its classes at all."""
    for path in sorted((copied_val / "val").iterdir())[:6]:
        shutil.rmtree(path)
    done = vernier_here("eval", str(run), "--data", str(copied_val), "--json", "--out", str(tmp_path / "out"))
    document = done.json()
    assert (document["samples"], document["classes_matched"]) == (20, "subset")
    assert "4 of the model's 10 classes are in this data; top-1 is over all 10 outputs" in document["notes"]
    mistakes = json.loads((tmp_path / "out" / "mistakes.json").read_text())
    assert mistakes["samples"] == [0] * 6 + [5] * 4
    assert sum(mistakes["correct"]) == round(document["top1"] / 100 * 20)


def test_class_folders_that_are_numbers_are_in_the_order_of_numbers(tmp_path: Path, vernier_here: Runner) -> None:
    """Folders 0 to 999 came out as 0, 1, 10, 100: published weights scored 0.9 % instead of 74.7 %."""
    for number in range(12):
        write_image(tmp_path / "val" / str(number) / "1.png")
    assert open_split(str(tmp_path), "val").classes == tuple(map(str, range(12)))
    done = vernier_here("data", "inspect", str(tmp_path))
    assert "sorted as numbers (0, 1, 2, ...), not as text" in done.out


def test_a_run_with_classes_in_another_order_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was trained when numbers were sorted as text must not be resumed with other labels.

    It is evaluated by the names of its classes, with the result that it had.
    """
    for number in range(12):
        for split in ("train", "val"):
            for image in range(2):
                write_image(tmp_path / "set" / split / str(number) / f"{image}.png", (20 * number, 0, 0))
    config = replace(tiny_config(tmp_path / "set"), limits=Limits(max_steps=1))
    with monkeypatch.context() as earlier:
        earlier.setattr(folder, "_sort_classes", sorted)
        run = run_training(config, tmp_path / "runs").run
        reported = RunDir.open(run.path).status().summary
    report = evaluate_trained(load_trained(run.path))
    assert report.classes_matched == "order"
    assert reported is not None
    assert reported.result is not None
    assert report.figures == reported.result.figures
    point = _find_resume_point(run, config, pytest.fail)
    with pytest.raises(ConfigError, match=r"in the order 0, 1, 10, .*sorted as numbers.*cannot be resumed.*by name"):
        train(config, tmp_path / "runs", point)


# ------------------------------------------------------------------------------------------------- weights of others


@pytest.fixture
def others_weights(tmp_path: Path) -> list[str]:
    """Weights of twelve classes without names, and the flags to evaluate them with."""
    file = tmp_path / "weights.pth"
    torch.save(build("resnet8-small", num_classes=12).state_dict(), file)
    return ["eval", "--model", "resnet8-small", "--weights", str(file), "--set", "machine.threads=1", "--json"]


def test_weights_without_names_say_that_classes_are_taken_by_number(
    others_weights: list[str], tmp_path: Path, vernier_here: Runner
) -> None:
    """Nothing said that the position of a folder decided which output it was compared with."""
    for number in range(12):
        write_image(tmp_path / "set" / "val" / f"n{number:08d}" / "1.png")
    done = vernier_here(*others_weights, "--data", str(tmp_path / "set"))
    assert done.code == 0, done.err
    document = done.json()
    assert document["classes_matched"] == "number"
    assert any(
        "classes taken by number (the weights have no class names): n00000000 is output 0" in note
        for note in document["notes"]
    )


@pytest.mark.parametrize("named", [False, True])
def test_weights_are_evaluated_on_some_of_their_classes(
    named: bool, others_weights: list[str], tmp_path: Path, vernier_here: Runner
) -> None:
    """Weights of 1,000 classes could not be evaluated on a folder with some of them."""
    names = [f"n{number:08d}" if named else str(number) for number in range(12)]
    for number in (2, 10, 11):
        write_image(tmp_path / "set" / "val" / names[number] / "1.png")
    (tmp_path / "names.txt").write_text("\n".join(names))
    flags = ["--classes", str(tmp_path / "names.txt")] if named else []
    out = tmp_path / "out"
    done = vernier_here(*others_weights, "--data", str(tmp_path / "set"), "--out", str(out), *flags)
    assert done.code == 0, done.err
    document = done.json()
    assert document["classes_matched"] == "subset"
    assert "3 of the model's 12 classes are in this data; top-1 is over all 12 outputs" in document["notes"]
    assert json.loads((out / "mistakes.json").read_text())["samples"] == [int(i in (2, 10, 11)) for i in range(12)]


# -------------------------------------------------------------------------------------------------------------- splits


def test_eval_of_a_folder_without_splits_is_of_every_image(run: Path, copied_val: Path, vernier_here: Runner) -> None:
    """A tenth of the folder was evaluated, the part that a training would hold out, and called exact."""
    done = vernier_here("eval", str(run), "--data", str(copied_val / "val"), "--json")
    document = done.json()
    assert (document["samples"], document["exact"], document["split"]) == (50, True, "all")
    assert any("has no splits: all of its 50 images are used" in note for note in document["notes"])
    part = vernier_here("eval", str(run), "--data", str(copied_val / "val"), "--split", "val", "--json").json()
    assert (part["samples"], part["split"]) == (10, "val")


def test_eval_on_the_training_folder_is_of_the_held_out_part(
    shapes: Path, tmp_path: Path, vernier_here: Runner
) -> None:
    """Neither training nor evaluation said how many images of a folder without splits were held out."""
    data = tmp_path / "set"
    shutil.copytree(shapes / "val", data)
    outcome = run_training(replace(tiny_config(data), limits=Limits(max_steps=1)), tmp_path / "runs")
    note = f"{data} has no splits: 10 of its 50 images are held out for validation (data.val_share)"
    assert outcome.summary.notes == (note,)
    shutil.copytree(data, tmp_path / "copy" / "set")
    for arguments in (
        [],
        ["--data", str(tmp_path / "runs" / ".." / "set")],
        ["--data", str(tmp_path / "copy" / "set")],
    ):
        document = vernier_here("eval", str(outcome.run.path), *arguments, "--json").json()
        assert document["samples"] == 10
        assert "10 of its 50 images are held out" in document["notes"][0]


def test_eval_on_a_training_folder_that_has_changed_warns(shapes: Path, tmp_path: Path, vernier_here: Runner) -> None:
    """Which images are held out depends on all of them: added ones may move trained ones into the held-out part."""
    data = tmp_path / "set"
    shutil.copytree(shapes / "val", data)
    run = run_training(replace(tiny_config(data), limits=Limits(max_steps=1)), tmp_path / "runs").run.path
    write_image(data / "arrow" / "new.png")
    for arguments in ([], ["--set", "data.val_share=0.5"]):
        notes = vernier_here("eval", str(run), *arguments, "--json").json()["notes"]
        assert any("has changed since then: images that were trained on may be here" in note for note in notes)


def test_eval_of_one_image_per_class(run: Path, copied_val: Path, vernier_here: Runner) -> None:
    """A folder with one image per class could not be evaluated: "two are needed to divide it"."""
    for path in (copied_val / "val").iterdir():
        for image in sorted(path.iterdir())[1:]:
            image.unlink()
    document = vernier_here("eval", str(run), "--data", str(copied_val / "val"), "--json").json()
    assert (document["samples"], document["exact"]) == (10, True)


def test_eval_of_a_split_that_is_not_there_is_a_sentence(run: Path, vernier_here: Runner) -> None:
    """`--split test` without a test split was a traceback of forty lines."""
    done = vernier_here("eval", str(run), "--split", "test")
    assert done.code == 2
    assert "has no test split. It contains: " in done.err
    assert len(done.err.splitlines()) == 1


def test_data_that_is_not_there_is_refused_before_processes_start(
    run: Path, monkeypatch: pytest.MonkeyPatch, vernier_here: Runner
) -> None:
    """Each of the processes was started, imported torch and found out for itself."""
    monkeypatch.setattr("vernier.api.crossing.run_local", lambda *_, **__: pytest.fail("processes were started"))
    for command in (["eval", str(run)], ["train"]):
        done = vernier_here(*command, "--data", "/no/such/folder", "--procs", "2")
        assert done.code == 2
        assert "The data path /no/such/folder does not exist" in done.err


def test_a_test_split_that_chooses_the_best_weights_is_noted_in_the_result(shapes: Path, tmp_path: Path) -> None:
    """Without val/ the best weights are chosen on test/, which is then no test; nothing said so."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train").symlink_to(shapes / "train")
    (tmp_path / "set" / "test").symlink_to(shapes / "val")
    outcome = run_training(replace(tiny_config(tmp_path / "set"), limits=Limits(max_steps=1)), tmp_path / "runs")
    assert outcome.summary.notes is not None
    (note,) = outcome.summary.notes
    assert "has no validation split; its test split is used instead" in note
    assert note in events_of(outcome.run, StartEvent)[0].notes


# --------------------------------------------------------------------------------------------------------- a part of it


def test_a_part_of_the_set_is_a_fair_sample(run: Path, vernier_here: Runner) -> None:
    """The first batches in the order of classes: half of the classes were absent, and nothing said so."""
    arguments = ["eval", str(run), "--max-eval-steps", "1", "--set", "machine.eval_batch=20"]
    part = vernier_here(*arguments, "--json").json()
    assert (part["samples"], part["exact"]) == (20, False)
    assert part["part"] == {"images": 20, "of_images": 50, "classes": 10, "of_classes": 10}
    assert "PART of the set: 20 of 50 images, 10 of 10 classes" in vernier_here(*arguments).out
    two = vernier_here(*arguments[:3], "2", "--set", "machine.eval_batch=10", "--json").json()
    assert [two[name] for name in ("top1", "part")] == [part[name] for name in ("top1", "part")]
    whole = vernier_here("eval", str(run), "--max-eval-steps", "3", "--set", "machine.eval_batch=20", "--json").json()
    assert (whole["exact"], "part" in whole) == (True, False)


def test_images_of_a_part_are_the_same_for_every_seed(shapes: Path) -> None:
    source = open_split(str(shapes), "val")
    chosen, _ = _choose_samples(source, 3, 4)
    assert _choose_samples(source, 1, 12)[0].tolist() == chosen.tolist()
    assert len(set(source.all_labels()[chosen].tolist())) == 10


def test_a_part_of_a_detection_set_covers_its_categories(boxes: Path, detector: Path, vernier_here: Runner) -> None:
    part = vernier_here(
        *("eval", str(detector), "--max-eval-steps", "1", "--set", "machine.eval_batch=4", "--json")
    ).json()["part"]
    assert (part["images"], part["of_images"]) == (4, 6)
    assert 1 < part["classes"] <= part["of_classes"] <= 10


def test_a_part_that_decides_on_the_best_weights_is_warned_about(shapes: Path, tmp_path: Path) -> None:
    """ "top-1 27.34 % (best so far)" after three steps: best and patience went by the first batch."""
    config = override(tiny_config(shapes), "eval.patience", 3)
    config = replace(config, limits=Limits(max_steps=1, max_eval_steps=1))
    messages = [w.message for w in events_of(run_training(config, tmp_path / "runs").run, WarningEvent)]
    (warning,) = [m for m in messages if "a part of the set decides on the best checkpoint and" in m]
    assert "16 of 50 images, 10 of 10 classes" in warning


# -------------------------------------------------------------------------------------------------------------- images


@pytest.fixture
def grey_digits(tmp_path: Path) -> Path:
    """Ten grey images in Fashion-MNIST's files."""
    root = tmp_path / "grey"
    root.mkdir()
    pixels = np.arange(10 * 28 * 28, dtype=np.uint8).tobytes()
    for stem in ("train", "t10k"):
        shape = b"".join(n.to_bytes(4, "big") for n in (10, 28, 28))
        (root / f"{stem}-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + shape + pixels)
        (root / f"{stem}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + (10).to_bytes(4, "big") + bytes(range(10)))
    return root


def test_grey_images_are_evaluated_by_a_colour_network_and_it_says_so(
    run: Path, grey_digits: Path, vernier_here: Runner
) -> None:
    """Grey images for a colour network were a traceback about shapes that do not match."""
    done = vernier_here("eval", str(run), "--data", str(grey_digits), "--classes-by-number")
    assert done.code == 0, done.err
    assert (
        "note: the images are grey, the network takes colour: the one channel is used for red, green and blue"
        in done.out
    )


def test_colour_images_are_evaluated_by_a_grey_network_and_it_says_so(
    shapes: Path, grey_digits: Path, tmp_path: Path, vernier_here: Runner
) -> None:
    """The other way round too."""
    config = override(override(tiny_config(grey_digits), "data.mean", (0.5,)), "data.std", (0.3,))
    config = replace(override(config, "global_batch", 8), limits=Limits(max_steps=1))
    grey_run = run_training(config, tmp_path / "runs").run.path
    done = vernier_here("eval", str(grey_run), "--data", str(shapes), "--classes-by-number")
    assert done.code == 0, done.err
    assert "note: the images are in colour, the network takes grey ones" in done.out


def test_eval_says_how_it_prepares_images(run: Path, vernier_here: Runner) -> None:
    """The result depends on the size, the crop and the kernel, and the output named none of them."""
    done = vernier_here("eval", str(run))
    assert "prepared: short side 32, centre 32, bilinear, ImageNet mean and std" in done.out


def test_eval_names_the_images_that_it_could_not_read(run: Path, copied_val: Path, vernier_here: Runner) -> None:
    """An unreadable image was evaluated as a black one, and only --json said so."""
    bad = next((copied_val / "val" / "arrow").iterdir())
    bad.write_bytes(b"no picture")
    done = vernier_here("eval", str(run), "--data", str(copied_val), "--set", "data.max_bad_images=3")
    assert "1 image could not be read, evaluated as black:" in done.out
    assert str(bad) in done.out


# ----------------------------------------------------------------------------------------------------------- detectors


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = ShapesSpec(kind="detect", train=16, val=6, size_px=96, seed=5)
    return make_shapes(tmp_path_factory.mktemp("boxes") / "set", spec)


@pytest.fixture(scope="module")
def detector(boxes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps: it finds nothing well, but always the same."""
    config = recipes.load("ssd-shapes-quick")
    recipe = config.recipe
    recipe = replace(
        recipe,
        data=Data(source=str(boxes), image_px=96, eval_px=96),
        model=replace(recipe.model, width=8),
        global_batch=8,
    )
    machine = replace(config.machine, threads=1, eval_batch=8)
    config = replace(config, recipe=recipe, machine=machine, limits=Limits(max_steps=2))
    return run_training(config, tmp_path_factory.mktemp("runs")).run.path


def _rewritten(boxes: Path, root: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The detection set with other annotations of its validation images."""
    root.mkdir()
    (root / "val").symlink_to(boxes / "val")
    (root / "annotations").mkdir()
    tree = json.loads((boxes / "annotations" / "instances_val.json").read_text())
    change(tree)
    (root / "annotations" / "instances_val.json").write_text(json.dumps(tree))
    return root


def _detections(vernier_here: Runner, detector: Path, data: Path, out: Path) -> tuple[dict[str, Any], list[Any]]:
    """The report, and every detection with the name of its category."""
    done = vernier_here("eval", str(detector), "--data", str(data), "--out", str(out), "--json")
    assert done.code == 0, done.err
    truth = json.loads((data / "annotations" / "instances_val.json").read_text())
    names = {category["id"]: category["name"] for category in truth["categories"]}
    rows = json.loads((out / "detections.json").read_text())
    return done.json(), [(r["image_id"], r["bbox"], r["score"], names.get(r["category_id"])) for r in rows]


def test_a_detector_is_evaluated_by_the_names_of_categories(
    detector: Path, boxes: Path, tmp_path: Path, vernier_here: Runner
) -> None:
    """Categories were matched by their position too: other numbers for the same names gave other objects."""

    def reverse_ids(tree: dict[str, Any]) -> None:
        top = max(category["id"] for category in tree["categories"]) + 1
        for category in tree["categories"]:
            category["id"] = top - category["id"]
        for row in tree["annotations"]:
            row["category_id"] = top - row["category_id"]

    own, before = _detections(vernier_here, detector, boxes, tmp_path / "own")
    data = _rewritten(boxes, tmp_path / "reversed", reverse_ids)
    other, after = _detections(vernier_here, detector, data, tmp_path / "other")
    assert (own["classes_matched"], other["classes_matched"]) == ("name", "order")
    assert before
    assert before == after
    assert {c["name"]: c["AP"] for c in own["classes"]} == {c["name"]: c["AP"] for c in other["classes"]}


def test_a_detector_on_some_categories_says_over_which_its_precision_is(
    detector: Path, boxes: Path, tmp_path: Path, vernier_here: Runner
) -> None:
    """Data with some of the categories was refused, or taken for the first ones."""

    def drop_most(tree: dict[str, Any]) -> None:
        tree["categories"] = tree["categories"][-3:]
        ids = {category["id"] for category in tree["categories"]}
        tree["annotations"] = [row for row in tree["annotations"] if row["category_id"] in ids]

    _, before = _detections(vernier_here, detector, boxes, tmp_path / "own")
    data = _rewritten(boxes, tmp_path / "few", drop_most)
    report, after = _detections(vernier_here, detector, data, tmp_path / "other")
    assert report["classes_matched"] == "subset"
    assert "3 of the model's 10 classes are in this data; AP is over those" in report["notes"][-1]
    names = {name for *_, name in after if name is not None}
    assert [row for row in before if row[3] in names] == [row for row in after if row[3] in names]
    assert sum(c["AP"] is not None for c in report["classes"]) <= 3


def test_a_detector_on_other_categories_is_refused(
    detector: Path, boxes: Path, tmp_path: Path, vernier_here: Runner
) -> None:
    """Other names of categories gave a figure without a word."""

    def rename(tree: dict[str, Any]) -> None:
        for category in tree["categories"]:
            category["name"] = f"x-{category['name']}"

    data = _rewritten(boxes, tmp_path / "renamed", rename)
    done = vernier_here("eval", str(detector), "--data", str(data))
    assert done.code == 2
    assert "0: arrow | x-arrow" in done.err
