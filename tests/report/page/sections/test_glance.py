"""The first section: results, speed, warnings."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.report.page.conftest import text_of
from tests.report.run_dirs import step_times, write_run
from vernier.records.run import BadImageNote, RunSummary, TrainingSpeed
from vernier.report.page.build import Page
from vernier.report.page.collect import collect
from vernier.report.page.sections.glance import messages

PageOf = Callable[..., Page]


def test_a_result_has_its_interval_and_number_of_images(trained: Path, page_of: PageOf) -> None:
    (subject,) = collect([trained])
    text = text_of(page_of(trained).sections[0].html)
    assert f"{subject.figure('top1'):.2f} %" in text
    assert "50 images" in text
    assert "img/s" in text


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
