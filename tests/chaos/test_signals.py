"""A few of the signals that `python -m tests.chaos.signals` sends by the hundred."""

from pathlib import Path

import pytest

from tests.chaos.signals import send_many


@pytest.mark.slow
def test_signals_at_random_moments_give_75_and_leave_nothing_half(shapes: Path, tmp_path: Path) -> None:
    outcomes = list(send_many(shapes, tmp_path / "runs", 3, seed=20261117, longest_s=5.0))
    assert [outcome.code for outcome in outcomes] == [75] * 3, outcomes
    assert not [outcome for outcome in outcomes if outcome.problem]
