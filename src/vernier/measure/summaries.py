"""Summarizes samples: moments, percentiles, and the interval of the mean.

Tests hold every summary to the inequalities of `benchmarks/table_checks.py`, which any set of numbers satisfies.
"""

from collections.abc import Sequence

import numpy as np

from vernier.records.statistics import SampleSummary

from .estimates import METHOD, Floats, mean_estimate


def summarize(samples: Sequence[float] | Floats, *, unit: str, of: str) -> SampleSummary:
    """The summary of raw samples in time order; `of` says what one sample is. Raises ValueError without a unit."""
    if not unit.strip() or not of.strip():
        raise ValueError("a summary names its unit and what one value is")
    estimate = mean_estimate(samples)
    row = np.asarray(samples, np.float64)
    sd = float(row.std(ddof=1)) if row.size > 1 else 0.0
    ends = float(row.min()), float(row.max())
    mean = min(max(estimate.value, ends[0]), ends[1])  # the sum of equal values may be rounded past them
    low, high = estimate.low, estimate.high
    p5, p95, p99 = np.percentile(row, [5, 95, 99]).tolist()
    return SampleSummary(
        unit=unit,
        of=of,
        n=row.size,
        mean=mean,
        median=float(np.median(row)),
        sd=sd,
        min=ends[0],
        max=ends[1],
        low=None if low is None else min(low, mean),
        high=None if high is None else max(high, mean),
        basis=estimate.basis,
        method=METHOD,
        p5=p5,
        p95=p95,
        p99=p99,
        cv=sd / mean if mean > 0 else None,
    )
