"""Training images divided by fraction or fold, with groups that stay whole."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import Done
from tests.refusals import config_error_of, names_given
from vernier.config import Config, Recipe, override
from vernier.data.sources import Source
from vernier.data.sources.base import BoxSource
from vernier.errors import ConfigError
from vernier.recipes import load
from vernier.store import RunDir
from vernier.tasks import task_of

PATIENTS = 12


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5 images of each of 12 patients, two thirds of them healthy."""
    root = tmp_path_factory.mktemp("scans")
    rows = []
    for patient in range(PATIENTS):
        (root / "images" / f"visit{patient // 2}").mkdir(parents=True, exist_ok=True)
        for number in range(5):
            name = f"visit{patient // 2}/{patient}-{number}.png"
            Image.new("RGB", (24, 24), (patient, number, 9)).save(root / "images" / name)
            rows.append([name, "ill" if patient % 3 == 0 else "healthy", f"p{patient}"])
    with (root / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["image", "label", "Patient"], *rows])
    return root


def _open(data: Path | str, **settings: object) -> dict[str, Source]:
    config = override(Config(recipe=Recipe()), "data.source", str(data))
    for name, value in settings.items():
        config = override(config, f"data.{name}", value)
    task = task_of(config.recipe, config.machine)
    return {split: task.open(split) for split in ("train", "val")}


def _names(source: Source) -> list[str]:
    return [source.name(i) for i in range(len(source))]


def test_a_fraction_is_stratified_and_the_same_each_time(scans: Path) -> None:
    parts = _open(scans, split="15%")
    assert (len(parts["val"]), len(parts["train"])) == (9, 51)
    assert np.bincount(parts["val"].all_labels()).tolist() == [6, 3]
    assert not set(_names(parts["val"])) & set(_names(parts["train"]))
    again = _open(scans, split="15%")
    assert _names(again["val"]) == _names(parts["val"])
    assert again["val"].fingerprint() == parts["val"].fingerprint() != parts["train"].fingerprint()
    assert any("9 of 60 images are for validation" in note for note in parts["val"].notes)
    image = parts["val"].image(0)
    assert image[0, 0, :2].tolist() == [int(each) for each in Path(_names(parts["val"])[0]).stem.split("-")]


def test_folds_cover_every_image_once_in_equal_and_stratified_parts(scans: Path) -> None:
    parts = [_open(scans, split=f"{fold}/5") for fold in range(1, 6)]
    held = [_names(part["val"]) for part in parts]
    every = [name for each in held for name in each]
    assert sorted(every) == sorted(_names(parts[0]["train"]) + held[0])
    assert len(set(every)) == 60
    assert [len(each) for each in held] == [12] * 5
    assert [np.bincount(part["val"].all_labels()).tolist() for part in parts] == [[8, 4]] * 5


@pytest.mark.parametrize(("by", "groups"), [("patient", 12), ("folder", 6)])
def test_groups_are_never_divided(scans: Path, by: str, groups: int) -> None:
    def group(name: str) -> str:
        return Path(name).name.partition("-")[0] if by == "patient" else Path(name).parent.name

    seen: set[str] = set()
    for fold in (1, 2, 3):
        parts = _open(scans, split=f"{fold}/3", group_by=by)
        held, rest = ({group(name) for name in _names(parts[split])} for split in ("val", "train"))
        assert not held & rest
        assert not held & seen
        assert len(held | rest) == groups
        assert 15 <= len(parts["val"]) <= 25
        seen |= held
    assert len(seen) == groups
    # With a fraction, or without one: then data.val_share.
    assert 5 <= len(_open(scans, split="15%", group_by=by)["val"]) <= 20
    assert 5 <= len(_open(scans, group_by=by)["val"]) <= 20


def test_folds_of_class_folders_and_of_boxes(shapes: Path, tmp_path: Path) -> None:
    parts = _open(shapes, split="2/4")
    assert (len(parts["val"]), len(parts["train"])) == (40, 120)  # of the training images alone
    from vernier.data.shapes import ShapesSpec, make_shapes

    root = make_shapes(tmp_path / "boxes", ShapesSpec(kind="detect", train=12, val=4, size_px=96, seed=3))
    config = override(override(load("ssd-shapes-quick"), "data.source", str(root)), "data.split", "1/3")
    task = task_of(config.recipe, config.machine)
    train, val = task.open("train"), task.open("val")
    assert (len(train), len(val)) == (8, 4)
    assert isinstance(val, BoxSource)
    assert len(val.boxes(0).classes) > 0
    assert val.image_id(0) >= 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "6/5"}, "neither a percentage"),
        ({"split": "0%"}, "neither a percentage"),
        ({"split": "100%"}, "neither a percentage"),
        ({"split": "a third"}, "neither a percentage"),
        ({"split": "1/3", "group_by": "doctor"}, "The table has image, label, patient"),
        ({"split": "1/2", "group_by": "label"}, "has 1 groups"),
    ],
)
def test_wrong_divisions_are_refused(scans: Path, settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _open(scans, **settings)


def test_a_column_needs_a_table(shapes: Path, tiny: list[str], tmp_path: Path) -> None:
    words = ("train", *tiny, "--fold", "1/3", "--group-by", "patient")
    assert names_given(config_error_of(*words)) == "data.group_by"
    assert not (tmp_path / "runs").exists()


def test_a_fold_trains_and_records_what_was_held_out(
    vernier_here: Callable[..., Done], scans: Path, tiny: list[str], tmp_path: Path
) -> None:
    options = ("--data", str(scans), "--val-split", "2/3", "--group-by", "patient", "--batch", "8", "--steps", "2")
    done = vernier_here("train", *tiny, *options)
    assert done.code == 0, done.err
    (path,) = (tmp_path / "runs").iterdir()
    run = RunDir(path)
    assert run.status().summary.result.samples == len(json.loads((path / "held_out.json").read_text())["names"])
    # Another fold is another run, not this one resumed.
    assert vernier_here("train", *tiny, *options[:3], "1/3", *options[4:]).code == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2
