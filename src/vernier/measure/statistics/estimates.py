"""Estimates with 95 % intervals that are valid for autocorrelated, heavy-tailed, drifting step times.

Samples are not assumed to be independent. A smooth trend (second degree) is removed, and the long-run variance is the
mean square of the slowest remaining cosine components. How many components are averaged follows from the measured
autocorrelation time; Student's t with that many degrees of freedom (fewer when the tails are heavy) gives the width,
and Hall's transformation corrects for skewness: a few slow steps raise the upper end. `benchmarks/coverage.py` measures
how often such intervals hold.

Functions of `Floats` work on rows, so that thousands of traces are one call. Nothing here has units: see
`summary_checks`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vernier.records.statistics import Estimate

METHOD = "vernier-stats-1"
LEVEL = 0.95
FEWEST_CORRELATED = 30
_TREND_DEGREE = 2
_SPECTRAL_BIAS = 0.06

Floats = npt.NDArray[np.float64]


# ---------------------------------------------------------------------------------------------------------- Student's t
# scipy.stats.t does the same, but scipy is not a dependency; these agree with published tables.


def t_two_sided(t: float, freedom: int) -> float:
    """Probability that Student's t with whole degrees of freedom lies within +-t, by a finite, exact series."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2 == 1
    term, total = cosine if odd else 1.0, 0.0
    for k in range((freedom - 1) // 2 if odd else freedom // 2):
        total += term
        term *= cosine * cosine * ((2 * k + 2) / (2 * k + 3) if odd else (2 * k + 1) / (2 * k + 2))
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@lru_cache(maxsize=1024)
def t_quantile(level: float, freedom: int) -> float:
    """The t such that a share `level` of Student's distribution lies within +-t."""
    low, high = 0.0, 1.0
    while t_two_sided(high, freedom) < level:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, freedom) < level else (low, middle)
    return high


@lru_cache(maxsize=8)
def _t_table(level: float) -> tuple[Floats, Floats]:
    freedoms = [10_000, 300, 120, *range(60, 0, -1)]
    return np.array([1 / f for f in freedoms]), np.array([t_quantile(level, f) for f in freedoms])


def t_quantiles(level: float, freedom: npt.ArrayLike) -> Floats:
    """`t_quantile` for any degrees of freedom, not only whole ones; below 1 they count as 1."""
    inverse, values = _t_table(level)
    return np.interp(1 / np.maximum(np.asarray(freedom, np.float64), 1.0), inverse, values)


# --------------------------------------------------------------------------------------------------- correlated samples


class Intervals(NamedTuple):
    """Per row: the mean, its 95 % interval and standard error, degrees of freedom, and the autocorrelation time."""

    mean: Floats
    low: Floats
    high: Floats
    error: Floats
    freedom: Floats
    correlation_steps: Floats


@lru_cache(maxsize=8)
def _bases(n: int) -> tuple[Floats, Floats]:
    """Orthonormal columns over n samples: the smooth trend (without the constant), and cosines orthogonal to it."""
    count = max(4, int(0.4 * n ** (2 / 3)))
    position = (np.arange(n) + 0.5) / n
    powers = np.vander(position - 0.5, _TREND_DEGREE + 1, increasing=True)
    cosines = np.cos(np.pi * np.outer(position, np.arange(1, count + _TREND_DEGREE + 1)))
    columns, _ = np.linalg.qr(np.column_stack([powers, cosines]))
    return columns[:, 1 : _TREND_DEGREE + 1], columns[:, _TREND_DEGREE + 1 :][:, :count]


def correlation_steps(rows: Floats) -> Floats:
    """Autocorrelation time in samples, 1 + 2 sum of autocorrelations: 1 for white noise.

    The sum is cut where it no longer grows faster than its noise (Sokal's window), after the trend is taken out.
    """
    count, n = rows.shape
    trend, _ = _bases(n)
    centred = rows - rows.mean(1, keepdims=True)
    residual = centred - (centred @ trend) @ trend.T
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(residual, size, axis=1)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), size, axis=1)[:, : max(2, n // 2)]
    variance = np.where(covariance[:, :1] > 0, covariance[:, :1], 1.0)
    summed = 1 + 2 * np.cumsum(covariance[:, 1:] / variance, axis=1)
    enough = np.arange(1, summed.shape[1] + 1) >= 5 * summed
    cut = np.where(enough.any(1), enough.argmax(1), summed.shape[1] - 1)
    steps: Floats = np.maximum(summed[np.arange(count), cut], 1.0)
    steps *= 1 + 12 * steps / n  # the fitted trend hides some of the correlation
    return steps


def mean_intervals(rows: Floats) -> Intervals:
    """The mean of each row; a row has at least FEWEST_CORRELATED samples in time order."""
    count, n = rows.shape
    steps = correlation_steps(rows)
    likeness = np.clip((steps - 1) / (steps + 1), 1e-3, 0.999)
    _, cosines = _bases(n)
    best_terms = (n * (1 - likeness) / np.pi * np.sqrt(_SPECTRAL_BIAS / likeness)).astype(int)
    terms = np.clip(best_terms, 4, cosines.shape[1])
    mean = rows.mean(1)
    power = np.cumsum(((rows - mean[:, None]) @ cosines) ** 2, axis=1)
    error = np.sqrt(power[np.arange(count), terms - 1] / terms / n)
    skew, tails = _shape_of_mean(rows, steps)
    freedom = 1 / (1 / terms + np.maximum(tails, 0) / 2)
    width = t_quantiles(LEVEL, freedom)
    low, high = (mean - error * _hall(skew, u) for u in (width, -width))
    return Intervals(mean, np.minimum(low, mean), np.maximum(high, mean), error, freedom, steps)


def _shape_of_mean(rows: Floats, steps: Floats) -> tuple[Floats, Floats]:
    """Skewness and excess kurtosis of each row's mean, from batch means over twice the autocorrelation time."""
    n = rows.shape[1]
    batches = np.clip((n / np.maximum(2 * steps, 1)).astype(int), 10, n)
    skew, tails = np.zeros(len(rows)), np.zeros(len(rows))
    for number in np.unique(batches):
        chosen, length = batches == number, n // number
        values = rows[chosen][:, : length * number].reshape(-1, number, length).mean(2)
        off = values - values.mean(1, keepdims=True)
        variance = (off**2).mean(1)
        safe = np.where(variance > 0, variance, 1.0)
        skew[chosen] = (off**3).mean(1) / safe**1.5 / math.sqrt(number)
        tails[chosen] = ((off**4).mean(1) / safe**2 - 3) / number
    return skew, tails


def _hall(skew: Floats, u: Floats) -> Floats:
    """Inverse of Hall's cubic transformation: Student's quantile `u` corrected for a mean of this skewness."""
    a = np.where(np.abs(skew) < 1e-6, 1e-6, skew)
    corrected: Floats = 3 / a * (np.cbrt(1 + a * (u - a / 6)) - 1)
    return corrected


# --------------------------------------------------------------------------------------------------- one set of samples


def _row(samples: Sequence[float] | Floats) -> Floats:
    row = np.asarray(samples, np.float64)
    if row.ndim != 1 or not row.size:
        raise ValueError("no samples")
    if not np.isfinite(row).all():
        raise ValueError(f"{int((~np.isfinite(row)).sum())} of {row.size} samples are not numbers")
    return row


def mean_interval(row: Floats) -> Intervals:
    """The interval of one row of two samples or more: fewer than FEWEST_CORRELATED are taken for independent."""
    n = row.size
    if n >= FEWEST_CORRELATED:
        return mean_intervals(row[None])
    mean, error = float(row.mean()), float(row.std(ddof=1)) / math.sqrt(n)
    half = t_quantile(LEVEL, n - 1) * error
    return Intervals(*(np.array([v], np.float64) for v in (mean, mean - half, mean + half, error, n - 1, 1.0)))


def mean_estimate(samples: Sequence[float] | Floats) -> Estimate:
    """The mean of samples in time order; `basis` tells whether they were taken for independent."""
    row = _row(samples)
    n, mean = row.size, float(row.mean())
    if n == 1:
        return _estimate(mean, None, None, n, "one sample: no interval")
    interval = mean_interval(row)
    basis = f"correlation over {interval.correlation_steps[0]:.1f} samples, heavy tails and drift counted"
    if n < FEWEST_CORRELATED:
        basis = f"{n} samples taken for independent"
    return _estimate(mean, float(interval.low[0]), float(interval.high[0]), n, basis)


def _estimate(value: float, low: float | None, high: float | None, n: int, basis: str) -> Estimate:
    return Estimate(value=value, low=low, high=high, n=n, basis=basis, method=METHOD)


def rate_estimate(seconds: Sequence[float] | Floats, samples_per_step: float) -> Estimate:
    """Samples per second over steps: samples / mean step time, never a mean of rates."""
    time = mean_estimate(seconds)
    low, high = (None if x is None or x <= 0 else samples_per_step / x for x in (time.high, time.low))
    return replace(time, value=samples_per_step / time.value, low=low, high=high)


def quantile_estimate(samples: Sequence[float] | Floats, q: float) -> Estimate:
    """A quantile (0 to 1) of samples in time order; an end of the interval beyond the samples is None."""
    row = _row(samples)
    n, value = row.size, float(np.quantile(row, q))
    below, freedom = (row <= value).astype(np.float64), math.inf
    if n < FEWEST_CORRELATED:
        ranks, basis = _ranks_of_few(n, q), f"{n} samples taken for independent"
    else:
        error = math.sqrt(q * (1 - q) / n)
        if 0 < below.sum() < n:
            interval = mean_intervals(below[None])
            error, freedom = float(interval.error[0]), float(interval.freedom[0])
        half = float(t_quantiles(LEVEL, freedom)) * error
        ranks = (math.floor((q - half) * n) - 1, math.ceil((q + half) * n))
        basis = "order statistics, correlation counted"
    ordered = np.sort(row)
    low, high = (float(ordered[r]) if 0 <= r < n else None for r in ranks)
    return _estimate(value, low, high, n, basis)


def _ranks_of_few(n: int, q: float) -> tuple[int, int]:
    """Ranks, from 0, of the sorted independent samples that are the ends of a quantile's interval (exact binomial).

    -1 and n where even the smallest and the largest sample do not reach far enough.
    """
    at_most = list(accumulate(math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)))
    tail = (1 - LEVEL) / 2
    return sum(p <= tail for p in at_most) - 1, sum(p < 1 - tail for p in at_most)


def share_interval(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, from `hits` of `n` independent trials."""
    z, share = NormalDist().inv_cdf((1 + LEVEL) / 2), hits / n
    centre, room = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, (centre - room) / (1 + z * z / n)), min(1.0, (centre + room) / (1 + z * z / n))


def in_known_digits(value: float, half_width: float) -> str:
    """A value in the digits that its interval supports: one or two of the half width, and always two of its own."""
    if half_width <= 0 or value <= 0:
        return f"{value:,.1f}"
    decimals = min(3, max(-math.floor(math.log10(half_width / 2)), 1 - math.floor(math.log10(value))))
    return f"{round(value, decimals):,.{max(0, decimals)}f}"
