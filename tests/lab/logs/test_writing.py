"""Conversion to the formats of other tools, read by the tools themselves."""

from pathlib import Path

import pytest

from tests.lab.logs.conftest import TIMES
from vernier.errors import ConfigError
from vernier.lab.logs.model import RunLog
from vernier.lab.logs.reading import open_logs
from vernier.lab.logs.writing import convert
from vernier.lab.reading.tables import read_table
from vernier.lab.study.files import StudyDir


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


def test_an_unwritable_path_is_refused(run: RunLog, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Cannot write"):
        convert(run, "raport", tmp_path / "file" / "raport.json")
