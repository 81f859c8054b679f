"""A wall clock that jumps: an hour back, as after a wrong time zone, or years forward. Nothing is measured by it.

`python -m tests.chaos.soak` moves it under a run of 30 minutes.
"""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_training import events_of, run_training, tiny_config
from vernier import clock
from vernier.config import override
from vernier.engine.training.checkpoints.resume import choose_resume_point
from vernier.records.events import StepEvent
from vernier.store import find_runs


class JumpingClock:
    """The module datetime with a clock that is some hours off, another one at each look if there are several."""

    UTC = dt.UTC

    def __init__(self, *hours: float) -> None:
        self._hours, self._looks, self.datetime = hours, 0, self

    def now(self, zone: dt.tzinfo | None = None) -> dt.datetime:
        self._looks += 1
        return dt.datetime.now(zone) + dt.timedelta(hours=self._hours[self._looks % len(self._hours)])

    def __getattr__(self, name: str) -> Any:
        return getattr(dt.datetime, name)


def test_an_interrupted_run_is_found_after_the_clock_was_set_back(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is older than that of a finished run of the same recipe."""
    config = tiny_config(shapes)
    run_training(override(config, "limits.max_steps", 2), tmp_path)
    monkeypatch.setattr(clock, "dt", JumpingClock(-1))
    interrupted = run_training(override(config, "limits.max_steps", 2), tmp_path).run
    interrupted.write_status("stopped")
    assert find_runs(tmp_path)[0].path == interrupted.path
    point = choose_resume_point(config, tmp_path, None, lambda _: None)
    assert point is not None
    assert point.run.path == interrupted.path


def test_runs_of_the_same_second_have_two_names(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "file_stamp", lambda: "20261119-120000")
    monkeypatch.setattr("vernier.store.run_dir.file_stamp", lambda: "20261119-120000")
    config = override(tiny_config(shapes), "limits.max_steps", 1)
    assert run_training(config, tmp_path).run.path != run_training(config, tmp_path).run.path


def test_no_duration_is_measured_by_the_wall_clock(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It jumps by a year at every look, forward and back."""
    monkeypatch.setattr(clock, "dt", JumpingClock(-8766, 0, 8766))
    outcome = run_training(override(tiny_config(shapes), "limits.max_steps", 4), tmp_path)
    assert outcome.run.status().status == "finished"
    steps = events_of(outcome.run, StepEvent)
    assert all(0 <= seconds < 600 for step in steps for seconds in step.step_s)
