import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.report.page.conftest import STEP, detector, emit
from tests.report.run_dirs import step_times, write_run
from vernier.records.run import BadImageNote, RunSummary, TrainingSpeed
from vernier.report.page.build import Page
from vernier.report.page.collect import collect
from vernier.report.page.sections.glance import messages
from vernier.store import RunDir

PageOf = Callable[..., Page]


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_a_classifiers_page_has_its_sections_and_figures(trained: Path, page_of: PageOf) -> None:
    page = page_of(trained)
    assert [s.name for s in page.sections] == ["glance", "training", "classification", "devices", "environment"]
    assert {"loss", "accuracy", "lr", "throughput", "budget", "classes-0", "confusion-0"} <= set(page.figures)
    (subject,) = collect([trained])
    rows = page.figures["accuracy"].rows
    assert [r[4] for r in rows if r[3] == "top-1"] == [e.result.figures["top1"] for e in subject.evals]
    assert sum(r[2] for r in page.figures["confusion-0"].rows) == 50
    glance = text_of(page.sections[0].html)
    assert f"{subject.figure('top1'):.2f} %" in glance
    assert "50 images" in glance


def test_runs_are_drawn_over_one_another(tmp_path: Path, page_of: PageOf) -> None:
    a = write_run(tmp_path, "slow", step_times(1, n=200))
    b = write_run(tmp_path, "fast", step_times(2, mean=0.05, n=200))
    assert {r[0] for r in page_of(a, b).figures["throughput"].rows} == {"slow", "fast"}


def test_warnings_name_the_loader_bad_images_noise_and_a_crash(tmp_path: Path) -> None:
    path = write_run(tmp_path, "troubled", step_times(1, n=100))
    (good,) = collect([path])
    assert messages(good) == []
    speed = TrainingSpeed(
        images_per_s_total=1.0, images_per_s_per_device=1.0, devices=1, method="", data_wait_share=0.4
    )
    troubled = replace(
        good,
        status="crashed",
        warnings=("first warning",),
        disturbances=("throttled: heat",),
        summary=RunSummary(training=speed, bad_images=(BadImageNote(path="x/<b>.jpg", reason="truncated"),)),
    )
    text = " | ".join(messages(troubled))
    for words in ("this run crashed", "loader-bound: 40 %", "noisy: throttled: heat", "1 bad image", "first warning"):
        assert words in text


def test_a_detector_shows_twelve_figures_classes_and_boxes(tmp_path: Path, page_of: PageOf) -> None:
    page = page_of(detector(tmp_path))
    part = next(s for s in page.sections if s.name == "detection")
    assert [r[0] for r in page.figures["class-ap"].rows] == ["disc", "star"]
    html = str(part.html)
    assert html.count("<tr>") == 13  # a heading and twelve
    assert 'x="10.00" y="20.00" width="50.00" height="50.00"' in html
    assert "star 0.90" in html


def test_processes_with_a_slow_one_are_shown(tmp_path: Path, page_of: PageOf) -> None:
    run = RunDir(write_run(tmp_path, "several", step_times(1, n=100)))
    emit(run, STEP)
    rows = page_of(run.path).figures["processes"].rows
    assert [(r[0], r[2]) for r in rows] == [("rank 0", 50.0), ("rank 1", 90.0)]
