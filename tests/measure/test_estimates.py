"""Estimates: how often their intervals hold, and what they say about little or odd data."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import load_benchmark
from vernier.measure.estimates import (
    correlation_steps,
    in_known_digits,
    mean_estimate,
    mean_interval,
    quantile_estimate,
    rate_estimate,
    share_interval,
    t_quantile,
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
    white, slow = (mean_estimate(1 + 0.05 * _correlated(1, 800, phi)) for phi in (0.0, 0.9))
    assert _width(slow) > 2.5 * _width(white)
    assert correlation_steps(_correlated(1, 4000, 0.8)[None])[0] == pytest.approx(9, rel=0.3)  # (1 + 0.8) / (1 - 0.8)


def test_a_few_stalls_push_the_upper_end_up() -> None:
    values = np.ones(300) + 0.01 * _correlated(2, 300, 0.0)
    values[[40, 90, 200]] = 3.0
    estimate = mean_estimate(values)
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.high - estimate.value > 1.5 * (estimate.value - estimate.low)


def test_a_drift_does_not_widen_the_interval() -> None:
    noise = 1 + 0.01 * _correlated(3, 400, 0.0)
    drifting = noise + np.linspace(-0.05, 0.05, 400)
    assert _width(mean_estimate(drifting)) < 1.5 * _width(mean_estimate(noise))


def test_little_data_says_so() -> None:
    one = mean_estimate([2.0])
    assert (one.low, one.high, one.basis) == (None, None, "one sample")
    few = mean_estimate([1.0, 2.0, 3.0])
    assert (few.low, few.high, few.needs) == (None, None, 200)
    assert few.basis == "3 samples are too few to see how they are correlated; about 200 are needed"
    same = mean_estimate([1.0] * 500)
    assert (same.low, same.high, same.needs) == (None, None, None)
    assert same.basis == "all 500 samples are equal, as rounded times are"


def test_steps_that_vary_slowly_need_more_of_them() -> None:
    slow = mean_estimate(1 + 0.05 * _correlated(1, 300, 0.95))
    assert (slow.low, slow.high) == (None, None)
    assert slow.needs is not None
    assert slow.needs > 300
    assert f"300 samples are too few for a correlation over about {slow.needs / 20:.0f}" in slow.basis
    assert mean_estimate(1 + 0.05 * _correlated(1, 2000, 0.95)).low is not None
    assert mean_estimate(1 + 0.05 * _correlated(1, 50, 0.0)).low is None
    assert mean_estimate(1 + 0.05 * _correlated(1, 50, 0.0), steps_per_sample=10).low is not None  # 500 steps
    assert quantile_estimate(1 + 0.05 * _correlated(1, 100, 0.95), 0.5).low is None


def test_samples_that_are_not_numbers_are_refused() -> None:
    for wrong, message in (([], "no samples"), ([1.0, math.nan], "1 of 2 samples are not numbers")):
        with pytest.raises(ValueError, match=message):
            mean_estimate(wrong)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=120))
def test_an_interval_holds_its_own_estimate(values: list[float]) -> None:
    interval = mean_interval(np.array(values))
    assert interval.low[0] <= interval.mean[0] * (1 + 1e-12)
    assert interval.high[0] >= interval.mean[0] * (1 - 1e-12)


def test_a_rate_is_samples_over_time() -> None:
    seconds = [0.1, 0.3] * 30
    assert rate_estimate(seconds, 8).value == pytest.approx(8 / 0.2)  # the mean of rates would be 53


def test_a_quantile_beyond_the_samples_has_an_open_interval() -> None:
    values = np.arange(200.0)
    median, p99 = quantile_estimate(values, 0.5), quantile_estimate(np.random.default_rng(0).permutation(values), 0.99)
    assert median.value == 99.5
    assert p99.high is None  # two of 200 values are above: the interval is open


def test_quantiles_of_t_between_whole_freedoms() -> None:
    assert t_quantiles(0.95, [1, 4, 60]) == pytest.approx([t_quantile(0.95, f) for f in (1, 4, 60)])
    assert t_quantile(0.95, 5) < float(t_quantiles(0.95, 4.5)) < t_quantile(0.95, 4)
    assert float(t_quantiles(0.95, math.inf)) == pytest.approx(1.96, abs=0.001)


@pytest.mark.parametrize(("n", "ends"), [(5, (None, None)), (6, (0, 5)), (10, (1, 8)), (20, (5, 14))])
def test_the_median_of_few_samples_has_exact_ends(n: int, ends: tuple[int | None, int | None]) -> None:
    """The textbook's ranks (second smallest to second largest of ten); below six samples there is no 95 % interval."""
    estimate = quantile_estimate([float(i) for i in range(n)], 0.5)
    assert (estimate.low, estimate.high) == ends


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
