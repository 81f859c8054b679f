"""The noise of repeats: which runs were disturbed, and how much undisturbed repeats of one device differ.

Works on slowness, the logarithm of a time (or minus that of a rate), in an array whose last two axes are devices and
repeats; a missing repeat is NaN, and leading axes hold further fleets. Something else that runs on a machine makes a
run slower, so a run is compared with the fast quarter of its device's runs. How far apart undisturbed runs of such a
fleet can be is simulated (fixed seed), so that the estimate has no bias for few repeats or few devices: residuals
about a median of three repeats, for example, hold a zero for every device.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vernier.lab.statistics.distributions import t_limits
from vernier.measure.estimates import LEVEL, Floats

Bools = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]
_CALLED_DISTURBED = 0.02  # share of undisturbed fleets in which a run is called disturbed
_NEVER = 1e9  # finite, as the noise it is multiplied by can be 0
_CALLED_NOISY = 0.01  # share of devices with the common noise that are given a larger one
_LOUD = 0.05  # the same for intervals
_TWO_MODES, _LEAST_OF_MODE, _STEPS_APART, _FEWEST_RUNS = 2.1, 0.12, 3, 40
"""Modes of repeats: their distance over the sum of their standard deviations (98 % of normal fleets have less), the
least fraction of runs in each, how many steps of rounded times they must be apart, and how many runs show them."""
_EQUAL = 1e-9  # logarithms of times that differ by less are equal but for the conversion of their unit
_MOST_SIMULATED = 100  # devices; larger fleets use the limits of this many
_FLEETS, _SAMPLES, _ROUNDS = 1000, 40_000, 12  # simulated fleets and numbers; most rounds of setting runs aside


class RepeatNoise(NamedTuple):
    """Standard deviation of the logarithm between undisturbed repeats of one device, and its degrees of freedom.

    `calm` says which runs were not disturbed. Without repeats `sd` and `freedom` are 0.
    """

    sd: Floats
    freedom: Floats
    calm: Bools


def slowness_rows(groups: Sequence[Floats], slow_is_high: bool = True) -> Floats:
    """One row per device, padded with NaN: logarithms of times, or minus those of rates."""
    rows = np.full((len(groups), max((g.size for g in groups), default=0)), np.nan)
    for row, group in zip(rows, groups, strict=True):
        row[: group.size] = (1.0 if slow_is_high else -1.0) * np.log(group)
    return rows


def undisturbed(groups: Sequence[Floats], slow_is_high: bool = True) -> list[Bools]:
    """Which runs of each device were not disturbed: as near to the fast ones of their device as noise alone is."""
    calm = repeat_noise(slowness_rows(groups, slow_is_high)).calm
    return [row[: group.size] for row, group in zip(calm, groups, strict=True)]


def repeat_noise(slowness: Floats) -> RepeatNoise:
    """The noise of repeats without the disturbed ones, and which those are."""
    counts = np.isfinite(slowness).sum(-1)
    calm = np.isfinite(slowness)
    if slowness.shape[-1] > 1 and (counts > 1).any():
        calm = _undisturbed(slowness, counts)
    sd, freedom = _pooled_sd(slowness, calm)
    return RepeatNoise(sd, freedom, calm)


def calm_medians(slowness: Floats, calm: Bools) -> Floats:
    """The median of each device's undisturbed runs."""
    medians: Floats = np.nanmedian(np.where(calm, slowness, np.nan), -1)
    return medians


def calm_by(slowness: Floats, sd: float) -> Bools:
    """Which runs were not disturbed, if repeats are known to differ by this standard deviation."""
    distance, limit = _distances(slowness, np.isfinite(slowness).sum(-1))
    calm: Bools = distance <= limit * sd
    return calm


def _distances(slowness: Floats, counts: Counts) -> tuple[Floats, float]:
    """Distances to the fast quarter of the device's runs, and how far an undisturbed run can be, in rough sd."""
    ordered = np.sort(slowness, -1)  # NaN comes last
    anchor = np.take_along_axis(ordered, np.maximum((counts[..., None] + 3) // 4 - 1, 0), -1)
    several = counts[counts > 1]
    repeats = int(np.median(several)) if several.size else 2
    return np.abs(slowness - anchor), distance_limit(min(slowness.shape[-2], _MOST_SIMULATED), repeats)


def _undisturbed(slowness: Floats, counts: Counts) -> Bools:
    """Sets runs aside in rounds: without the worst ones the rest shows better how much undisturbed runs differ."""
    distance, limit = _distances(slowness, counts)
    calm: Bools = np.isfinite(slowness)
    for _ in range(_ROUNDS):
        rough = _rough_sd(np.where(calm, slowness, np.nan))
        # rough is 0 if repeats are equal to the last digit: nothing is known about their noise then, and all runs stay.
        still = calm & ((distance <= (limit * rough)[..., None, None]) | (rough == 0)[..., None, None])
        if (still == calm).all():
            break
        calm = still
    return calm


def _pooled_sd(slowness: Floats, calm: Bools) -> tuple[Floats, Floats]:
    squares, freedoms = _within(slowness, calm)
    freedom = freedoms.sum(-1)
    return np.sqrt(squares.sum(-1) / np.maximum(freedom, 1)), freedom


def _within(slowness: Floats, calm: Bools) -> tuple[Floats, Floats]:
    """Per device: the sum of squares about its mean, and the degrees of freedom."""
    count = calm.sum(-1)
    mean = np.where(calm, slowness, 0.0).sum(-1) / np.maximum(count, 1)
    squares: Floats = (np.where(calm, slowness - mean[..., None], 0.0) ** 2).sum(-1)
    return squares, np.maximum(count - 1, 0).astype(np.float64)


def _rough_sd(slowness: Floats) -> Floats:
    """The median over devices of the shortest range of half of their repeats: slow runs do not move it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a fleet without repeats has NaN
        rough: Floats = np.nan_to_num(np.nanmedian(_own_sd(slowness), -1))
    return rough


def _half(count: int) -> int:
    """More than half of the runs, so that two repeats have a range too."""
    return count // 2 + 1


def _nearly_all(count: int) -> int:
    """All but one run, which may be disturbed; of few all, as less shows nothing."""
    return count - 1 if count > 4 else count


def _own_sd(slowness: Floats, part: Callable[[int], int] = _half) -> Floats:
    """Per device: the shortest range of some of its repeats, over that of normal numbers; NaN for a single repeat."""
    ordered, counts = np.sort(slowness, -1), np.isfinite(slowness).sum(-1)
    ranges = np.full(counts.shape, np.nan)
    for count in np.unique(counts[counts > 1]).tolist():
        rows = ordered[counts == count][:, :count]
        ranges[counts == count] = _shortest_range(rows, part(count)) / _range_of_normal(count, part(count))
    return ranges


def _shortest_range(ordered: Floats, part: int) -> Floats:
    # [devices, repeats], sorted
    shortest: Floats = (ordered[:, part - 1 :] - ordered[:, : ordered.shape[-1] - part + 1]).min(-1)
    return shortest


@lru_cache(maxsize=256)
def _range_of_normal(count: int, part: int) -> float:
    """The median of the shortest range of that many of normal numbers with standard deviation 1."""
    samples = np.random.default_rng(0).standard_normal((max(1000, _SAMPLES // count), count))
    return float(np.median(_shortest_range(np.sort(samples, -1), part)))


@lru_cache(maxsize=256)
def distance_limit(devices: int, repeats: int) -> float:
    """How far from the fast quarter of its device a run of an undisturbed normal fleet can lie, in rough sd."""
    runs = np.random.default_rng(0).standard_normal((_FLEETS, devices, repeats))
    anchor = np.sort(runs, -1)[..., (repeats + 3) // 4 - 1, None]
    furthest = np.abs(runs - anchor).max((-1, -2)) / _rough_sd(runs)
    return float(np.quantile(furthest, 1 - _CALLED_DISTURBED))


def median_factor(repeats: int) -> float:
    """Variance of the median of normal repeats over that of their mean: 1 for two, rising to pi / 2.

    Within 2 % of the exact values for any number.
    """
    return 1.0 if repeats < 3 else math.pi / 2 * repeats / (repeats + (0.5 if repeats % 2 else 1.35))


def median_variance(noise_sd: float, repeats: int) -> float:
    """Variance of the median of some repeats."""
    return noise_sd**2 / repeats * median_factor(repeats)


def own_sd(slowness: Floats, noise: RepeatNoise, *, wide: bool = False) -> Floats:
    """Standard deviation of each device's repeats: the common one, but its own if that is significantly larger.

    `wide`: for intervals, as one that is too wide is no false alarm: own noise is assumed sooner, from nearly all runs.
    """
    part, called = (_nearly_all, _LOUD) if wide else (_half, _CALLED_NOISY)
    own = _own_sd(slowness, part)
    counts = np.isfinite(slowness).sum(-1)
    ratios = np.array([_NEVER, *(_noisy_limit(n, part(n), called) for n in range(1, slowness.shape[-1] + 1))])
    larger: Floats = np.where(own > ratios[counts] * noise.sd[..., None], own, noise.sd[..., None])
    return larger


@lru_cache(maxsize=256)
def _noisy_limit(count: int, part: int, called: float) -> float:
    """What this fraction of devices exceeds: its own estimate over the standard deviation that all have."""
    if count < 2:
        return _NEVER
    samples = np.random.default_rng(1).standard_normal((_SAMPLES // 4, count))
    return float(np.quantile(_own_sd(samples, lambda _: part), 1 - called))


def resolution(slowness: Floats) -> Floats:
    """The step to which times are rounded, as a logarithm: the smallest difference of two runs of the fleet."""
    runs = np.sort(slowness.reshape(*slowness.shape[:-2], -1), -1)
    gaps = np.diff(runs, axis=-1)
    least: Floats = np.where(gaps > _EQUAL, gaps, np.inf).min(-1, initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)


def modes_apart(slowness: Floats) -> Floats:
    """How far two modes of the repeats are apart, as of devices that throttle at times; 0 if none are seen.

    All repeats are split so that both parts together have the least variance (Otsu 1979).
    """
    ordered, counts = np.sort(slowness, -1), np.isfinite(slowness).sum(-1)
    # From the fast quarter of each device: a median can be in either mode.
    anchor = np.take_along_axis(ordered, np.maximum((counts[..., None] + 3) // 4 - 1, 0), -1)
    # Of one or two runs most are the anchor itself, at 0.
    runs = np.where(counts[..., None] > 2, ordered - anchor, np.nan)
    runs = np.sort(runs.reshape(*slowness.shape[:-2], -1), -1)
    sums = np.array([np.where(np.isfinite(runs), runs**power, 0.0).cumsum(-1) for power in (0, 1, 2)])
    total = sums[..., -1:]
    # Number, mean and standard deviation of the runs up to each split, and beyond it.
    below, above = ((n := np.maximum(part[0], 1), part[1] / n, part[2] / n) for part in (sums, total - sums))
    apart = above[1] - below[1]
    best = np.where(sums[0] < total[0], below[0] * above[0] * apart**2, -1.0).argmax(-1)[..., None]
    spread = sum(np.sqrt((square - mean**2).clip(0)) for _, mean, square in (below, above))
    fewer = np.minimum(below[0], above[0]) / np.maximum(total[0], _FEWEST_RUNS)
    apart, spread, fewer = (np.take_along_axis(part, best, -1)[..., 0] for part in (apart, spread, fewer))
    seen = (apart > _TWO_MODES * spread) & (apart > _STEPS_APART * resolution(slowness)) & (fewer >= _LEAST_OF_MODE)
    return np.where(seen & (total[0, ..., 0] >= _FEWEST_RUNS), apart, 0.0)


def half_widths(slowness: Floats, noise: RepeatNoise) -> Floats:
    """Half the 95 % intervals of the medians of the devices' repeats, as logarithms. Some device has two repeats.

    Rounded times are known to half a step. A device that has significantly more noise than the others has its own.
    """
    counts, own = np.isfinite(slowness).sum(-1), own_sd(slowness, noise, wide=True)
    # A device with noise of its own has shown it in its own repeats only.
    freedom = np.where(own > noise.sd[..., None], counts - 1, noise.freedom[..., None]).clip(1)
    variance = np.array([0.0, *(median_variance(1.0, n) for n in range(1, slowness.shape[-1] + 1))])
    half: Floats = (
        t_limits((1 - LEVEL) / 2, freedom) * own * np.sqrt(variance[counts]) + resolution(slowness)[..., None] / 2
    )
    return half
