"""The noise of repeats: which runs were disturbed, and how much undisturbed repeats of one device differ.

Works on slowness, the logarithm of a time (or minus that of a rate), in an array whose last two axes are devices and
repeats; a missing repeat is NaN, and leading axes hold further fleets. Something else that runs on a machine makes a
run slower, so a run is compared with the fast quarter of its device's runs. How far apart undisturbed runs of such a
fleet can be is simulated (fixed seed), so that the estimate has no bias for few repeats or few devices: residuals
about a median of three repeats, for example, hold a zero for every device.
"""

import math
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vernier.measure.distributions import t_limit
from vernier.measure.estimates import LEVEL, Floats

Bools = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]
_CALLED_DISTURBED = 0.02  # share of undisturbed fleets in which a run is called disturbed
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


def _undisturbed(slowness: Floats, counts: Counts) -> Bools:
    """Sets runs aside in rounds: without the worst ones the rest shows better how much undisturbed runs differ."""
    ordered = np.sort(slowness, -1)  # NaN comes last
    anchor = np.take_along_axis(ordered, np.maximum((counts[..., None] + 3) // 4 - 1, 0), -1)
    distance = np.abs(slowness - anchor)
    limit = distance_limit(min(slowness.shape[-2], _MOST_SIMULATED), int(np.median(counts[counts > 1])))
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
    ordered, counts = np.sort(slowness, -1), np.isfinite(slowness).sum(-1)
    ranges = np.full(counts.shape, np.nan)
    for count in np.unique(counts[counts > 1]).tolist():
        rows = ordered[counts == count][:, :count]
        ranges[counts == count] = _half_range(rows) / _half_range_of_normal(count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a fleet without repeats has NaN
        rough: Floats = np.nan_to_num(np.nanmedian(ranges, -1))
    return rough


def _half_range(ordered: Floats) -> Floats:
    # More than half of the runs, so that two repeats have a range too. [devices, repeats], sorted.
    half = ordered.shape[-1] // 2 + 1
    shortest: Floats = (ordered[:, half - 1 :] - ordered[:, : ordered.shape[-1] - half + 1]).min(-1)
    return shortest


@lru_cache(maxsize=256)
def _half_range_of_normal(count: int) -> float:
    """The median of the half range of normal numbers with standard deviation 1."""
    samples = np.random.default_rng(0).standard_normal((max(1000, _SAMPLES // count), count))
    return float(np.median(_half_range(np.sort(samples, -1))))


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


def half_width(noise: RepeatNoise, repeats: int) -> Floats:
    """Half the 95 % interval of the median of a device's repeats, as a logarithm. Some device has two repeats."""
    distinct, inverse = np.unique(noise.freedom, return_inverse=True)
    t = np.array([t_limit((1 - LEVEL) / 2, f) for f in distinct.tolist()])[inverse.reshape(np.shape(noise.freedom))]
    half: Floats = t * noise.sd * math.sqrt(median_variance(1.0, repeats))
    return half
