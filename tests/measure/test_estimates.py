"""Estimates: how often their intervals hold, and what they say about little or odd data."""

import math
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.conftest import load_benchmark
from vernier.measure.estimates import (
    METHOD,
    _mean_estimate,
    _t_quantile,
    correlation_steps,
    in_known_digits,
    mean_interval,
    rate_estimate,
    share_interval,
    summarize,
    t_quantiles,
)
from vernier.records.statistics import Estimate

COVERAGE, FEW_STEPS = (load_benchmark(f"promises/{name}") for name in ("intervals", "few_steps"))


def _correlated(seed: int, n: int, phi: float) -> np.ndarray:
    return COVERAGE.correlated(np.random.default_rng(seed), (1, n), phi)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", COVERAGE.KINDS)
def test_intervals_hold_as_often_as_they_say(kind: str) -> None:
    """A small run of the benchmark: 93 to 97 %, give or take three standard errors of 1200 traces."""
    estimate = COVERAGE.coverage(np.random.default_rng(4), COVERAGE.KINDS[kind], 1200, 500)
    assert 0.93 - 0.022 <= estimate["covered"] <= 0.97 + 0.015


@pytest.mark.parametrize(
    ("kind", "steps", "most_given", "least_covered"),
    [
        ("correlated 0.5", 100, 0.0, 0.0),
        ("correlated 0.95", 200, 0.02, 0.0),
        ("two states 10 % apart, noise 1 %", 200, 0.1, 0.0),
        ("correlated 0.5", 200, 1.0, 0.94),
        ("correlated 0.8", 500, 1.0, 0.94),
    ],
)
def test_few_correlated_steps_have_no_interval(kind: str, steps: int, most_given: float, least_covered: float) -> None:
    """A small run of the benchmark, give or take three standard errors of 1200 traces."""
    figures = FEW_STEPS.cell(np.random.default_rng(2), FEW_STEPS.KINDS[kind], 1200, steps)
    assert figures["given"] <= most_given
    assert figures["wrong"] <= 0.05 + 0.019
    if least_covered:
        assert figures["given"] > 0.99
        assert least_covered - 0.021 <= figures["covered"] <= 0.97 + 0.015


def _width(estimate: Estimate) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    return (estimate.high - estimate.low) / estimate.value


def test_correlation_widens_the_interval() -> None:
    white, slow = (_mean_estimate(1 + 0.05 * _correlated(1, 800, phi)) for phi in (0.0, 0.9))
    assert _width(slow) > 2.5 * _width(white)
    assert correlation_steps(_correlated(1, 4000, 0.8)[None])[0] == pytest.approx(9, rel=0.3)  # (1 + 0.8) / (1 - 0.8)


def test_a_few_stalls_push_the_upper_end_up() -> None:
    values = np.ones(300) + 0.01 * _correlated(2, 300, 0.0)
    values[[40, 90, 200]] = 3.0
    estimate = _mean_estimate(values)
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.high - estimate.value > 1.5 * (estimate.value - estimate.low)


def test_a_drift_does_not_widen_the_interval() -> None:
    noise = 1 + 0.01 * _correlated(3, 400, 0.0)
    drifting = noise + np.linspace(-0.05, 0.05, 400)
    assert _width(_mean_estimate(drifting)) < 1.5 * _width(_mean_estimate(noise))


def test_little_data_says_so() -> None:
    one = _mean_estimate([2.0])
    assert (one.low, one.high, one.basis) == (None, None, "one sample")
    few = _mean_estimate([1.0, 2.0, 3.0])
    assert (few.low, few.high, few.needs) == (None, None, 200)
    assert few.basis == "3 samples are too few to see how they are correlated; about 190 are needed"
    same = _mean_estimate([1.0] * 500)
    assert (same.low, same.high, same.needs) == (None, None, None)
    assert same.basis == "all 500 samples are equal, as rounded times are"


def test_steps_that_vary_slowly_need_more_of_them() -> None:
    slow = _mean_estimate(1 + 0.05 * _correlated(1, 300, 0.95))
    assert (slow.low, slow.high) == (None, None)
    assert slow.needs is not None
    assert slow.needs > 300
    assert f"300 samples are too few for a correlation over about {slow.needs / 20:.0f}" in slow.basis
    assert _mean_estimate(1 + 0.05 * _correlated(1, 2000, 0.95)).low is not None
    assert _mean_estimate(1 + 0.05 * _correlated(1, 50, 0.0)).low is None
    assert _mean_estimate(1 + 0.05 * _correlated(1, 50, 0.0), steps_per_sample=10).low is not None  # 500 steps


def test_samples_that_are_not_numbers_are_refused() -> None:
    for wrong, message in (([], "no samples"), ([1.0, math.nan], "1 of 2 samples are not numbers")):
        with pytest.raises(ValueError, match=message):
            _mean_estimate(wrong)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=120))
def test_an_interval_holds_its_own_estimate(values: list[float]) -> None:
    interval = mean_interval(np.array(values))
    assert interval.low[0] <= interval.mean[0] * (1 + 1e-12)
    assert interval.high[0] >= interval.mean[0] * (1 - 1e-12)


def test_a_rate_is_samples_over_time() -> None:
    seconds = [0.1, 0.3] * 30
    assert rate_estimate(seconds, 8).value == pytest.approx(8 / 0.2)  # the mean of rates would be 53


def test_quantiles_of_t_between_whole_freedoms() -> None:
    assert t_quantiles(0.95, [1, 4, 60]) == pytest.approx([_t_quantile(0.95, f) for f in (1, 4, 60)])
    assert _t_quantile(0.95, 5) < float(t_quantiles(0.95, 4.5)) < _t_quantile(0.95, 4)
    assert float(t_quantiles(0.95, math.inf)) == pytest.approx(1.96, abs=0.001)


def test_the_interval_of_a_share_is_wilsons() -> None:
    """scipy.stats.binomtest(k, n).proportion_ci(method="wilson") is the judge."""
    stats = pytest.importorskip("scipy.stats")
    for hits, n in ((0, 10), (5, 10), (977, 1000), (50_000, 50_000)):
        judge = stats.binomtest(hits, n).proportion_ci(method="wilson")
        assert share_interval(hits, n) == pytest.approx((judge.low, judge.high), abs=1e-9)


def test_interval_of_a_share_by_the_textbook() -> None:
    """Wilson's: 8 of 10 is 0.490 to 0.943."""
    assert share_interval(8, 10) == pytest.approx((0.490, 0.943), abs=0.001)
    assert share_interval(0, 50)[0] == 0
    assert share_interval(50, 50)[1] == 1


@pytest.mark.parametrize(
    ("value", "half_width", "text"),
    [
        (4.424, 0.88, "4.4"),
        (189.3, 25.5, "190"),
        (9787.4, 12.0, "9,787"),
        (9787.4, 60.0, "9,790"),
        (530.7, 1900.0, "530"),
        (0.1234, 0.0004, "0.123"),
        (12.3456, 0.0, "12.3"),
        (0.0, 5.0, "0.0"),
    ],
)
def test_a_figure_has_the_digits_that_its_interval_supports(value: float, half_width: float, text: str) -> None:
    assert in_known_digits(value, half_width) == text


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
