"""Curves, which are thinned without losing time or samples."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.run_dirs import step_times, write_run
from vernier.report.page.collect import collect
from vernier.report.page.training import MOST_POINTS
from vernier.report.page.training import _merge as merge


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
