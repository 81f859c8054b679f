"""Estimates with 95 % intervals that are valid for autocorrelated, heavy-tailed, drifting step times.

Samples are not assumed to be independent. A smooth trend (second degree) is removed, and the long-run variance is the
mean square of the slowest remaining cosine components. How many components are averaged follows from the measured
autocorrelation time; Student's t with that many degrees of freedom (fewer when the tails are heavy) gives the width,
and Hall's transformation corrects for skewness: a few slow steps raise the upper end. Too few samples for their
correlation have no interval; `needs` says how many would. `benchmarks/coverage.py` measures how often intervals hold.
Runs and processes, which are independent of each other, are in `runs`.

Functions of `Floats` work on rows, so that thousands of traces are one call. Only a summary
(`summarize`) has a unit; tests hold every summary to the inequalities of `benchmarks/table_checks.py`, which any set of
numbers satisfies.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vernier.records.statistics import Estimate, SampleSummary

from .student import t_limit

METHOD = "vernier-stats-2"
"""2: no interval where samples are too few for their correlation; runs that differ by a skewed law."""
LEVEL = 0.95
FEWEST_STEPS = 190
"""Fewer steps cannot show how they are correlated: a machine that changes its speed every 25 steps may not have.

Two epochs of 100 iterations, as in NVIDIA's logs, have 197 without the warm-up."""
FEWEST_SAMPLES = 30
"""Fewer samples have no interval even where each is the mean of many steps."""
CORRELATION_TIMES = 20
"""An interval needs so many times the autocorrelation time."""
_TREND_DEGREE = 2  # a machine that warms up or slows down is not noise: its trend must not widen the interval
_FEWEST_TERMS = 6
_SPECTRAL_BIAS = 0.12  # fraction by which the spectrum may fall up to the last cosine that is averaged
_UNCERTAIN_CORRELATION = 0.25
"""Share by which an interval from the fewest correlation times is widened: their own estimate is uncertain."""

Floats = npt.NDArray[np.float64]


# ---------------------------------------------------------------------------------------------------------- Student's t


def _t_quantile(level: float, freedom: float) -> float:
    """The t such that a share `level` of Student's distribution lies within +-t."""
    return t_limit((1 - level) / 2, freedom)


@lru_cache(maxsize=8)
def _t_table(level: float) -> tuple[Floats, Floats]:
    # Quantiles are nearly linear in 1 / freedom. Falling, since np.interp needs rising 1 / freedom.
    freedoms = [10_000, 300, 120, *range(60, 0, -1)]
    return np.array([1 / f for f in freedoms]), np.array([_t_quantile(level, f) for f in freedoms])


def t_quantiles(level: float, freedom: npt.ArrayLike) -> Floats:
    """`_t_quantile` for any degrees of freedom, not only whole ones; below 1 they count as 1."""
    inverse, values = _t_table(level)
    return np.interp(1 / np.maximum(np.asarray(freedom, np.float64), 1.0), inverse, values)


# --------------------------------------------------------------------------------------------------- correlated samples


class Intervals(NamedTuple):
    """Per row: the mean, its 95 % interval and standard error, degrees of freedom, and the autocorrelation time.

    `needs` is how many samples an interval needs: where a row has fewer, its interval holds less often than it says.
    """

    mean: Floats
    low: Floats
    high: Floats
    error: Floats
    freedom: Floats
    correlation_steps: Floats
    needs: Floats
    n: int


@lru_cache(maxsize=8)
def _bases(n: int) -> tuple[Floats, Floats]:
    """Orthonormal columns over n samples: the smooth trend (without the constant), and cosines orthogonal to it."""
    count = max(4, int(0.4 * n ** (2 / 3)))
    position = (np.arange(n) + 0.5) / n
    powers = np.vander(position - 0.5, _TREND_DEGREE + 1, increasing=True)
    cosines = np.cos(np.pi * np.outer(position, np.arange(1, count + _TREND_DEGREE + 1)))
    # The order matters: QR makes each column orthogonal to those before it, so the trend must come first.
    columns, _ = np.linalg.qr(np.column_stack([powers, cosines]))
    return columns[:, 1 : _TREND_DEGREE + 1], columns[:, _TREND_DEGREE + 1 :][:, :count]


def correlation_steps(rows: Floats) -> Floats:
    """Autocorrelation time in samples, 1 + 2 sum of autocorrelations: 1 for white noise.

    Correlations are taken to decay by one factor from each lag to the next, as those of a slow component in white noise
    do; the first three, without a linear trend and corrected for its bias, give both. The larger of two estimates
    counts: with white noise beside the slow component, and without.
    """
    n = rows.shape[1]
    position = np.linspace(-1.0, 1.0, n)
    centred = rows - rows.mean(1, keepdims=True)
    centred = centred - np.outer(centred @ position / (position @ position), position)
    variance = (centred**2).sum(1)
    safe = np.where(variance > 0, variance, 1.0)
    r1, r2, r3 = ((centred[:, :-k] * centred[:, k:]).sum(1) / safe * n / (n - k) for k in (1, 2, 3))
    # Removing a line lowers a correlation r1 by (2 + 4 r1) / n on average; this is solved for r1.
    r1 = (n * r1 + 2) / (n - 4)
    r2, r3 = r2 + (2 + 4 * r1) / n, r3 + (2 + 4 * r1) / n
    first = np.clip(r1, 0.0, 0.995)
    # The sum of three correlations of white noise has the standard error sqrt(3 / n). Below 2.5 of them the decay is
    # a ratio of noise to noise, and the first correlation is used in its place.
    clear = r1 + r2 + r3 > 2.5 * math.sqrt(3 / n)
    decay = np.clip(np.where(clear, (r2 + r3) / np.maximum(r1 + r2, 1e-3), first), first, 0.99)
    steps: Floats = np.maximum((1 + first) / (1 - first), 1 + 2 * first / (1 - decay))
    return steps


def mean_intervals(rows: Floats, fewest: int = FEWEST_STEPS) -> Intervals:
    """The mean of each row; a row has at least FEWEST_SAMPLES samples in time order, and needs `fewest` or more."""
    count, n = rows.shape
    steps = correlation_steps(rows)
    # The lag-1 correlation of a first-order autoregression with this autocorrelation time. Its spectrum falls by about
    # likeness * w^2 / (1 - likeness)^2 up to frequency w; `best_terms` is the cosine at which that is _SPECTRAL_BIAS.
    likeness = np.clip((steps - 1) / (steps + 1), 1e-3, 0.999)
    _, cosines = _bases(n)
    best_terms = (n * (1 - likeness) / np.pi * np.sqrt(_SPECTRAL_BIAS / likeness)).astype(int)
    terms = np.minimum(np.maximum(best_terms, _FEWEST_TERMS), cosines.shape[1])
    mean = rows.mean(1)
    power = np.cumsum(((rows - mean[:, None]) @ cosines) ** 2 * _fall_of_spectrum(likeness, cosines), axis=1)
    error = np.sqrt(power[np.arange(count), terms - 1] / terms / n)
    error *= 1 + _UNCERTAIN_CORRELATION * (CORRELATION_TIMES * steps / n) ** 2
    skew, tails = _shape_of_mean(rows, steps)
    # Relative variance of a variance: 2 / terms from the number of cosines, plus the excess kurtosis of the mean.
    freedom = 1 / (1 / terms + np.maximum(tails, 0) / 2)
    width = t_quantiles(LEVEL, freedom)
    # The upper quantile gives the lower end; strong skewness may move an end past the mean, hence the clamps below.
    low, high = (mean - error * _hall(skew, u) for u in (width, -width))
    needs = np.where(np.ptp(rows, axis=1) > 0, np.maximum(fewest, np.ceil(CORRELATION_TIMES * steps)), np.inf)
    return Intervals(mean, np.minimum(low, mean), np.maximum(high, mean), error, freedom, steps, needs, n)


def _fall_of_spectrum(likeness: Floats, cosines: Floats) -> Floats:
    """By how much less power each cosine has than the mean, where neighbours are alike by this much; per row."""
    n, count = cosines.shape
    # The trend takes the first two cosines nearly whole, so that column k mostly holds cosine k + 1 + _TREND_DEGREE.
    fast = np.cos(np.pi * (np.arange(count) + 1 + _TREND_DEGREE) / n)
    alike = likeness[:, None]
    ratio: Floats = (1 - 2 * alike * fast + alike**2) / (1 - alike) ** 2
    return ratio


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
    # Without skewness the result is u, but 0 / 0 here. cbrt has a real root of negative numbers; ** (1 / 3) is NaN.
    a = np.where(np.abs(skew) < 1e-6, 1e-6, skew)
    corrected: Floats = 3 / a * (np.cbrt(1 + a * (u - a / 6)) - 1)
    return corrected


# --------------------------------------------------------------------------------------------------- one set of samples


def row_of(samples: Sequence[float] | Floats) -> Floats:
    row = np.asarray(samples, np.float64)
    if row.ndim != 1 or not row.size:
        raise ValueError("no samples")
    if not np.isfinite(row).all():
        raise ValueError(f"{int((~np.isfinite(row)).sum())} of {row.size} samples are not numbers")
    return row


def fewest_samples(steps_per_sample: float) -> int:
    """How many samples an interval needs at least, where each is the mean of so many steps."""
    return max(FEWEST_SAMPLES, math.ceil(FEWEST_STEPS / steps_per_sample))


def mean_interval(row: Floats, fewest: int = FEWEST_STEPS) -> Intervals:
    """The interval of one row of two samples or more; below FEWEST_SAMPLES as if they were independent, for a guess."""
    n = row.size
    if n >= FEWEST_SAMPLES:
        return mean_intervals(row[None], fewest)
    mean, error = float(row.mean()), float(row.std(ddof=1)) / math.sqrt(n)
    half = _t_quantile(LEVEL, n - 1) * error
    needs = max(FEWEST_SAMPLES, fewest) if error > 0 else math.inf
    value, low, high, of_mean, freedom, steps, needed = np.array(
        [[v] for v in (mean, mean - half, mean + half, error, n - 1, 1.0, needs)]
    )
    return Intervals(value, low, high, of_mean, freedom, steps, needed, n)


def _mean_estimate(samples: Sequence[float] | Floats, steps_per_sample: float = 1.0) -> Estimate:
    """The mean of samples in time order; without an interval `basis` says why, and `needs` how many it needs."""
    row = row_of(samples)
    n, mean = row.size, float(row.mean())
    if n == 1:
        return estimate_of(mean, None, None, n, "one sample")
    interval = mean_interval(row, fewest_samples(steps_per_sample))
    if interval.needs[0] > n:
        return no_interval(mean, n, interval)
    basis = f"correlation over {interval.correlation_steps[0]:.1f} samples, heavy tails and drift counted"
    return estimate_of(mean, float(interval.low[0]), float(interval.high[0]), n, basis)


def no_interval(mean: float, n: int, interval: Intervals) -> Estimate:
    if not math.isfinite(interval.needs[0]):
        return estimate_of(mean, None, None, n, f"all {n:,} samples are equal, as rounded times are")
    needs, steps = int(interval.needs[0]), float(interval.correlation_steps[0])
    if needs == math.ceil(CORRELATION_TIMES * steps):
        why = f"{n:,} samples are too few for a correlation over about {steps:.0f}"
    else:
        why = f"{n:,} samples are too few to see how they are correlated"
    return replace(estimate_of(mean, None, None, n, f"{why}; about {needs:,} are needed"), needs=needs)


def estimate_of(value: float, low: float | None, high: float | None, n: int, basis: str) -> Estimate:
    return Estimate(value=value, low=low, high=high, n=n, basis=basis, method=METHOD)


def rate_estimate(
    seconds: Sequence[float] | Floats, samples_per_step: float, steps_per_sample: float = 1.0
) -> Estimate:
    """Samples per second over steps: samples / mean step time, never a mean of rates."""
    time = _mean_estimate(seconds, steps_per_sample)
    low, high = (None if x is None or x <= 0 else samples_per_step / x for x in (time.high, time.low))
    return replace(time, value=samples_per_step / time.value, low=low, high=high)


def share_interval(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, from `hits` of `n` independent trials."""
    z, share = NormalDist().inv_cdf((1 + LEVEL) / 2), hits / n
    centre, room = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, (centre - room) / (1 + z * z / n)), min(1.0, (centre + room) / (1 + z * z / n))


def in_known_digits(value: float, half_width: float) -> str:
    """A value in the digits that its interval supports: one or two of the half width, and always two of its own."""
    if half_width <= 0 or value <= 0:
        return f"{value:,.1f}"
    # Halved: the half width is then 2 to 20 units of the last digit shown.
    decimals = min(3, max(-math.floor(math.log10(half_width / 2)), 1 - math.floor(math.log10(value))))
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


def summarize(samples: Sequence[float] | Floats, *, unit: str, of: str) -> SampleSummary:
    """The summary of raw samples in time order; `of` says what one sample is. Raises ValueError without a unit."""
    if not unit.strip() or not of.strip():
        raise ValueError("a summary names its unit and what one value is")
    estimate = _mean_estimate(samples)
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
