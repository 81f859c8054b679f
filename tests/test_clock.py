"""Clocks: where the time of a run goes."""

import pytest

from vernier.clock import Stopwatch


def test_the_stopwatch_survives_restarts_and_shows_what_no_purpose_claims() -> None:
    watch = Stopwatch({"total": 100.0, "compute": 60.0, "other": 40.0})
    watch.add("compute", 5.0)
    spent = watch.spent()
    assert spent["compute"] == 65.0
    assert spent["total"] >= 100.0
    assert spent["other"] == pytest.approx(spent["total"] - 65.0)
    with pytest.raises(ValueError, match="negative"):
        watch.add("compute", -1.0)
