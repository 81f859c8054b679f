"""Conversion to the formats of other tools, read by the tools themselves."""

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.report.logs.conftest import TIMES
from vernier.errors import ConfigError
from vernier.lab.reading.tables import read_table
from vernier.lab.study.files import StudyDir
from vernier.report.logs.model import RunLog
from vernier.report.logs.reading import open_logs
from vernier.report.logs.writing import convert


def test_a_study_round_trips(run: RunLog, tmp_path: Path) -> None:
    path, raw = convert(run, "study", tmp_path / "study")
    (repeat,) = StudyDir.open(path).repeats()
    assert repeat.seconds == tuple(s.seconds for s in run.steps)
    assert repeat.warmup == 1
    whole, text = read_table([path]), read_table([raw])
    assert whole.rows[0].value == pytest.approx(text.rows[0].value)
    assert whole.workload == "example"


@pytest.mark.parametrize("form", ["raport", "dllogger", "study"])
def test_steps_that_were_not_timed_are_not_exported(windows: RunLog, tmp_path: Path, form: str) -> None:
    with pytest.raises(ConfigError, match=f"no times of single steps, which {form} lists.*machine.step_times=each"):
        convert(windows, form, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_epochs_of_windows_are_exported(windows: RunLog, tmp_path: Path) -> None:
    (path,) = convert(windows, "mllog", tmp_path / "log.txt")
    (log,) = open_logs(path)
    assert [s.seconds for s in log.steps] == pytest.approx([sum(TIMES[i : i + 100]) for i in (0, 100, 200)], rel=1e-3)


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_gets_the_mean_of_each_window_at_its_last_step(windows: RunLog, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    convert(windows, "tensorboard", tmp_path / "tb")
    events = EventAccumulator(str(tmp_path / "tb"), size_guidance={"scalars": 0})
    events.Reload()
    times = events.Scalars("train/step_s")
    assert [e.step for e in times] == list(range(10, 301, 10))
    assert [e.value for e in times] == pytest.approx([sum(TIMES[i : i + 10]) / 10 for i in range(0, 300, 10)], rel=1e-6)


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_reads_the_files(run: RunLog, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    convert(run, "tensorboard", tmp_path / "tb")
    events = EventAccumulator(str(tmp_path / "tb"), size_guidance={"scalars": 0})
    events.Reload()
    times = events.Scalars("train/step_s")
    assert [e.value for e in times] == pytest.approx([s.seconds for s in run.steps], rel=1e-6)
    assert [e.step for e in times] == list(range(1, 301))
    assert [(e.step, e.value) for e in events.Scalars("val/top1")] == [(100, 51.0), (200, 52.0), (300, 53.0)]


def test_without_tensorboard_the_extra_is_named(run: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(ConfigError, match=r"pip install 'vernier\[tensorboard\]'"):
        convert(run, "tensorboard", tmp_path / "tb")


def test_an_unwritable_path_is_refused(run: RunLog, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Cannot write"):
        convert(run, "raport", tmp_path / "file" / "raport.json")
