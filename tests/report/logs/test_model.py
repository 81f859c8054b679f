"""The common form of logs."""

from pathlib import Path

import pytest

from tests.report.logs.conftest import TIMES
from vernier.errors import ConfigError
from vernier.report.logs.model import RunLog, StepRecord, finite


def test_the_trace_leaves_out_the_warm_up_and_counts_samples(run: RunLog) -> None:
    assert not run.steps[0].steady
    assert len(run.trace().step_s) == len(run.steady_steps) == 299
    assert run.trace().window.samples_per_s == pytest.approx(32 * 299 / sum(TIMES[1:]))


def test_a_trace_of_windows_has_the_speed_of_all_steps_and_one_sample_per_window(windows: RunLog) -> None:
    assert not windows.has_single_steps
    assert (len(windows.steps), len(windows.steady_steps)) == (30, 29)
    trace = windows.trace()
    assert (len(trace.step_s), trace.steps) == (29, 290)
    assert trace.window.samples_per_s == pytest.approx(32 * 290 / sum(TIMES[10:]))


def test_a_log_without_samples_cannot_be_compared() -> None:
    steps = (StepRecord(epoch=0, step=0, seconds=0.1),)
    with pytest.raises(ConfigError, match="number of samples per step"):
        RunLog(format="raport", path=Path("x"), steps=steps).trace()


def test_only_finite_numbers_count_as_numbers() -> None:
    assert finite(1) == 1
    assert all(finite(v) is None for v in (True, float("nan"), float("inf"), "1", None))
