"""The training section."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.report.page.conftest import STEP, emit
from tests.report.run_dirs import step_times, write_run
from vernier.data.decoding.decode import encode_thumbnail
from vernier.records.events import CheckpointEvent, StartEvent
from vernier.records.predictions import TrainImage, TrainImages
from vernier.report.page.build import Page
from vernier.report.page.collect import collect
from vernier.report.page.figures import Lines
from vernier.store import RunDir

PageOf = Callable[..., Page]


def test_a_trained_run_has_its_curves(trained: Path, page_of: PageOf) -> None:
    page = page_of(trained)
    names = [s.name for s in page.sections if s.name != "system"]  # a training of a second may have no sample
    assert names == ["glance", "training", "classification", "environment"]
    assert {"loss", "accuracy", "lr", "throughput", "budget"} <= set(page.figures)
    (subject,) = collect([trained])
    columns, rows = page.figures["accuracy"].columns, page.figures["accuracy"].rows
    assert list(columns) == ["run", "epoch", "step", "time s", "figure", "value", "best"]
    assert [r[5] for r in rows] == [e.result.figures["top1"] for e in subject.evals]
    assert {r[4] for r in rows} == {"top-1"}  # of ten classes, five guesses say little
    assert [r[5] for r in rows if r[6]] == [max(r[5] for r in rows)]


def test_runs_are_drawn_over_one_another(tmp_path: Path, page_of: PageOf) -> None:
    a = write_run(tmp_path, "slow", step_times(1, n=200))
    b = write_run(tmp_path, "fast", step_times(2, mean=0.05, n=200))
    assert {r[0] for r in page_of(a, b).figures["throughput"].rows} == {"slow", "fast"}


def test_processes_with_a_slow_one_are_shown(tmp_path: Path, page_of: PageOf) -> None:
    run = RunDir(write_run(tmp_path, "several", step_times(1, n=100)))
    emit(run, STEP)
    rows = page_of(run.path).figures["processes"].rows
    assert [(r[0], r[2]) for r in rows] == [("rank 0", 50.0), ("rank 1", 90.0)]


def test_training_loss_above_validation_loss_is_explained_from_the_settings(tmp_path: Path, page_of: PageOf) -> None:
    plain = {"recipe__augment__flip": 0.0, "recipe__augment__crop": "none"}
    above = write_run(tmp_path, "above", [0.1] * 100, steps_per_epoch=1, recipe__loss__label_smoothing=0.1, **plain)
    caption = page_of(above).figures["loss"].caption
    assert caption.startswith("Training loss can lie above validation loss: training labels are smoothed")
    assert "flipped" not in caption
    below = write_run(tmp_path, "below", step_times(1, n=100))
    assert page_of(below).figures["loss"].caption == ""


def test_charts_over_epochs_have_labels_and_one_axis(trained: Path, page_of: PageOf) -> None:
    charts = [page_of(trained).figures[name].chart for name in ("loss", "accuracy", "lr", "throughput")]
    ranges = [c.x_ranges for c in charts if isinstance(c, Lines) and c.x_ranges]
    assert ranges == [ranges[0]] * 4
    assert (ranges[0]["epoch"], ranges[0]["step"]) == ((0.0, 2.0), (0.0, 20.0))
    assert ranges[0]["time s"][1] > 0
    assert [c.y_title or c.y for c in charts if isinstance(c, Lines)] == [
        "cross-entropy, nats per image",
        "accuracy, %",
        "learning rate",
        "images per second",
    ]


def test_time_adds_up_steps_evaluations_and_stalls_but_not_pauses(tmp_path: Path) -> None:
    run = RunDir(write_run(tmp_path, "resumed", [0.1] * 100))
    emit(run, CheckpointEvent(step=100, path="x", seconds=9.0, stall_s=0.5), StartEvent(resumed_from=100), STEP)
    (subject,) = collect([run.path])
    assert [p.time_s for p in subject.points[-2:]] == pytest.approx([10.0, 10.0 + 1.0 + 0.5 + 0.1])
    assert subject.evals[-1].time_s == pytest.approx(11.0)
    assert subject.points[-1].session == 1


def test_the_first_training_images_are_shown_once_for_runs_that_got_the_same(tmp_path: Path, page_of: PageOf) -> None:
    runs = [RunDir(write_run(tmp_path, f"run{i}", [0.1] * 20)) for i in range(3)]
    assert "first training images" not in str(page_of(runs[0].path).sections[1].html)  # as of earlier versions
    for run, shade in zip(runs, (10, 10, 200), strict=True):
        jpeg = encode_thumbnail(np.full((8, 8, 3), shade, np.uint8), 8)
        image = TrainImage(jpeg=jpeg, class_name="<cat>")
        run.write_train_images(TrainImages(width=64, height=64, images=(image,) * 2))
    html = str(page_of(*(run.path for run in runs)).sections[2].html)
    assert html.count('class="sheet"') == 2
    assert html.count("&lt;cat&gt;</div>") == 4
    assert "run0, run1" in html
    assert "64 x 64 pixels" in html
    (runs[0].path / "train_images.json").write_text("{}")
    assert "left out: Cannot read" in " ".join(collect([runs[0].path])[0].notes)
