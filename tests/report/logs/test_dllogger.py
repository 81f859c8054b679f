"""NVIDIA's logs: what is written is read again, and a real one round trips."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vernier.errors import ConfigError
from vernier.report.logs.model import RunLog
from vernier.report.logs.reading import open_logs
from vernier.report.logs.writing import convert


@pytest.mark.parametrize("form", ["dllogger", "raport"])
def test_nvidias_formats_round_trip(run: RunLog, tmp_path: Path, form: str) -> None:
    (path,) = convert(run, form, tmp_path / "out.json")
    (back,) = open_logs(path)
    assert back.format == form
    for name in ("epoch", "seconds", "wait_s", "samples", "steady"):
        assert [getattr(s, name) for s in back.steps] == pytest.approx([getattr(s, name) for s in run.steps]), name
    assert [e.values for e in back.evals] == [e.values for e in run.evals]
    assert back.trace().window.samples_per_s == pytest.approx(run.trace().window.samples_per_s)
    if form == "dllogger":
        assert [(s.loss, s.lr) for s in back.steps] == [(s.loss, s.lr) for s in run.steps]


def test_dllogger_lines_have_nvidias_fields(run: RunLog, tmp_path: Path) -> None:
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
    assert total["data"]["train.total_ips"] == pytest.approx(run.trace().window.samples_per_s)


def test_the_real_dllogger_stream_round_trips(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    (original,) = open_logs(real_data("dllogger") / "raport.json")
    assert original.devices == 8
    assert len(original.evals) == 250
    assert original.evals[-1].values["top1"] == pytest.approx(77.531, abs=0.0005)
    assert original.steps[1].samples == 1024
    assert not original.steps[0].steady  # the first print has 0.318 s where the others have 0.13
    (path,) = convert(original, "dllogger", tmp_path / "again.json")
    (back,) = open_logs(path)
    assert [s.seconds for s in back.steps] == pytest.approx([s.seconds for s in original.steps])
    assert back.evals == original.evals


def test_a_broken_line_is_counted(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(
        'DLLL {"step": "PARAMETER", "data": {"batch_size": 8, "world_size": 2}}\n'
        'DLLL {"step": [0, 1], "data": {"train.data_time": 0.1, "train.comp'
    )
    (run,) = open_logs(log)
    assert "1 broken line(s)" in run.notes[0]
    with pytest.raises(ConfigError, match="no steps"):
        run.trace()
