import sys

import pytest

from vernier.cli.bench.options import Comparing
from vernier.cli.bench.running import _turned_if_too_wide, with_plan
from vernier.errors import ConfigError
from vernier.measure.statistics.comparison import DEFAULT_RUNS
from vernier.records.bench import BenchRequest

REQUEST = BenchRequest(what="train", config={})


@pytest.mark.parametrize(
    ("how", "precision"),
    [
        (Comparing(), 0.01),
        (Comparing(against="HEAD"), 0.005),
        (Comparing(against="HEAD", precision_target="2%"), 0.02),
    ],
)
def test_comparing_measures_more_precisely_and_as_often_as_the_power_was_shown_for(
    how: Comparing, precision: float
) -> None:
    request = with_plan(REQUEST, how)
    assert (request.repeats, request.plan.precision) == (DEFAULT_RUNS, precision)


def test_a_table_that_is_wider_than_the_terminal_has_a_column_per_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    table = [{"batch": "8", "img/s total": "88.8 [80.1, 97.2]"}, {"batch": "16", "img/s total": "101 [99, 103]"}]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert _turned_if_too_wide(table) == table
    monkeypatch.setenv("COLUMNS", "20")
    assert _turned_if_too_wide(table)[0] == {"": "batch", "row 1": "8", "row 2": "16"}


@pytest.mark.parametrize("how", [Comparing(repeats=0), Comparing(steps=-1), Comparing(max_seconds=0)])
def test_counts_and_times_are_positive(how: Comparing) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        with_plan(REQUEST, how)
