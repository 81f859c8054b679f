"""The common form of logs."""

from pathlib import Path

import pytest

from vernier.errors import ConfigError
from vernier.lab.logs.model import RunLog, StepRecord, finite, without_impossible


def test_only_finite_numbers_count_as_numbers() -> None:
    assert finite(1) == 1
    assert all(finite(v) is None for v in (True, float("nan"), float("inf"), "1", None, 10**400))


def test_what_no_run_can_have_is_left_out_and_counted() -> None:
    times = (1.0, float("nan"), float("inf"), -1.0, 1e12)
    steps = tuple(StepRecord(epoch=0, step=i, seconds=t, loss=float("nan")) for i, t in enumerate(times))
    log = without_impossible(RunLog(format="raport", path=Path("x"), steps=steps, total_s=float("nan")))
    assert [(s.step, s.loss) for s in log.steps] == [(0, None)]
    assert (log.total_s, log.notes) == (None, ("4 step records of x with impossible numbers left out",))


@pytest.mark.parametrize("started", ["soon", "0001-01-01T00:00:00+00:00", "2026-13-01"])
def test_a_start_that_is_no_time_is_refused(started: str) -> None:
    with pytest.raises(ConfigError, match="no possible time"):
        RunLog(format="vernier", path=Path("x"), started=started).began()
