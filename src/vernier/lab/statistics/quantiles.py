"""Quantiles of samples in time order with their intervals; means are in `measure.estimates`."""

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from vernier.lab.records.bench import Latency
from vernier.measure.estimates import (
    CORRELATION_TIMES,
    FEWEST_SAMPLES,
    LEVEL,
    Floats,
    correlation_steps,
    estimate_of,
    mean_intervals,
    no_interval,
    row_of,
    summarize,
    t_quantiles,
)
from vernier.records.statistics import Estimate


def quantile_estimate(samples: Sequence[float] | Floats, q: float) -> Estimate:
    """A quantile (0 to 1) of samples in time order; an end of the interval beyond the samples is None."""
    row = row_of(samples)
    n, value = row.size, float(np.quantile(row, q))
    below, freedom = (row <= value).astype(np.float64), math.inf
    if n < FEWEST_SAMPLES:
        ranks, basis = _ranks_of_few(n, q), f"{n} samples taken for independent"
    else:
        error = math.sqrt(q * (1 - q) / n)
        if 0 < below.sum() < n:
            interval = mean_intervals(below[None])
            error, freedom = float(interval.error[0]), float(interval.freedom[0])
            # The larger one: zeros and ones usually show less of the correlation than the values themselves.
            steps = np.maximum(interval.correlation_steps, correlation_steps(row[None]))
            if CORRELATION_TIMES * steps[0] > n:
                needs = np.maximum(interval.needs, np.ceil(CORRELATION_TIMES * steps))
                return no_interval(value, n, interval._replace(correlation_steps=steps, needs=needs))
        half = float(t_quantiles(LEVEL, freedom)) * error
        # Ranks from 0, rounded outward: the interval is never narrower than its level requires.
        ranks = (math.floor((q - half) * n) - 1, math.ceil((q + half) * n))
        basis = "order statistics, correlation counted"
    ordered = np.sort(row)
    low, high = (float(ordered[r]) if 0 <= r < n else None for r in ranks)
    return estimate_of(value, low, high, n, basis)


def _ranks_of_few(n: int, q: float) -> tuple[int, int]:
    """Ranks, from 0, of the sorted independent samples that are the ends of a quantile's interval (exact binomial).

    -1 and n where even the smallest and the largest sample do not reach far enough.
    """
    at_most = list(accumulate(math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)))
    tail = (1 - LEVEL) / 2
    return sum(p <= tail for p in at_most) - 1, sum(p < 1 - tail for p in at_most)


_PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


def summarize_latency(latency_s: Sequence[float], *, of: str) -> Latency:
    """Summary of raw latencies in order, and percentiles with intervals; None for an end that too few samples show."""
    # Without at least one sample beyond it a percentile would be a guess.
    supported = [p for p in _PERCENTILES if len(latency_s) * (100 - p) >= 100]
    percentiles = {f"p{p:g}": quantile_estimate(latency_s, p / 100) for p in supported}
    return Latency(**vars(summarize(latency_s, unit="s", of=of)), percentiles=percentiles)
