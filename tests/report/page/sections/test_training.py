"""The training section."""

from collections.abc import Callable
from pathlib import Path

from tests.report.page.conftest import STEP, emit
from tests.report.run_dirs import step_times, write_run
from vernier.report.page.build import Page
from vernier.report.page.collect import collect
from vernier.report.page.figures import Lines
from vernier.store import RunDir

PageOf = Callable[..., Page]


def test_a_trained_run_has_its_curves(trained: Path, page_of: PageOf) -> None:
    page = page_of(trained)
    assert [s.name for s in page.sections] == ["glance", "training", "classification", "devices", "environment"]
    assert {"loss", "accuracy", "lr", "throughput", "budget"} <= set(page.figures)
    (subject,) = collect([trained])
    rows = page.figures["accuracy"].rows
    assert [r[4] for r in rows if r[3] == "top-1"] == [e.result.figures["top1"] for e in subject.evals]


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
    assert {c.x_range for c in charts if isinstance(c, Lines)} == {(0.0, 2.0)}
    assert [c.y_title or c.y for c in charts if isinstance(c, Lines)] == [
        "cross-entropy, nats per image",
        "accuracy, %",
        "learning rate",
        "images per second",
    ]
