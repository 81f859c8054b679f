"""Quantiles of samples in time order."""

import numpy as np
import pytest

from tests.measure.test_estimates import _correlated
from vernier.lab.statistics.quantiles import quantile_estimate, summarize_latency


def test_slow_variation_leaves_a_quantile_without_an_interval() -> None:
    assert quantile_estimate(1 + 0.05 * _correlated(1, 100, 0.95), 0.5).low is None


def test_a_quantile_beyond_the_samples_has_an_open_interval() -> None:
    values = np.arange(200.0)
    median, p99 = quantile_estimate(values, 0.5), quantile_estimate(np.random.default_rng(0).permutation(values), 0.99)
    assert median.value == 99.5
    assert p99.high is None  # two of 200 values are above: the interval is open


@pytest.mark.parametrize(("n", "ends"), [(5, (None, None)), (6, (0, 5)), (10, (1, 8)), (20, (5, 14))])
def test_the_median_of_few_samples_has_exact_ends(n: int, ends: tuple[int | None, int | None]) -> None:
    """The textbook's ranks (second smallest to second largest of ten); below six samples there is no 95 % interval."""
    estimate = quantile_estimate([float(i) for i in range(n)], 0.5)
    assert (estimate.low, estimate.high) == ends


def test_percentiles_come_from_raw_samples_and_not_beyond_them() -> None:
    latency = summarize_latency([(i * 83 % 151) / 1000 for i in range(1, 151)], of="query")
    assert latency.percentiles["p50"].value == pytest.approx(0.0755)
    assert set(latency.percentiles) == {"p50", "p90", "p95", "p99"}  # 150 samples cannot show the rarest thousandth
    assert latency.n == 150
    p99 = latency.percentiles["p99"]
    assert p99.low is not None
    assert p99.low < p99.value
