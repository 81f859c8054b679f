"""Intervals and comparisons: how often they hold, and what they say about little or odd data."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.measure.study.test_analysis import benchmark
from vernier.measure.statistics.comparison import Trace, compare
from vernier.measure.statistics.estimates import (
    correlation_steps,
    drift_share,
    mean_estimate,
    quantile_estimate,
    rate_estimate,
    t_quantile,
    t_quantiles,
)


def _correlated(seed: int, n: int, phi: float) -> np.ndarray:
    return COVERAGE.correlated(np.random.default_rng(seed), (1, n), phi)[0]  # type: ignore[no-any-return]


COVERAGE = benchmark("coverage")


@pytest.mark.parametrize("kind", COVERAGE.KINDS)
def test_intervals_hold_as_often_as_they_say(kind: str) -> None:
    """A small run of the benchmark: 93 to 97 %, give or take three standard errors of 1200 traces."""
    found = COVERAGE.coverage(np.random.default_rng(4), COVERAGE.KINDS[kind], 1200, 500)
    assert 0.93 - 0.022 <= found["covered"] <= 0.97 + 0.015


@pytest.mark.parametrize("design", ["runs", "rounds", "one run", "bench"])
def test_comparisons_are_right_as_often_as_they_say(design: str) -> None:
    """A small run of the benchmark: at most 6 % false calls, give or take three standard errors of 300 experiments."""
    kind, steps = COVERAGE.COMPARED["correlated 0.6, CV 5 %"], 2000 if design == "bench" else 500
    assert COVERAGE.called(np.random.default_rng(4), kind, 300, steps, design, 0.0) <= 0.06 + 0.041
    if design != "one run":
        assert COVERAGE.called(np.random.default_rng(5), kind, 300, steps, design, 0.02) >= 0.95 - 0.038


def test_the_benchmark_fails_where_a_bound_is_broken() -> None:
    script = COVERAGE
    good = {
        "intervals": {"x": {"covered": 0.95}},
        "median_covered": {},
        "same_called_different": {"y": 0.05},
        "slowdown_found": {"z": 0.97},
    }
    assert script.failures(good) == []
    bad = {
        "intervals": {"x": {"covered": 0.90}},
        "median_covered": {},
        "same_called_different": {"y": 0.07},
        "slowdown_found": {"z": 0.94},
    }
    assert len(script.failures(bad)) == 3


def test_correlation_widens_the_interval() -> None:
    white, slow = (mean_estimate(1 + 0.05 * _correlated(1, 800, phi)) for phi in (0.0, 0.9))
    assert (slow.half_width_share or 0) > 2.5 * (white.half_width_share or 0)
    assert correlation_steps(_correlated(1, 4000, 0.8)[None])[0] == pytest.approx(9, rel=0.3)  # (1 + 0.8) / (1 - 0.8)


def test_a_few_stalls_push_the_upper_end_up() -> None:
    values = np.ones(300) + 0.01 * _correlated(2, 300, 0.0)
    values[[40, 90, 200]] = 3.0
    found = mean_estimate(values)
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.value > 1.5 * (found.value - found.low)


def test_a_drift_does_not_hide_the_precision_and_is_told() -> None:
    noise = 1 + 0.01 * _correlated(3, 400, 0.0)
    drifting = noise + np.linspace(-0.05, 0.05, 400)
    assert (mean_estimate(drifting).half_width_share or 1) < 1.5 * (mean_estimate(noise).half_width_share or 0)
    rise, certain = drift_share(drifting)
    assert (rise, certain) == (pytest.approx(0.10, abs=0.01), True)
    assert drift_share(noise)[1] is False


def test_little_data_says_so() -> None:
    one = mean_estimate([2.0])
    assert (one.low, one.high, one.basis) == (None, None, "one sample: no interval")
    few = mean_estimate([1.0, 2.0, 3.0])
    assert few.high == pytest.approx(2 + 4.302653 / math.sqrt(3))
    assert "taken for independent" in few.basis
    same = mean_estimate([1.0] * 50)
    assert (same.low, same.high) == (1.0, 1.0)
    for wrong, message in (([], "no samples"), ([1.0, math.nan], "1 of 2 samples are not numbers")):
        with pytest.raises(ValueError, match=message):
            mean_estimate(wrong)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=120))
def test_an_interval_holds_its_own_estimate(values: list[float]) -> None:
    found = mean_estimate(values)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value * (1 + 1e-12)
    assert found.high >= found.value * (1 - 1e-12)


def test_a_rate_is_samples_over_time() -> None:
    seconds = [0.1, 0.3] * 30
    assert rate_estimate(seconds, 8).value == pytest.approx(8 / 0.2)  # the mean of rates would be 53


def test_quantiles_know_what_they_cannot_know() -> None:
    values = np.arange(200.0)
    median, p99 = quantile_estimate(values, 0.5), quantile_estimate(np.random.default_rng(0).permutation(values), 0.99)
    assert median.value == 99.5
    assert p99.high is None  # two of 200 values are above: the interval is open


def test_quantiles_of_t_between_whole_freedoms() -> None:
    assert t_quantiles(0.95, [1, 4, 60]) == pytest.approx([t_quantile(0.95, f) for f in (1, 4, 60)])
    assert t_quantile(0.95, 5) < float(t_quantiles(0.95, 4.5)) < t_quantile(0.95, 4)
    assert float(t_quantiles(0.95, math.inf)) == pytest.approx(1.96, abs=0.001)


def _trace(seed: int, mean: float, n: int = 400, **more: object) -> Trace:
    return Trace(step_s=tuple(mean * (1 + 0.03 * _correlated(seed, n, 0.5))), **more)  # type: ignore[arg-type]


def test_comparing_one_run_several_runs_and_rounds() -> None:
    one = compare([_trace(1, 1.0)], [_trace(2, 1.05)])
    assert (one.verdict, one.runs) == ("slower", (1, 1))
    assert "one run each" in one.basis
    several = compare([_trace(s, 1.0) for s in range(4)], [_trace(s, 0.95) for s in range(10, 14)])
    assert several.verdict == "faster"
    assert "runs, differences between runs counted" in several.basis
    uneven = compare([_trace(s, 1.0) for s in range(4)], [_trace(9, 1.1)])
    assert "taken to vary as the other" in uneven.basis
    assert uneven.verdict == "slower"
    weather = [1.0, 1.3, 0.9, 1.1]
    rounds = [[_trace(s, w * f, round=s) for s, w in enumerate(weather)] for f in (1.0, 1.02)]
    paired, loose = compare(*rounds), compare(*[[Trace(step_s=t.step_s) for t in side] for side in rounds])
    assert (paired.verdict, loose.verdict) == ("slower", "cannot tell")
    assert paired.basis == "differences within 4 rounds"


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        compare([], [_trace(1, 1.0)])
    with pytest.raises(ValueError, match="tolerance"):
        compare([_trace(1, 1.0)], [_trace(1, 1.0)], 2.0)
    with pytest.raises(ValueError, match="each of which took time"):
        Trace(step_s=(0.0,))


def test_batches_of_different_size_are_compared_by_samples() -> None:
    found = compare([_trace(1, 1.0, samples_per_step=32)], [_trace(2, 2.0, samples_per_step=64)])
    assert found.ratio == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("n", "ends"), [(5, (None, None)), (6, (0, 5)), (10, (1, 8)), (20, (5, 14))])
def test_the_median_of_few_samples_has_exact_ends(n: int, ends: tuple[int | None, int | None]) -> None:
    """The textbook's ranks (second smallest to second largest of ten); below six samples there is no 95 % interval."""
    found = quantile_estimate([float(i) for i in range(n)], 0.5)
    assert (found.low, found.high) == ends
