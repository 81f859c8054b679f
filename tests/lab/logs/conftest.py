"""The log of a run with known step times: the first is far from steady."""

from pathlib import Path

import pytest

from tests.report.run_dirs import step_times, write_run
from vernier.lab.logs.model import RunLog
from vernier.lab.logs.reading import open_logs

TIMES = [5.0, *step_times(3, n=299)]


@pytest.fixture
def run(tmp_path: Path) -> RunLog:
    (log,) = open_logs(write_run(tmp_path / "runs", "example", TIMES))
    return log


@pytest.fixture
def windows(tmp_path: Path) -> RunLog:
    """The same run on a device that tells only how long ten steps took."""
    (log,) = open_logs(write_run(tmp_path / "runs", "windows", TIMES, timing="windows"))
    return log
