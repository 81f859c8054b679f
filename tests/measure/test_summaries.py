"""Summaries satisfy the inequalities of any set of numbers; impossible published tables do not."""

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.conftest import load_benchmark
from vernier.measure.estimates import METHOD
from vernier.measure.summaries import summarize

CHECKS = load_benchmark("table_checks")
contradictions, needs = CHECKS.contradictions, CHECKS.needs

VALUES = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, 1.0, 1.0 + 1e-9, 1000.0]))


@settings(max_examples=400, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=80))
@example([5.1912598282214726e-169] * 3)  # their mean, as computed, is not one of them
def test_every_sample_passes(values: list[float]) -> None:
    summary = summarize(values, unit="s", of="step, all devices")
    assert summary.n == len(values)
    assert summary.method == METHOD
    assert summary.low is None or summary.high is None or summary.low <= summary.mean <= summary.high
    problems = contradictions(
        n=summary.n,
        mean=summary.mean,
        median=summary.median,
        sd=summary.sd,
        minimum=summary.min,
        maximum=summary.max,
        percentiles={5: summary.p5, 95: summary.p95, 99: summary.p99},
        divisor="n - 1",
    )
    assert problems == []


GOOD = {"n": 15, "mean": 10.0, "median": 10.0, "sd": 1.0, "minimum": 8.5, "maximum": 12.0}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"mean": 13.0}, "above maximum"),
        ({"mean": 8.0}, "below minimum"),
        ({"median": 11.5}, r"\|mean - median\|"),
        ({"sd": 2.2}, "the most these extremes allow"),
        ({"sd": 0.1}, "the least this range allows"),
        ({"minimum": 6.0, "sd": 1.0}, "sd from the mean"),
        ({"percentiles": {95: 11.0, 99: 10.5}}, "p95 11 is above p99"),
        ({"percentiles": {5: 5.0}}, "minimum 8.5 is above p5"),
        ({"n": 0}, "n is 0"),
        ({"mean": float("nan")}, "not a number"),
        ({"sd": -1.0}, "negative"),
        (
            {"n": 1000, "percentiles": {5: 8.5, 95: 8.6, 99: 8.7}, "median": 8.55, "mean": 9.0, "sd": 0.6},
            "the most these percentiles",
        ),
    ],
)
def test_each_inequality_is_checked(changes: dict[str, object], what: str) -> None:
    assert contradictions(**GOOD) == []
    problems = contradictions(**{**GOOD, **changes})
    assert any(re.search(what, line) for line in problems), problems


def test_a_summary_names_its_unit() -> None:
    with pytest.raises(ValueError, match="names its unit"):
        summarize([1.0], unit="", of="step")


def test_an_impossible_published_table_is_rejected() -> None:
    """NVIDIA's SSD, 15 seeds: mean and median are 1.9 sd apart, and the minimum is too far from the mean."""
    mixed = contradictions(n=15, mean=0.2680, median=0.2707, sd=0.0014, minimum=0.2618, rounding=0.00005)
    assert any("median" in line for line in mixed)
    assert any("minimum is 4.4 sd from the mean, n = 15 allows 3.6" in line for line in mixed)
    assert contradictions(n=15, mean=0.2680, median=0.2693, sd=0.0016, rounding=0.00005) == []


def test_a_mean_above_its_99th_percentile_implies_a_maximum() -> None:
    assert needs(mean=20.0, percentiles={95: 11.0, 99: 12.0}) == [
        "mean 20 above p95 11 needs a maximum of at least 191",
        "mean 20 above p99 12 needs a maximum of at least 812",
    ]
    assert contradictions(n=1000, mean=20.0, maximum=50.0, minimum=5.0, percentiles={99: 12.0}) != []
    assert contradictions(n=1000, mean=20.0, maximum=9000.0, minimum=5.0, percentiles={99: 12.0}) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(VALUES, min_size=2, max_size=59), st.sampled_from([0, 1]))
def test_tables_of_others_may_have_either_standard_deviation(values: list[float], ddof: int) -> None:
    """numpy divides by n, the statistics module by n - 1: tables with the former were called impossible."""
    row = np.array(values)
    figures = {
        "n": row.size,
        "mean": float(row.mean()),
        "median": float(np.median(row)),
        "sd": float(row.std(ddof=ddof)),
        "minimum": float(row.min()),
        "maximum": float(row.max()),
        "percentiles": {p: float(np.percentile(row, p)) for p in (5, 95, 99)},
    }
    assert contradictions(**figures) == []


def test_a_standard_deviation_that_fits_one_convention_only_is_said() -> None:
    """Of 0 and 1 it is 0.5 for a population and 0.707 for a sample."""
    figures = {"n": 2, "mean": 0.5, "minimum": 0.0, "maximum": 1.0}
    assert contradictions(**figures, sd=0.5) == contradictions(**figures, sd=0.70711, rounding=5e-6) == []
    wrong = contradictions(**figures, sd=0.5, divisor="n - 1")
    assert wrong[-1] == "sd 0.5 would be possible if it were divided by n"
    assert any("the least this range allows" in line for line in wrong)
    assert needs(**figures, sd=0.5) == ["sd 0.5 is that of a population (divided by n): the other would be impossible"]
    assert needs(**figures, sd=0.70711, rounding=5e-6) == [
        "sd 0.70711 is that of a sample (divided by n - 1): the other would be impossible"
    ]
    assert contradictions(**figures, sd=0.9) != []


def test_the_minimum_is_the_smallest_value() -> None:
    """A meter of another tool reported the maximum as the minimum."""
    summary = summarize([3.0, 1.0, 2.0], unit="s", of="step, all devices")
    assert (summary.min, summary.max) == (1.0, 3.0)
