"""Splits the variance of a study into that between devices and that between repeats of one device, with 95 % intervals.

One-way random effects on logarithms, with unweighted device means where devices have different numbers of repeats
(Thomas and Hultquist). Between repeats: chi-squared. The devices' share: F. Between devices: the modified
large-sample interval (Graybill and Wang; Ting and others), whose upper end is above 0 even where the estimate is 0.
Heavier tails than normal ones lower the degrees of freedom, and so widen the intervals.

Functions of arrays work on many fleets at once, as in `lab.study.noise`; `benchmarks/coverage.py` measures how
often the intervals hold.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vernier.measure.distributions import chi2_limit, f_limit
from vernier.measure.estimates import LEVEL, Floats
from vernier.records.study import Component, VarianceComponents, VarianceSplit

from .noise import Bools, repeat_noise, slowness_rows

FEWEST_DEVICES = 5
_TAIL = (1 - LEVEL) / 2
_NO_LUCK = 0.95
"""Device means that differ less than the noise explains are luck: the upper end of the spread between devices is never
below what 95 % of fleets of equal devices would get."""


class Variances(NamedTuple):
    """Estimate, lower and upper end: variance between devices, between repeats, and the devices' share of the sum."""

    between: tuple[Floats, Floats, Floats]
    within: tuple[Floats, Floats, Floats]
    share: tuple[Floats, Floats, Floats]


def variance_split(groups: Sequence[Floats], slow_is_high: bool = True) -> VarianceSplit:
    """Spread between devices and between repeats of one device: over all runs, and without disturbed runs."""
    if len(groups) < 2:
        return VarianceSplit(missing="one device only")
    if all(g.size == 1 for g in groups):
        return VarianceSplit(missing="one repeat per device: device and noise cannot be told apart")
    slowness = slowness_rows(groups, slow_is_high)
    finite, calm = np.isfinite(slowness), repeat_noise(slowness).calm
    return VarianceSplit(
        unit="standard deviation, % of the value",
        all_runs=_components(slowness, finite),
        undisturbed_runs=_components(slowness, calm),
        runs_set_aside=int(finite.sum() - calm.sum()),
    )


def _components(slowness: Floats, chosen: Bools) -> VarianceComponents:
    parts = variances(slowness, chosen)
    few = slowness.shape[-2] < FEWEST_DEVICES

    def component(ends: tuple[Floats, Floats, Floats], percent: bool) -> Component:
        value, low, high = (100 * float(np.sqrt(e)) if percent else float(e) for e in ends)
        return Component(value=value) if few else Component(value=value, low=low, high=high)

    return VarianceComponents(
        between_devices=component(parts.between, percent=True),
        between_repeats=component(parts.within, percent=True),
        share_between_devices=component(parts.share, percent=False),
    )


def variances(slowness: Floats, chosen: Bools) -> Variances:
    """Variance components of the chosen runs with 95 % intervals. At least one device has two runs."""
    count = chosen.sum(-1)
    has = count > 0
    devices = has.sum(-1)
    mean = np.where(chosen, slowness, 0.0).sum(-1) / np.maximum(count, 1)
    residual = np.where(chosen, slowness - mean[..., None], 0.0)
    # Mean squares: `noise` within devices, and below `spread` between their unweighted means (Thomas and Hultquist).
    freedom_within = np.maximum((count - 1).clip(0).sum(-1), 1).astype(np.float64)
    noise = (residual**2).sum((-1, -2)) / freedom_within
    size = devices / np.where(has, 1 / np.maximum(count, 1), 0.0).sum(-1)  # harmonic mean of the numbers of repeats
    centre = np.where(has, mean, 0.0).sum(-1) / devices
    off = np.where(has, mean - centre[..., None], 0.0)
    freedom_between = np.maximum(devices - 1, 1).astype(np.float64)
    spread = size * (off**2).sum(-1) / freedom_between
    # Residuals about a mean of few are too small; a lone run's is 0 by construction and would look like a heavy tail.
    scale = np.sqrt(np.maximum(count, 2) / np.maximum(count - 1, 1))[..., None]
    freedom_within = _lowered(freedom_within, residual * scale, (chosen & (count > 1)[..., None]))
    freedom_between = _lowered(freedom_between, off[..., None], has[..., None])
    return _intervals(spread, noise, freedom_between, freedom_within, size)


def _lowered(freedom: Floats, deviations: Floats, chosen: Bools) -> Floats:
    """Degrees of freedom of a sample variance, lowered where the deviations have heavier tails than normal ones.

    The variance of s^2 is (2 / freedom + excess kurtosis / n) times its square. An excess within three standard errors
    of 0 counts as none.
    """
    number = np.maximum(chosen.sum((-1, -2)), 1)
    second = (deviations**2).sum((-1, -2)) / number
    excess = (deviations**4).sum((-1, -2)) / number / np.where(second > 0, second**2, 1.0) - 3
    # 24 / n is the variance of the sample kurtosis of many normal numbers.
    heavy = np.where(excess > 3 * np.sqrt(24 / number), excess, 0.0)
    lowered: Floats = np.maximum(2 / (2 / freedom + heavy / number), 1.0)
    return lowered


def _intervals(spread: Floats, noise: Floats, between: Floats, within: Floats, size: Floats) -> Variances:
    """`spread` estimates size * between + within with `between` degrees of freedom, `noise` the variance within."""
    # Limits are upper tails: `upper` is exceeded with probability _TAIL, `lower` with 1 - _TAIL.
    low1, high1 = _chi2_ends(between)
    low2, high2 = _chi2_ends(within)
    upper, lower = _f_limits(_TAIL, between, within), _f_limits(1 - _TAIL, between, within)
    # Ting and others: with these cross terms the lower end is 0 exactly if the F test of equal devices is at its limit.
    g1, h1, g2, h2 = 1 - low1, high1 - 1, 1 - low2, high2 - 1
    cross_low = ((upper - 1) ** 2 - (g1 * upper) ** 2 - h2**2) / upper
    cross_high = ((1 - lower) ** 2 - (h1 * lower) ** 2 - g2**2) / lower
    below = (g1 * spread) ** 2 + (h2 * noise) ** 2 + cross_low * spread * noise
    least = np.maximum(spread, noise * _f_limits(_NO_LUCK, between, within))
    above = (h1 * least) ** 2 + (g2 * noise) ** 2 + cross_high * least * noise
    ends = (spread - noise, spread - noise - np.sqrt(below.clip(0)), least - noise + np.sqrt(above.clip(0)))
    # The F ratio over its own limits bounds 1 + size * between / within, from which _share follows.
    safe = np.where(noise > 0, noise, 1e-300)
    shares = (spread / safe, spread / safe / upper, least / safe / lower)
    return Variances(
        between=_triple(*((e / size).clip(0) for e in ends)),
        within=(noise, noise * low2, noise * high2),
        share=_triple(*(_share(r, size) for r in shares)),
    )


def _triple(value: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
    return value, low, high


def _share(ratio: Floats, size: Floats) -> Floats:
    odds = ((ratio - 1) / size).clip(0)
    share: Floats = odds / (1 + odds)
    return share


def _chi2_ends(freedom: Floats) -> tuple[Floats, Floats]:
    """Factors that turn a sample variance into the ends of its interval."""
    low, high = (np.vectorize(lambda f, p=p: f / chi2_limit(p, f))(freedom) for p in (_TAIL, 1 - _TAIL))
    return low, high


def _f_limits(probability: float, first: Floats, second: Floats) -> Floats:
    limits: Floats = np.vectorize(lambda a, b: f_limit(probability, a, b))(first, second)
    return limits
