"""Intervals over few independent runs."""

import numpy as np
import pytest

from tests.conftest import load_benchmark
from vernier.lab.statistics.runs import mean_of_runs, reach_of_one, runs_to_see

FEW_RUNS = load_benchmark("promises/few_runs")


@pytest.mark.parametrize("law", FEW_RUNS.LAWS)
@pytest.mark.parametrize("processes", [2, 5, 10, 30])
def test_intervals_hold_for_normal_and_for_skewed_processes(law: str, processes: int) -> None:
    """A small run of the benchmark: 94 to 96 %, give or take a standard error of 20,000 sets."""
    figures = FEW_RUNS.covered(np.random.default_rng(3), FEW_RUNS.LAWS[law], 20_000, processes)
    assert 0.9385 <= figures["covered"] <= 0.9615


def test_an_interval_reaches_further_towards_slow() -> None:
    mean, low, high = mean_of_runs(np.array([[0.0, 0.01, 0.02]]))
    assert mean[0] == pytest.approx(0.01)
    assert high[0] - mean[0] == pytest.approx(1.996 * 4.302653 * 0.01 / 3**0.5, rel=1e-5)
    assert mean[0] - low[0] == pytest.approx(0.796 * 4.302653 * 0.01 / 3**0.5, rel=1e-5)


def test_processes_that_are_equal_have_no_interval() -> None:
    _, low, high = mean_of_runs(np.zeros((1, 4)))
    assert (low[0], high[0]) == (-np.inf, np.inf)


def test_the_factors_fade_with_the_number_of_runs() -> None:
    factors = [reach_of_one(n) for n in (3, 7, 30, 1000)]
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] == pytest.approx(1.0, abs=0.01)


def test_what_few_processes_do_not_show() -> None:
    assert runs_to_see(0.1) == 29
    assert (1 - 0.1) ** 29 < 0.05 < (1 - 0.1) ** 28
