"""The training section."""

from collections.abc import Callable
from pathlib import Path

from tests.report.page.conftest import STEP, emit
from tests.report.run_dirs import step_times, write_run
from vernier.report.page.build import Page
from vernier.report.page.collect import collect
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
