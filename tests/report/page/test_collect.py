import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.bench_results import bench_run
from tests.report.page.conftest import detector
from tests.report.run_dirs import step_times, write_run
from vernier.errors import ConfigError
from vernier.measure.study.files import Repeat, StudyDir
from vernier.records.codec import encode
from vernier.records.study import StudyDevice, StudyMeta
from vernier.report.page.collect import MOST_POINTS, collect
from vernier.report.page.collect import _merge as merge
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


def test_many_windows_are_merged_without_losing_time_or_samples(tmp_path: Path) -> None:
    times = step_times(2, n=4 * MOST_POINTS)
    path = write_run(tmp_path, "long", times, window=1)
    (subject,) = collect([path])
    assert len(subject.points) == MOST_POINTS
    assert sum(p.window.wall_s for p in subject.points) == pytest.approx(sum(times))
    assert sum(p.window.samples for p in subject.points) == 32 * len(times)
    assert subject.points[0].loss == pytest.approx(sum(5 / (1 + i) for i in range(1, 5)) / 4)


def test_windows_of_sessions_with_different_numbers_of_processes_are_merged(tmp_path: Path) -> None:
    """A long run that was resumed with another number of processes could not be reported at all."""
    (subject,) = collect([write_run(tmp_path, "run", [0.1] * 20, window=10)])
    two, one = (replace(subject.points[0], own_s=own_s) for own_s in ((0.1, 0.2), (0.1,)))
    assert merge([two, replace(two, own_s=(0.3, 0.4))]).own_s == pytest.approx((0.2, 0.3))
    assert merge([two, one]).own_s is None


@pytest.mark.parametrize("first", [0, 1])
def test_steps_of_an_external_log_count_once_whether_they_are_numbered_from_0_or_1(tmp_path: Path, first: int) -> None:
    """Numbered from 1, twenty steps of a second each took 22 seconds on the page."""
    data = {"train.total_ips": 8.0, "train.loss": 1.0, "train.data_time": 0.0, "train.compute_time": 1.0}
    steps = [[epoch, step] for epoch in range(2) for step in range(first, first + 10)]
    lines = [f"DLLL {json.dumps({'timestamp': '1', 'step': step, 'data': data})}\n" for step in steps]
    (tmp_path / "log.json").write_text("".join(lines))
    (subject,) = collect([tmp_path / "log.json"])
    assert [p.step for p in subject.points] == list(range(1, 21))
    assert subject.points[-1].time_s == pytest.approx(20.0)


def test_names_are_unique_and_without_a_date_where_possible(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", "one", [0.1] * 20), write_run(tmp_path / "b", "two", [0.1] * 20)
    assert [s.name for s in collect([a, b])] == ["one", "two"]
    assert len({s.name for s in collect([a, b, a])}) == 3
    assert len(collect([tmp_path / "a", tmp_path / "b"])) == 2


def test_another_systems_log_is_marked_as_foreign(real_data: Callable[[str], Path]) -> None:
    (subject,) = collect([real_data("dllogger") / "raport.json"])
    assert subject.foreign
    assert subject.status == "foreign"
    assert len(subject.evals) > 10
    assert subject.points[-1].epoch <= subject.evals[-1].epoch
    (log,) = collect([real_data("mlperf-v0.7") / "dgxa100_ngc20.06_mxnet" / "resnet" / "result_0.txt"])
    assert log.format == "mllog"
    assert log.spent_s["total"] > 0


def test_a_study_of_simulated_devices_is_marked(tmp_path: Path) -> None:
    devices = tuple(StudyDevice(id=f"sim-{i}", index=i, host="c001-002", slowdown=1.0) for i in range(6))
    meta = StudyMeta(workload="sgemm", iterations=5, repeats=3, devices=devices, simulated=True)
    study = StudyDir.create(tmp_path / "study", meta)
    telemetry = ({"t_s": 0.1, "power_w": 200.0, "temperature_c": 60.0, "clock_mhz": 1400.0},)
    for number, device in enumerate(devices):
        for repeat in range(3):
            seconds = tuple((1.3 if number == 3 else 1.0) * (1 + 0.001 * (repeat + number)) for _ in range(5))
            study.write_repeat(Repeat(device=device.id, repeat=repeat, seconds=seconds, telemetry=telemetry))
    (subject,) = collect([tmp_path / "study"])
    assert subject.simulated
    assert subject.study is not None
    assert subject.study.result.devices[0].device == "sim-3"
    assert {cabinet for cabinet, _ in subject.study.locations.values()} == {"c001"}
    assert len(subject.study.telemetry) == 6
    saved = tmp_path / "analysis.json"
    saved.write_text(json.dumps(encode(subject.study.result)))
    (again,) = collect([saved])
    assert again.study is not None
    assert again.study.result.devices[0].device == "sim-3"


def test_benchmarks_and_trainings_are_recognised(tmp_path: Path) -> None:
    bench, network = collect([bench_run(tmp_path / "a"), detector(tmp_path / "b")])
    assert (bench.kind, network.kind) == ("bench", "training")
    assert len(network.examples) == 1


def test_missing_paths_and_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        collect([tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match="not a run directory"):
        collect([tmp_path])
    strange = tmp_path / "notes.txt"
    strange.write_text("hello")
    with pytest.raises(ConfigError, match="not the log of a run"):
        collect([strange])
