"""Splits the variance of a study into that between devices and that between repeats of one device, with 95 % intervals.

One-way random effects on logarithms, with unweighted device means where devices have different numbers of repeats
(Thomas and Hultquist). Between repeats: chi-squared, or wider by how much the devices' own variances differ. The
devices' share: F. Between devices: the modified large-sample interval (Graybill and Wang; Ting and others), whose upper
end is above 0 even where the estimate is 0. Heavier tails than normal ones lower the degrees of freedom, and so widen
the intervals.

Functions of arrays work on many fleets at once, as in `lab.study.noise`; `benchmarks/coverage.py` measures how
often the intervals hold.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vernier.lab.statistics.distributions import chi2_limits, f_limits
from vernier.measure.estimates import LEVEL, Floats, t_quantiles

from .noise import Bools, Counts, repeat_noise, slowness_rows
from .records import Component, VarianceComponents, VarianceSplit

FEWEST_DEVICES = 5
_TAIL = (1 - LEVEL) / 2
_REACH_OF_SKEWED = 2.75
"""Measured: with it the interval between repeats covers 90 to 99 % for t3, exponential, lognormal and unequal noise."""
_NO_LUCK = 0.95
"""Device means that differ less than the noise explains are luck: the upper end of the spread between devices is never
below what 95 % of fleets of equal devices would get."""


class Variances(NamedTuple):
    """Variance between devices, between repeats, and the devices' share of the sum.

    The first axis has the estimate, its lower and its upper end.
    """

    between: Floats
    within: Floats
    share: Floats


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

    def component(ends: Floats) -> Component:
        value, low, high = ends.tolist()
        return Component(value=value) if few else Component(value=value, low=low, high=high)

    return VarianceComponents(
        between_devices=component(100 * np.sqrt(parts.between)),
        between_repeats=component(100 * np.sqrt(parts.within)),
        share_between_devices=component(parts.share),
    )


def variances(slowness: Floats, chosen: Bools) -> Variances:
    """Variance components of the chosen runs with 95 % intervals. At least one device has two runs."""
    count = chosen.sum(-1)
    has = count > 0
    devices = has.sum(-1)
    mean = np.where(chosen, slowness, 0.0).sum(-1) / np.maximum(count, 1)
    residual = np.where(chosen, slowness - mean[..., None], 0.0)
    # Mean squares: `noise` within devices, and below `spread` between their unweighted means (Thomas and Hultquist).
    freedom = np.maximum((count - 1).clip(0).sum(-1), 1).astype(np.float64)
    noise = (residual**2).sum((-1, -2)) / freedom
    size = devices / np.where(has, 1 / np.maximum(count, 1), 0.0).sum(-1)  # harmonic mean of the numbers of repeats
    centre = np.where(has, mean, 0.0).sum(-1) / devices
    off = np.where(has, mean - centre[..., None], 0.0)
    freedom_between = np.maximum(devices - 1, 1).astype(np.float64)
    spread = size * (off**2).sum(-1) / freedom_between
    # Devices whose own variances differ by more than chance, as with unequal noise: Satterthwaite's from their spread.
    excess = (residual**2).sum(-1) - (count - 1).clip(0) * noise[..., None]
    own = 2 * (noise * freedom) ** 2 / np.maximum((excess**2).sum(-1), 1e-300)
    freedom_within = np.minimum(freedom, np.maximum(own, 1.0))
    freedom_between = _lowered(freedom_between, off, has)
    between, share = _between_ends(spread, noise, freedom_between, freedom_within, size)
    return Variances(between, _within_ends(noise, freedom, excess, (count > 1).sum(-1)), share)


def _within_ends(noise: Floats, freedom: Floats, excess: Floats, devices: Counts) -> Floats:
    """The variance within devices and its interval: the wider of chi-squared and one over the devices.

    The devices are the unit, so that nothing is assumed about the noise of their repeats: Student's interval of the
    logarithm of the mean of their own variances. A skewed sample that has no extreme device yet has a mean that is too
    low, so the upper end reaches further by the skewness of these variances. `excess` are the devices' sums of squares
    less what the common variance lets expect.
    """
    several = np.maximum(devices, 2).astype(np.float64)
    total = (excess**2).sum(-1)
    error = np.sqrt(total * several / (several - 1)) / np.maximum(freedom * noise, 1e-300)
    skewness = (excess**3).sum(-1) / several / np.maximum((total / several) ** 1.5, 1e-300)
    half = t_quantiles(LEVEL, several - 1) * error
    reach = 1 + _REACH_OF_SKEWED * skewness.clip(0) / np.sqrt(several)
    low, high = _chi2_ends(freedom)
    ends: Floats = np.array([np.ones_like(low), np.minimum(low, np.exp(-half)), np.maximum(high, np.exp(half * reach))])
    return noise * ends


def _lowered(freedom: Floats, deviations: Floats, chosen: Bools) -> Floats:
    """Degrees of freedom of a sample variance, lowered where the deviations have heavier tails than normal ones.

    The variance of s^2 is (2 / freedom + excess kurtosis / n) times its square. An excess within three standard errors
    of 0 counts as none.
    """
    number = np.maximum(chosen.sum(-1), 1)
    second = (deviations**2).sum(-1) / number
    excess = (deviations**4).sum(-1) / number / np.where(second > 0, second**2, 1.0) - 3
    # 24 / n is the variance of the sample kurtosis of many normal numbers.
    heavy = np.where(excess > 3 * np.sqrt(24 / number), excess, 0.0)
    lowered: Floats = np.maximum(2 / (2 / freedom + heavy / number), 1.0)
    return lowered


def _between_ends(
    spread: Floats, noise: Floats, between: Floats, within: Floats, size: Floats
) -> tuple[Floats, Floats]:
    """The variance between devices and their share of the sum, with their intervals.

    `spread` estimates size * between + within with `between` degrees of freedom, `noise` the variance within.
    """
    # Limits are upper tails: `upper` is exceeded with probability _TAIL, `lower` with 1 - _TAIL.
    low1, high1 = _chi2_ends(between)
    low2, high2 = _chi2_ends(within)
    upper, lower = f_limits(_TAIL, between, within), f_limits(1 - _TAIL, between, within)
    # Ting and others: with these cross terms the lower end is 0 exactly if the F test of equal devices is at its limit.
    g1, h1, g2, h2 = 1 - low1, high1 - 1, 1 - low2, high2 - 1
    cross_low = ((upper - 1) ** 2 - (g1 * upper) ** 2 - h2**2) / upper
    cross_high = ((1 - lower) ** 2 - (h1 * lower) ** 2 - g2**2) / lower
    below = (g1 * spread) ** 2 + (h2 * noise) ** 2 + cross_low * spread * noise
    least = np.maximum(spread, noise * f_limits(_NO_LUCK, between, within))
    above = (h1 * least) ** 2 + (g2 * noise) ** 2 + cross_high * least * noise
    ends = np.array([spread - noise, spread - noise - np.sqrt(below.clip(0)), least - noise + np.sqrt(above.clip(0))])
    # The F ratio over its own limits bounds 1 + size * between / within, from which the share follows.
    safe = np.where(noise > 0, noise, 1e-300)
    ratios = np.array([spread / safe, spread / safe / upper, least / safe / lower])
    odds = ((ratios - 1) / size).clip(0)
    return (ends / size).clip(0), odds / (1 + odds)


def _chi2_ends(freedom: Floats) -> tuple[Floats, Floats]:
    """Factors that turn a sample variance into the ends of its interval."""
    return freedom / chi2_limits(_TAIL, freedom), freedom / chi2_limits(1 - _TAIL, freedom)
