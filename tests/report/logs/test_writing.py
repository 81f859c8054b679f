"""vernier convert: what is written is read again, by our readers and by the tools the forms belong to."""

import contextlib
import importlib.util
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.report.run_dirs import step_times, write_run
from vernier.errors import ConfigError
from vernier.measure.study.files import StudyDir
from vernier.report.logs.model import RunLog
from vernier.report.logs.reading import open_logs
from vernier.report.logs.writing import convert
from vernier.report.study.tables import read_table

Runner = Callable[..., Any]
RULES = "training_4.0.0/common.yaml"  # the last ones with a ResNet-50
TIMES = [5.0, *step_times(3, n=299)]


@pytest.fixture
def run(tmp_path: Path) -> RunLog:
    (found,) = open_logs(write_run(tmp_path / "runs", "made", TIMES))
    return found


def test_a_run_directory_is_recorded_step_by_step(run: RunLog) -> None:
    assert [s.seconds for s in run.steps] == pytest.approx(TIMES)
    assert [s.steady for s in run.steps[:3]] == [False, True, True]
    assert [(s.epoch, s.step) for s in run.steps[98:102]] == [(0, 98), (0, 99), (1, 100), (1, 101)]
    assert [(e.epoch, e.values["top1"]) for e in run.evals] == [(0, 51.0), (1, 52.0), (2, 53.0)]
    assert run.trace().samples_per_s == pytest.approx(32 * 299 / sum(TIMES[1:]))


@pytest.mark.parametrize("form", ["dllogger", "raport"])
def test_nvidias_forms_round_trip(run: RunLog, tmp_path: Path, form: str) -> None:
    (path,) = convert(run, form, tmp_path / "out.json")
    (back,) = open_logs(path)
    assert back.format == form
    for name in ("epoch", "seconds", "wait_s", "samples", "steady"):
        assert [getattr(s, name) for s in back.steps] == pytest.approx([getattr(s, name) for s in run.steps]), name
    assert [e.values for e in back.evals] == [e.values for e in run.evals]
    assert back.trace().samples_per_s == pytest.approx(run.trace().samples_per_s)
    if form == "dllogger":
        assert [(s.loss, s.lr) for s in back.steps] == [(s.loss, s.lr) for s in run.steps]


def test_dllogger_lines_are_nvidias(run: RunLog, tmp_path: Path) -> None:
    (path,) = convert(run, "dllogger", tmp_path / "log.json")
    records = [
        json.loads(line.removeprefix("DLLL ")) for line in path.read_text().splitlines() if line.startswith("DLLL ")
    ]
    assert len(records) == len(path.read_text().splitlines())
    assert all(isinstance(r[k], str) for r in records for k in ("timestamp", "elapsedtime", "datetime"))
    assert records[0]["step"] == "PARAMETER"
    assert [r["step"] for r in records if r["type"] == "LOG" and len(r["step"]) == 1] == [[0], [1], [2]]
    total = records[-1]
    assert total["step"] == []
    assert total["data"]["train.total_ips"] == pytest.approx(run.trace().samples_per_s)


def test_the_real_dllogger_stream_round_trips(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    (theirs,) = open_logs(real_data("dllogger") / "raport.json")
    assert theirs.devices == 8
    assert len(theirs.evals) == 250
    assert theirs.evals[-1].values["top1"] == pytest.approx(77.531, abs=0.0005)
    assert theirs.steps[1].samples == 1024
    assert not theirs.steps[0].steady  # the first print has 0.318 s where the others have 0.13
    (path,) = convert(theirs, "dllogger", tmp_path / "again.json")
    (back,) = open_logs(path)
    assert [s.seconds for s in back.steps] == pytest.approx([s.seconds for s in theirs.steps])
    assert back.evals == theirs.evals


def test_mllog_round_trips_by_epoch(run: RunLog, tmp_path: Path) -> None:
    (path,) = convert(run, "mllog", tmp_path / "result_0.txt")
    (back,) = open_logs(path)
    epochs = [sum(TIMES[i : i + 100]) for i in (0, 100, 200)]
    assert [s.seconds for s in back.steps] == pytest.approx(epochs, abs=0.0011)
    assert [e.values["eval_accuracy"] for e in back.evals] == pytest.approx([0.51, 0.52, 0.53])
    assert (back.train_samples, back.eval_samples, back.settings["global_batch_size"]) == (3200, 50, 32)
    assert back.total_s == pytest.approx(sum(epochs) + 3, abs=0.01)


@pytest.mark.skipif(importlib.util.find_spec("mlperf_logging") is None, reason="mlperf-logging is not installed")
def test_mllog_passes_mlperfs_own_checker(run: RunLog, tmp_path: Path) -> None:
    from mlperf_logging.compliance_checker import mlp_compliance
    from mlperf_logging.compliance_checker.mlp_parser import parse_file

    (path,) = convert(run, "mllog", tmp_path / "result_0.txt")
    lines, errors = parse_file(str(path), ruleset="4.0.0")
    assert errors == []
    assert [line.key for line in lines][:2] == ["submission_benchmark", "submission_org"]
    checker = mlp_compliance.make_checker("training", "4.0.0", False, False)
    with contextlib.redirect_stdout(io.StringIO()):
        valid, *_ = mlp_compliance.main(str(path), RULES, checker)
    assert valid
    broken = tmp_path / "broken.txt"
    broken.write_text("\n".join(line for line in path.read_text().splitlines() if "run_stop" not in line))
    with contextlib.redirect_stdout(io.StringIO()):
        assert not mlp_compliance.main(str(broken), RULES, checker)[0]


def test_mlperfs_published_logs_are_read(real_data: Callable[[str], Path]) -> None:
    resnet = open_logs(real_data("mlperf-v0.7") / "dgxa100_ngc20.06_mxnet" / "resnet" / "result_0.txt")[0]
    assert (len(resnet.steps), len(resnet.evals), resnet.train_samples) == (41, 11, 1281167)
    assert resnet.reached_target
    ssd = open_logs(real_data("mlperf-v0.7") / "dgxa100_ngc20.06_pytorch" / "ssd" / "result_0.txt")[0]
    assert len(ssd.steps) == 50  # the epoch in which the target was met has no end
    assert ssd.trace().samples_per_s == pytest.approx(117266 * 50 / sum(s.seconds for s in ssd.steps))


def test_the_studys_files_round_trip(run: RunLog, tmp_path: Path) -> None:
    (path,) = convert(run, "study", tmp_path / "study")
    (repeat,) = StudyDir.open(path).repeats()
    assert repeat.seconds == tuple(s.seconds for s in run.steps)
    assert repeat.warmup == 1
    (raw,) = path.glob("resnet_iterdur_*.txt")
    whole, text = read_table([path]), read_table([raw])
    assert whole.rows[0].value == pytest.approx(text.rows[0].value)
    assert whole.workload == "made"


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_reads_what_is_written(run: RunLog, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    convert(run, "tensorboard", tmp_path / "tb")
    found = EventAccumulator(str(tmp_path / "tb"), size_guidance={"scalars": 0})
    found.Reload()
    times = found.Scalars("train/step_s")
    assert [e.value for e in times] == pytest.approx([s.seconds for s in run.steps], rel=1e-6)
    assert [e.step for e in times] == list(range(1, 301))
    assert [(e.step, e.value) for e in found.Scalars("val/top1")] == [(100, 51.0), (200, 52.0), (300, 53.0)]


def test_without_tensorboard_the_extra_is_named(run: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(ConfigError, match=r"pip install 'vernier\[tensorboard\]'"):
        convert(run, "tensorboard", tmp_path / "tb")


def test_on_the_command_line(tmp_path: Path, vernier_here: Runner) -> None:
    path = write_run(tmp_path / "runs", "made", TIMES)
    target = tmp_path / "deep" / "raport.json"
    done = vernier_here("convert", str(path), "--to", "raport", "-o", str(target), "--json")
    assert (done.code, done.json()["written"]) == (0, [str(target)])
    again = vernier_here("convert", str(path), "--to", "raport", "--out", str(target))
    assert (again.code, "exists already" in again.err) == (2, True)
    compared = vernier_here("compare", str(path), str(target), "--json").json()
    assert compared["comparison"]["ratio"] == pytest.approx(1)
    assert vernier_here("convert", str(tmp_path / "no"), "--to", "raport", "--out", "x").code == 2
    empty = write_run(tmp_path / "runs", "empty", [])
    nothing = vernier_here("convert", str(empty), "--to", "mllog", "--out", str(tmp_path / "x"))
    assert (nothing.code, "nothing to convert" in nothing.err) == (2, True)
    assert not (tmp_path / "x").exists()
    several = vernier_here("convert", str(tmp_path / "runs"), "--to", "mllog", "--out", str(tmp_path / "x"))
    assert (several.code, "holds 2 runs" in several.err) == (2, True)


def test_where_one_cannot_write(run: RunLog, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Cannot write"):
        convert(run, "raport", tmp_path / "file" / "raport.json")


def test_broken_logs(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(
        'DLLL {"step": "PARAMETER", "data": {"batch_size": 8, "world_size": 2}}\nDLLL {"step": [0, 1], "data": {"train.data_time": 0.1, "train.comp'
    )
    (found,) = open_logs(log)
    assert "1 broken line(s)" in found.notes[0]
    with pytest.raises(ConfigError, match="no steps"):
        found.trace()
    log.write_text(':::MLLOG {"key": "epoch_start", "time_ms": 1, "metadata": {"epoch_num": 1}}\n:::MLLOG {"key": ')
    (found,) = open_logs(log)
    assert any("has no end of the run" in n for n in found.notes)
    with pytest.raises(ConfigError, match="no steps"):
        found.trace()
