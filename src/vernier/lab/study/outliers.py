"""Which devices are slow or fast for sure: outliers among devices that differ, measured with noise.

Five devices or more: the generalised extreme Studentized deviate test (Rosner 1983). It takes the most extreme devices
away one by one and compares each with those that remain, so that several slow devices do not hide each other, and a
fleet without outliers keeps its own spread. Where devices of one host are alike, devices are compared within their host
and hosts with hosts. A device of which every repeat may have been disturbed is never called slow for sure. Fewer
devices: an exact rank test of one device's runs against all others, whatever the noise is.

Works on slowness as `lab.study.noise` does, many fleets at once.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vernier.measure.distributions import f_limit, t_limit
from vernier.measure.estimates import Floats

from .noise import Bools, RepeatNoise, median_factor

FEWEST_DEVICES = 5
FEWEST_HOSTS = 5
FAMILY_ERROR = 0.04
"""Aimed at for slow and for fast devices each; 5 % is promised, which leaves room for noise that is not normal."""
_HOSTS_ALIKE = 0.25  # a missed host effect calls healthy devices of a warm host slow; a false one only costs power
_WIDE = 2.0
_LATER_STEPS = 4
"""After its most extreme devices are gone a small normal fleet looks narrower than it is: later steps are stricter."""

Labels = npt.NDArray[np.int64]


class Deviates(NamedTuple):
    """Per device: Student's t against the ordinary devices, its degrees of freedom, and whether it is ordinary."""

    t: Floats
    freedom: Floats
    ordinary: Bools


class Judged(NamedTuple):
    """Per device: median slowness of its undisturbed runs, t and degrees of freedom, and the verdicts.

    The chance that an ordinary device is so slow is `factor` times the tail of t, but at least `by_noise`, what noise
    and disturbances alone can do (0 where t decides). `whole_host`: judged by its host's slowness.
    """

    slowness: Floats
    t: Floats
    freedom: Floats
    factor: Floats
    by_noise: Floats
    slow: Bools
    fast: Bools
    whole_host: Bools


def judge(slowness: Floats, noise: RepeatNoise, hosts: Labels | None = None) -> Judged:
    """Judges five devices or more. `hosts` numbers the host of each device; None where that is not known."""
    values = np.nanmedian(np.where(noise.calm, slowness, np.nan), -1)
    devices, extra = values.shape[-1], _extra_variance(noise)
    t, freedom, in_fleet = studentized(values, np.zeros(devices, np.int64), extra)
    factor, whole_host = np.ones(values.shape), np.zeros(values.shape, np.bool_)
    by_noise = chance_by_noise(slowness)
    if hosts is not None and 1 < len(np.unique(hosts)) < devices:
        nested, ordinary = _judge_in_hosts(values, hosts, extra)
        # also without the outliers of the fleet, whole hosts excepted: slow devices hide each other in their host
        rest = in_fleet | (_fit(values, hosts, in_fleet).size == 0)
        differ = (hosts_differ(values, hosts, ordinary) & hosts_differ(values, hosts, rest))[..., None]
        host_mean = _fit(values, hosts, ordinary).mean
        inside = chance_by_noise(slowness - host_mean[..., None])
        whole_host = differ & nested.by_host
        by_noise = np.where(differ, np.where(whole_host, _per_host(by_noise, hosts), inside), by_noise)
        t, freedom, factor = (np.where(differ, a, b) for a, b in zip(nested[:3], (t, freedom, factor), strict=True))
        centre = np.median(values, -1, keepdims=True)
        healthy = (host_mean > centre) & (values - centre < (host_mean - centre) / 2)
        t = np.where(whole_host & healthy, 0.0, t)  # beside slow devices of its host
    # Bonferroni over the devices. `by_noise` can only veto: below the limit t alone decides.
    limit = _limits(FAMILY_ERROR / devices / factor, freedom)
    by_noise = np.where(t > limit, by_noise, 0.0)
    slow = (t > limit) & _agree(slowness, values, noise) & (by_noise * devices < FAMILY_ERROR)
    return Judged(values, t, freedom, factor, by_noise, slow, t < -limit, whole_host)


def _agree(slowness: Floats, values: Floats, noise: RepeatNoise) -> Bools:
    """Whether the two fastest runs of a device agree: as undisturbed ones do, or to a quarter of its slowness."""
    if slowness.shape[-1] < 2:
        return np.zeros(values.shape, np.bool_)
    ordered = np.sort(slowness, -1)
    apart = ordered[..., 1] - ordered[..., 0]
    agree: Bools = (noise.calm.sum(-1) >= 2) | (apart <= (values - np.median(values, -1, keepdims=True)) / 4)
    return agree


def _per_host(by_noise: Floats, hosts: Labels) -> Floats:
    """The median over a host's devices, times hosts per device: what disturbs a host disturbs all its devices."""
    count = int(hosts.max()) + 1
    medians = np.stack([np.median(by_noise[..., hosts == host], -1) for host in range(count)], -1)
    per_host: Floats = medians[..., hosts] * count / hosts.size
    return per_host


class _Nested(NamedTuple):
    """Per device: t, degrees of freedom and factor of the comparison that decides, and whether it is that of hosts."""

    t: Floats
    freedom: Floats
    factor: Floats
    by_host: Bools


def _judge_in_hosts(values: Floats, hosts: Labels, extra: Floats) -> tuple[_Nested, Bools]:
    """Devices against those of their host and hosts against hosts, and which devices are ordinary in their host.

    Each way has half of the family error; where hosts are too few to say how much hosts differ, none is called slow.
    """
    devices, count = values.shape[-1], len(np.unique(hosts))
    within = studentized(values, hosts, extra)
    among = _host_deviates(values, hosts, within.ordinary)
    limit_within = _limits(FAMILY_ERROR / 2 / devices, within.freedom)
    limit_among = _limits(FAMILY_ERROR / 2 / count, among.freedom)
    # The comparison that is further beyond its own limit decides: t of different degrees of freedom do not compare.
    # `judge` divides FAMILY_ERROR / devices by the factor returned, which restores the probabilities used here.
    by_host = (np.abs(among.t) / limit_among > np.abs(within.t) / limit_within) & (count >= FEWEST_HOSTS)
    t, freedom = (np.where(by_host, a, b) for a, b in zip(among[:2], within[:2], strict=True))
    return _Nested(t, freedom, np.where(by_host, 2 * count / devices, 2.0), by_host), within.ordinary


def _limits(probability: Floats | float, freedom: Floats) -> Floats:
    """`t_limit` of arrays; infinite without degrees of freedom."""
    limits = np.full(freedom.shape, math.inf)
    chances = np.broadcast_to(probability, freedom.shape)
    for chance in np.unique(probability).tolist():
        distinct, inverse = np.unique(freedom, return_inverse=True)
        known = np.array([t_limit(chance, f) if f >= 1 else math.inf for f in distinct.tolist()])
        limits = np.where(chances == chance, known[inverse.reshape(freedom.shape)], limits)
    return limits


def _extra_variance(noise: RepeatNoise) -> Floats:
    """By how much the noise of each device's median exceeds the typical device's, as a variance."""
    count = np.maximum(noise.calm.sum(-1), 1)
    factors = np.array([1.0, *(median_factor(n) / n for n in range(1, int(count.max()) + 1))])
    # Only the excess counts: the spread between devices already contains the noise of a typical median.
    own = noise.sd[..., None] ** 2 * factors[count]
    extra: Floats = (own - np.median(own, -1, keepdims=True)).clip(0)
    return extra


def chance_by_noise(slowness: Floats) -> Floats:
    """Chance that an ordinary device has as many slow runs as each device: by how slow runs of the others are.

    A run is at least as slow as a device's fast quarter with the probability seen among the runs of other devices,
    devices left out whose fast quarter stands out; all but the fast quarter of the device's own runs are. Nothing is
    assumed about the noise, and something that slows one run in five down makes nobody sure of a device with two.
    """
    counts = np.isfinite(slowness).sum(-1)
    quarter = np.maximum(counts // 4, 1)
    anchor = np.take_along_axis(np.sort(slowness, -1), quarter[..., None] - 1, -1)[..., 0]
    ordinary = studentized(anchor, np.zeros(anchor.shape[-1], np.int64)).ordinary
    shape, repeats = anchor.shape, slowness.shape[-1]
    own_slower = np.where(ordinary, counts - quarter + 1, 0)  # a device's own runs are none of the others'
    own_runs = np.where(ordinary, counts, 0)
    slower, others = np.empty((int(np.prod(shape[:-1])), shape[-1])), np.empty((int(np.prod(shape[:-1])), 1))
    fleets = (slowness.reshape(-1, shape[-1], repeats), ordinary.reshape(slower.shape), anchor.reshape(slower.shape))
    for i, (rows, chosen, level) in enumerate(zip(*fleets, strict=True)):
        runs = np.sort(rows[chosen].ravel())
        runs = runs[: np.isfinite(runs).sum()]
        slower[i], others[i] = runs.size - np.searchsorted(runs, level, "left"), runs.size
    hits = (slower.reshape(shape) - own_slower).clip(0)
    rates = (hits + np.sqrt(hits) + 1) / (others.reshape(*shape[:-1], 1) - own_runs + 1)  # one standard error above
    return _binomial_tail(counts, rates, counts - quarter + 1)


def least_chance_by_noise(devices: int, repeats: int) -> float:
    """The smallest chance that a device can get from `chance_by_noise`, or in a small fleet from `rank_tail`."""
    if devices < FEWEST_DEVICES:
        return 1 / math.comb(devices * repeats, repeats)
    trials = np.array([repeats])
    rate = np.array([1 / ((devices - 1) * repeats + 1)])
    return float(_binomial_tail(trials, rate, trials - np.maximum(trials // 4, 1) + 1)[0])


def _binomial_tail(trials: npt.NDArray[np.int64], rate: Floats, least: npt.NDArray[np.int64]) -> Floats:
    """Probability of at least so many hits."""
    most, chance = int(trials.max()), np.zeros(rate.shape)
    rate = rate.clip(0, 1)
    for hits in range(1, most + 1):
        # Zero if hits > trials; the clip below only keeps 0 from being raised to a negative power.
        ways = np.array([math.comb(n, hits) for n in range(most + 1)], np.float64)[trials]
        chance += np.where(hits >= least, ways * rate**hits * (1 - rate) ** (trials - hits).clip(0), 0.0)
    return chance


# ----------------------------------------------------------------------------------------- Studentized extreme deviates


class _Fit(NamedTuple):
    """One-way fit of the chosen devices: each device's group mean and the chosen in its group, variance and freedom."""

    mean: Floats
    size: Floats
    variance: Floats
    freedom: Floats


def _fit(values: Floats, groups: Labels, chosen: Bools) -> _Fit:
    if groups.max() == 0:
        size = chosen.sum(-1, keepdims=True).astype(np.float64)
        total = np.where(chosen, values, 0.0).sum(-1, keepdims=True)
        present = np.ones(values.shape[:-1])
    else:
        # One-hot [devices, groups]: a product with it sums per group, for all fleets at once.
        members = np.eye(int(groups.max()) + 1)[groups]
        per_group = chosen @ members
        size = per_group[..., groups]
        total = (np.where(chosen, values, 0.0) @ members)[..., groups]
        present = (per_group > 0).sum(-1)
    mean = total / np.maximum(size, 1)
    freedom = chosen.sum(-1) - present
    squares = np.where(chosen, (values - mean) ** 2, 0.0).sum(-1)
    return _Fit(mean, size, squares / np.maximum(freedom, 1), np.asarray(freedom, np.float64))


def _deleted_t(values: Floats, fit: _Fit, chosen: Bools, extra: Floats | float = 0.0) -> tuple[Floats, Floats]:
    """t of each device against the chosen others of its group, and the degrees of freedom."""
    lone = fit.size - chosen < 1  # nobody to be compared with
    own = (values - fit.mean) ** 2 * fit.size / np.maximum(fit.size - 1, 1)  # what a chosen device adds to the squares
    freedom = fit.freedom[..., None] - chosen
    squares = (fit.variance * fit.freedom)[..., None] - np.where(chosen, own, 0.0)
    variance = squares.clip(0) / np.maximum(freedom, 1)
    others = np.maximum(fit.size - chosen, 1)
    # Distance to the mean of the others, without a second fit: a chosen device has pulled the mean towards itself.
    off = (values - fit.mean) * np.where(chosen, fit.size / others, 1.0)
    spread = np.sqrt(variance * (1 + 1 / others) + extra)
    t = np.where(off == 0, 0.0, off / np.where(spread > 0, spread, 1e-300))
    valid = ~lone & (freedom >= 1)
    return np.where(valid, t, 0.0), np.where(valid, freedom, 0.0)


def studentized(values: Floats, groups: Labels, extra: Floats | float = 0.0) -> Deviates:
    """Rosner's test: t of every device against the ordinary devices of its group."""
    devices, chosen = values.shape[-1], np.ones(values.shape, np.bool_)
    middle = np.median(values, -1, keepdims=True) if groups.max() == 0 else _fit(values, groups, chosen).mean
    off = np.abs(values - middle)
    # The test needs a bound on the number of outliers. 1.4826 median absolute deviations are one sd of normal numbers.
    wide = (off > _WIDE * 1.4826 * np.median(off, -1, keepdims=True)).sum(-1)
    most = min(devices // 3, int(np.max(wide)))
    removed_at = np.full(values.shape, devices + 1)
    last = np.zeros(values.shape[:-1], np.int64)  # the last step whose device was an outlier
    for step in range(1, most + 1):
        t, freedom = _deleted_t(values, _fit(values, groups, chosen), chosen)
        size = np.where(chosen, np.abs(t), -1.0)
        worst = size.argmax(-1)[..., None]
        error = FAMILY_ERROR / (1 if step == 1 else _LATER_STEPS)
        limit = _limits(error / (devices - step + 1), np.take_along_axis(freedom, worst, -1))[..., 0]
        # All devices up to the last significant step are outliers, even if an earlier step was not significant: this is
        # how Rosner's test finds several slow devices that hide each other.
        last = np.where(np.take_along_axis(size, worst, -1)[..., 0] > limit, step, last)
        np.put_along_axis(chosen, worst, False, -1)
        np.put_along_axis(removed_at, worst, step, -1)
    ordinary = removed_at > last[..., None]
    t, freedom = _deleted_t(values, _fit(values, groups, ordinary), ordinary, extra)
    return Deviates(t, freedom, ordinary)


# ---------------------------------------------------------------------------------------------------------------- hosts


def hosts_differ(values: Floats, hosts: Labels, ordinary: Bools) -> Bools:
    """Whether ordinary devices of one host are more alike than others (F test; called easily, one time in four)."""
    fit = _fit(values, hosts, ordinary)
    centre = np.where(ordinary, values, 0.0).sum(-1, keepdims=True) / ordinary.sum(-1, keepdims=True)
    between = np.where(ordinary, (fit.mean - centre) ** 2, 0.0).sum(-1)
    first = ordinary.sum(-1) - fit.freedom - 1
    ratio = between / np.maximum(first, 1) / np.where(fit.variance > 0, fit.variance, 1e-300)
    pairs, inverse = np.unique(np.stack([first, fit.freedom], -1).reshape(-1, 2), axis=0, return_inverse=True)
    limits = np.array([f_limit(_HOSTS_ALIKE, a, b) if a >= 1 and b >= 1 else math.inf for a, b in pairs.tolist()])
    differ: Bools = ratio > limits[inverse.reshape(-1)].reshape(ratio.shape)
    return differ


def _host_deviates(values: Floats, hosts: Labels, ordinary: Bools) -> Deviates:
    """Each device's host against the other hosts, by the mean of its ordinary devices."""
    members = np.eye(int(hosts.max()) + 1)[hosts]
    size = ordinary @ members
    means = (np.where(ordinary, values, 0.0) @ members) / np.maximum(size, 1)
    deviates = studentized(means, np.zeros(means.shape[-1], np.int64))
    return Deviates(deviates.t[..., hosts], deviates.freedom[..., hosts], deviates.ordinary[..., hosts])


# -------------------------------------------------------------------------------------------------------- a few devices


@lru_cache(maxsize=256)
def _rank_sums(first: int, second: int) -> tuple[float, ...]:
    """Probability of each Mann-Whitney count, 0 to first * second, of exchangeable runs."""
    ways: list[list[list[int]]] = [[[1] for _ in range(second + 1)] for _ in range(first + 1)]
    for a in range(1, first + 1):
        for b in range(1, second + 1):
            counts = [0] * (a * b + 1)
            for k, n in enumerate(ways[a - 1][b]):  # the largest is of the first: it beats all b
                counts[k + b] += n
            for k, n in enumerate(ways[a][b - 1]):
                counts[k] += n
            ways[a][b] = counts
    total = math.comb(first + second, first)
    return tuple(n / total for n in ways[first][second])


class FewJudged(NamedTuple):
    """Per device of a small fleet: the chance that one of equal devices is so slow, or so fast, and the verdicts."""

    p_slow: Floats
    p_fast: Floats
    slow: Bools
    fast: Bools


def judge_few(slowness: Floats) -> FewJudged:
    """Judges fewer than five devices, by the ranks of their runs. Equal devices are assumed, nothing else."""
    chances = np.full((2, len(slowness)), 0.5)
    for device, row in enumerate(slowness if len(slowness) > 1 else ()):
        others = np.delete(slowness, device, 0).ravel()
        own, others = row[np.isfinite(row)], others[np.isfinite(others)]
        chances[:, device] = rank_tail(own, others), rank_tail(-own, -others)
    slow, fast = chances * len(slowness) < FAMILY_ERROR
    return FewJudged(chances[0], chances[1], slow, fast)


def rank_tail(own: Floats, others: Floats) -> float:
    """Chance that one of equal devices has runs this slow among the others'; exact for any noise, ties count half."""
    beats = (own[:, None] > others[None]).sum() + 0.5 * (own[:, None] == others[None]).sum()
    return math.fsum(_rank_sums(own.size, others.size)[math.floor(beats) :])
