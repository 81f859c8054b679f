"""Comparisons of two speeds: how often they are right, and what they say about one run, several runs and rounds."""

import numpy as np
import pytest

from tests.conftest import load_benchmark
from vernier.measure.statistics.comparison import Trace, compare

COVERAGE = load_benchmark("promises/intervals")


def _trace(seed: int, mean: float, n: int = 400, **more: object) -> Trace:
    return Trace(
        step_s=tuple(mean * (1 + 0.03 * COVERAGE.correlated(np.random.default_rng(seed), (1, n), 0.5)[0])), **more
    )  # type: ignore[arg-type]


def test_comparing_one_run_several_runs_and_rounds() -> None:
    one = compare([_trace(1, 1.0)], [_trace(2, 1.05)], single_runs=True)
    assert (one.verdict, one.runs) == ("slower", (1, 1))
    assert "one run each" in one.basis
    several = compare([_trace(s, 1.0) for s in range(4)], [_trace(s, 0.95) for s in range(10, 14)])
    assert several.verdict == "faster"
    assert "runs, differences between runs counted" in several.basis
    uneven = compare([_trace(s, 1.0) for s in range(4)], [_trace(9, 1.1)])
    assert "taken to vary as the other" in uneven.basis
    assert uneven.verdict == "slower"
    weather = [1.0, 1.3, 0.9, 1.1]
    rounds = [
        [_trace(10 * side + s, w * f, n=2000, round=str(s)) for s, w in enumerate(weather)]
        for side, f in enumerate((1.0, 1.02))
    ]
    paired, loose = compare(*rounds), compare(*[[Trace(step_s=t.step_s) for t in side] for side in rounds])
    assert (paired.verdict, loose.verdict) == ("slower", "cannot tell")
    assert paired.basis == "differences within 4 rounds"


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        compare([], [_trace(1, 1.0)])
    with pytest.raises(ValueError, match="tolerance"):
        compare([_trace(1, 1.0)], [_trace(1, 1.0)], 2.0)
    with pytest.raises(ValueError, match="duration above 0"):
        Trace(step_s=(0.0,))


def test_batches_of_different_size_are_compared_by_samples() -> None:
    comparison = compare([_trace(1, 1.0, samples_per_step=32)], [_trace(2, 2.0, samples_per_step=64)])
    assert comparison.ratio == pytest.approx(1, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("design", ["runs", "rounds", "one run", "bench"])
def test_comparisons_are_right_as_often_as_they_say(design: str) -> None:
    """A small run of the benchmark: at most 6 % false calls, give or take three standard errors of 300 experiments."""
    kind, steps = COVERAGE.COMPARED["correlated 0.6, CV 5 %"], 2000 if design == "bench" else 500
    assert COVERAGE.call_rate(np.random.default_rng(4), kind, 300, steps, design, 0.0) <= 0.06 + 0.041
    if design != "one run":
        assert COVERAGE.call_rate(np.random.default_rng(5), kind, 300, steps, design, 0.02) >= 0.95 - 0.038


def test_the_benchmark_fails_where_a_bound_is_broken() -> None:
    good = {
        "intervals": {"x": {"covered": 0.95}},
        "median_covered": {},
        "same_called_different": {"y": 0.05},
        "slowdown_found": {"z": 0.97},
    }
    assert COVERAGE.failures(good) == []
    bad = {
        "intervals": {"x": {"covered": 0.90}},
        "median_covered": {},
        "same_called_different": {"y": 0.07},
        "slowdown_found": {"z": 0.94},
    }
    assert len(COVERAGE.failures(bad)) == 3
