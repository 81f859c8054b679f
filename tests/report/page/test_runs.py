"""Run directories as subjects: also of runs that crashed or are still running, and the warnings on their cards."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.run_dirs import step_times, write_run
from vernier.records.run import BadImageNote, RunSummary, TrainingSpeed
from vernier.report.page.collect import collect
from vernier.store import RunDir


def test_a_real_run_has_its_steps_evaluations_result_and_mistakes(trained: Path) -> None:
    (subject,) = collect([trained])
    assert (subject.kind, subject.status, subject.format) == ("training", "finished", "vernier")
    assert subject.name == trained.name.split("-", 2)[2]
    assert [p.step for p in subject.points][-1] == 20
    assert sum(p.steps for p in subject.points) == 20
    assert sum(p.window.samples for p in subject.points) == 320
    assert [e.epoch for e in subject.evals] == [1.0, 2.0]
    assert subject.figure("top1") == subject.evals[-1].result.figures["top1"]
    assert subject.mistakes is not None
    assert sum(subject.mistakes.samples) == 50
    assert subject.spent_s["total"] == pytest.approx(
        sum(v for k, v in subject.spent_s.items() if k != "total"), rel=0.05
    )


def test_running_and_crashed_runs_are_read_as_far_as_they_are(tmp_path: Path) -> None:
    run = RunDir(write_run(tmp_path, "killed", step_times(1, n=200), status="running"))
    with run.locked():
        assert collect([run.path])[0].status == "running"
    (subject,) = collect([run.path])
    assert subject.status == "crashed"
    assert subject.spent_s["total"] > 0
    run.path.joinpath("run.json").unlink()
    assert collect([run.path])[0].status == "unknown"
    with run.path.joinpath("events.jsonl").open("a") as f:
        f.write('{"kind": "st')
    (broken,) = collect([run.path])
    assert broken.notes == ("1 damaged event left out",)
    assert broken.points == subject.points


def test_warnings_name_the_loader_bad_images_noise_and_a_crash(tmp_path: Path) -> None:
    path = write_run(tmp_path, "troubled", step_times(1, n=100))
    (good,) = collect([path])
    assert good.messages() == []
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
    text = " | ".join(troubled.messages())
    for words in ("this run crashed", "loader-bound: 40 %", "noisy: throttled: heat", "1 bad image", "first warning"):
        assert words in text
