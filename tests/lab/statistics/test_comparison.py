"""Comparisons of two speeds: how often they are right, and what they say about one run, several runs and rounds."""

import numpy as np
import pytest

from tests.conftest import load_benchmark
from vernier.lab.statistics.comparison import Trace, compare

COVERAGE = load_benchmark("promises/intervals")
FEW_RUNS = load_benchmark("promises/few_runs")


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


def _runs(values: list[float], rounds: bool = False) -> list[Trace]:
    return [Trace(step_s=(v,) * 20, round=str(i) if rounds else None) for i, v in enumerate(values)]


def test_equal_runs_are_no_certainty() -> None:
    """Neither the runs of one side nor differences within rounds that do not vary show how runs differ."""
    both = compare(_runs([1.0] * 3), _runs([1.1] * 2))
    assert (both.verdict, both.low, both.high, both.detectable) == ("cannot tell", None, None, None)
    assert "do not show how runs differ" in both.basis
    rounds = compare(_runs([1.0] * 3, rounds=True), _runs([1.1] * 3, rounds=True))
    assert (rounds.verdict, rounds.low) == ("cannot tell", None)
    borrowed = compare(_runs([1.0] * 3), _runs([1.1, 1.2, 1.05]))
    assert borrowed.low is not None
    assert compare([Trace(step_s=(1.0,) * 500)], [Trace(step_s=(1.1,) * 500)], single_runs=True).low is None


def test_few_steps_of_one_run_each_have_no_interval() -> None:
    few = compare([_trace(1, 1.0, n=100)], [_trace(2, 1.5, n=400)], single_runs=True)
    assert (few.verdict, few.low) == ("cannot tell", None)
    assert few.basis == "one run each: no interval, 100 steps of about 190 needed"


def test_a_missing_round_costs_one_round() -> None:
    weather, noise = [1.0, 1.3, 0.9, 1.1, 1.2], [0.0, 0.002, -0.001, 0.001, 0.0]
    a = _runs(weather, rounds=True)
    b = _runs([1.03 * w * (1 + e) for w, e in zip(weather, noise, strict=True)], rounds=True)
    whole, part = compare(a, b), compare(a, [t for t in b if t.round != "2"])
    assert (whole.verdict, part.verdict) == ("slower", "slower")
    assert part.basis == "differences within 4 rounds; 1 without a partner in its round left out"
    assert part.runs == (4, 4)
    alone = compare(a, [*b[:2], *_runs([1.0, 1.1, 1.2])])  # most of B has no round: nothing is paired
    assert alone.basis == "5 and 5 runs, differences between runs counted"


def test_power_is_what_is_printed() -> None:
    figures = FEW_RUNS.power(np.random.default_rng(6), 4000, (5, 5), rounds=False)
    assert 0.76 <= figures["detected"] <= 0.84
    two, five = (compare(_runs([1.0, 1.01] * n), _runs([1.0, 1.012] * n)).detectable for n in (1, 5))
    assert two is not None
    assert five is not None
    assert two > 3 * five


@pytest.mark.parametrize("design", [(3, 3), (3, 10), (2, 10), (1, 3), (1, 5)])
@pytest.mark.parametrize("law", FEW_RUNS.MORE_LAWS)
def test_unequal_numbers_of_skewed_runs_are_not_called_different_too_often(design: tuple[int, int], law: str) -> None:
    """At most 5.5 %, give or take three standard errors of 10,000 experiments."""
    calls = FEW_RUNS.false_calls(np.random.default_rng(8), FEW_RUNS.MORE_LAWS[law], 10_000, design)
    assert calls <= 0.055 + 0.0066


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
        "intervals": {"x": {"covered": 0.95, "n": 4000}},
        "median_covered": {},
        "same_called_different": {"y": {"share": 0.05, "n": 4000}},
        "slowdown_found": {"z": {"share": 0.97, "n": 4000}},
    }
    assert COVERAGE.failures(good) == []
    bad = {
        "intervals": {"x": {"covered": 0.90, "n": 4000}},
        "median_covered": {},
        "same_called_different": {"y": {"share": 0.07, "n": 4000}},
        "slowdown_found": {"z": {"share": 0.94, "n": 4000}},
    }
    assert len(COVERAGE.failures(bad)) == 3
