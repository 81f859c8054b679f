"""Which devices stand out, and which are slow or fast for sure: outliers among devices that differ, with noise.

Five devices or more: the generalized extreme Studentized deviate test (Rosner 1983). It takes the most extreme devices
away one by one and compares each with those that remain, so that several slow devices do not hide each other, and a
fleet without outliers keeps its own spread. If devices of one host are alike, devices are compared within their host
and hosts with hosts. A device of which every repeat may have been disturbed does not stand out.

Rosner's test assumes that ordinary devices differ by a normal law. Real fleets are skewed, so that a device that stands
out can be an ordinary one. It is slow or fast for sure only if it is several times as far out as all others (`_far`),
which skewed and heavy-tailed laws hardly ever do. Fewer devices: an exact rank test of one device's runs against all
others, whatever the noise is; it shows that they differ and not what is ordinary, so that none is slow for sure.

Works on slowness as `lab.study.noise` does, many fleets at once.
"""

import math
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vernier.lab.statistics.distributions import f_limit, f_limits, t_limits
from vernier.measure.estimates import LEVEL, Floats

from .noise import Bools, RepeatNoise, calm_medians, median_factor, modes_apart, own_sd, resolution

FEWEST_DEVICES = 5
FEWEST_HOSTS = 5
FAMILY_ERROR = 0.04
"""Aimed at for slow and for fast devices each; 5 % is promised, which leaves room for noise that is not normal."""
_HOSTS_ALIKE = 0.25  # a missed host effect calls healthy devices of a warm host slow; a false one only costs power
_WIDE = 2.0
_FAR, _FAR_OF_FEW, _LEAST_FAR = 1.9, 26.0, 2.5
"""A device that is certain is `_FAR + _FAR_OF_FEW / (devices - 2)` times as far from the center as all others.

In 5 % of fleets of exponential devices the largest of 8 is 4 times, of 16 3.4, of 32 2.6 times as far out as the next,
with Student's t3 about 2.2 times in any number of devices. Two bins of silicon need most among few devices.
"""
_MANY_DEVICES, _TAIL_SHARE, _TAIL_ERROR, _NEARER, _FAR_OF_MANY = 800, 20, 0.01, 1.25, 2.65
"""From so many devices on, the outer twentieth shows how heavy the fleet's own tail is, which can ask for less."""
_GROUP, _GROUP_FAR = 12, math.log(1.08)
"""More than a twelfth of the devices may be another bin of silicon, unless they are slower by more than 8 %."""
_BEYOND_MODES = 1.5
"""If repeats have two modes, a device in the slower one by chance is about as far out as the modes are apart."""
_MOST_EXACT = 4000
"""Pairs of runs up to which the ranks of two devices are compared exactly."""
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

    The chance that an ordinary device of a normal fleet is so slow is `factor` times the tail of t, but at least
    `by_noise`, what noise and disturbances alone can do (0 where t decides). `slow` and `fast` are certain for skewed
    fleets too; `slower` and `faster` have all that stand out. `whole_host`: judged by its host's slowness.
    """

    slowness: Floats
    t: Floats
    freedom: Floats
    factor: Floats
    by_noise: Floats
    slow: Bools
    fast: Bools
    whole_host: Bools
    slower: Bools
    faster: Bools


def judge(slowness: Floats, noise: RepeatNoise, hosts: Labels | None = None) -> Judged:
    """Judges five devices or more. `hosts` numbers the host of each device; None if that is not known."""
    values = calm_medians(slowness, noise.calm)
    devices, extra, step = values.shape[-1], _extra_variance(slowness, noise), resolution(slowness)
    t, freedom, in_fleet = studentized(values, np.zeros(devices, np.int64), extra)
    factor, whole_host, differ = np.ones(values.shape), *(np.zeros(values.shape, np.bool_) for _ in range(2))
    centre = np.median(values, -1, keepdims=True)
    off, host_mean, far = values - centre, np.zeros(values.shape), _far(values - centre, step)
    if hosts is not None and 1 < len(np.unique(hosts)) < devices:
        nested, ordinary = _judge_in_hosts(values, hosts, extra)
        # also without the outliers of the fleet, whole hosts excepted: slow devices hide each other in their host
        rest = in_fleet | (_fit(values, hosts, in_fleet).size == 0)
        differ |= (hosts_differ(values, hosts, ordinary) & hosts_differ(values, hosts, rest))[..., None]
        host_mean = _fit(values, hosts, ordinary).mean
        whole_host = differ & nested.by_host
        t, freedom, factor = (np.where(differ, a, b) for a, b in zip(nested[:3], (t, freedom, factor), strict=True))
        healthy = (np.abs(host_mean - centre) > 2 * np.abs(off)) | (off * (host_mean - centre) < 0)
        t = np.where(whole_host & healthy, 0.0, t)  # beside slow devices of its host
        means = host_mean[..., np.unique(hosts, return_index=True)[1]]
        apart = _far(means - np.median(means, -1, keepdims=True), step)[..., hosts]
        far = np.where(differ, np.where(whole_host, apart, _far(values - host_mean, step)), far)
    far &= np.abs(off) > _BEYOND_MODES * modes_apart(slowness)[..., None]
    # Bonferroni over the devices. `by_noise` can only veto: below the limit t alone decides.
    limit = t_limits(FAMILY_ERROR / devices / factor, freedom)
    sides = []
    for sign in (1.0, -1.0):  # what makes a device slow for sure makes it fast for sure with the opposite sign
        by_noise = chance_by_noise(sign * slowness)
        if hosts is not None and differ.any():
            inside = chance_by_noise(sign * (slowness - host_mean[..., None]))
            by_noise = np.where(differ, np.where(whole_host, _per_host(by_noise, hosts), inside), by_noise)
        by_noise = np.where(sign * t > limit, by_noise, 0.0)
        out = (sign * t > limit) & _agree(sign * slowness, sign * off, noise) & (by_noise * devices < FAMILY_ERROR)
        sides.append((by_noise, out))
    (by_noise, slower), (_, faster) = sides
    return Judged(values, t, freedom, factor, by_noise, slower & far, faster & far, whole_host, slower, faster)


def _far(off: Floats, step: Floats) -> Bools:
    """Whether a device is several times as far from the center as all that are nearer to it.

    `off` are distances from the center; each is known to half a `step` only. As many devices are taken off the other
    side as on this one, so that a fast device does not hide a slow one.
    """
    devices = off.shape[-1]
    times = _FAR_OF_MANY if devices >= _MANY_DEVICES else max(_LEAST_FAR, _FAR + _FAR_OF_FEW / max(devices - 2, 1))
    far = np.zeros(off.shape, np.bool_)
    for sign in (1.0, -1.0):
        ordered = -np.sort(-sign * off, -1)
        level = np.full(off.shape[:-1], np.inf)
        for k in range(1, devices // 3 + 1):
            inner = np.maximum(ordered[..., k], -ordered[..., -1 - k]) + step / 2
            least = np.minimum(times, _times_by_tail(ordered[..., k : devices - k])) * inner
            if k > max(1, devices // _GROUP):
                least = np.maximum(least, _GROUP_FAR)
            level = np.where(ordered[..., k - 1] - step / 2 > least, ordered[..., k - 1], level)
        far |= sign * off >= level[..., None]
    return far


def shape_of(off: Floats) -> tuple[float, float]:
    """Skewness and excess kurtosis; 0 for equal numbers."""
    z = (off - off.mean()) / (off.std() or 1.0)
    return float((z**3).mean()), float((z**4).mean()) - 3


def describe_shape(off: Floats) -> str:
    """Whether the speeds of ordinary devices look normally distributed, by skewness and kurtosis."""
    if off.size < FEWEST_DEVICES:
        return "too few ordinary devices to see their distribution"
    skewness, excess = shape_of(off)
    # Two standard errors of many normal numbers.
    skewed, heavy = abs(skewness) > 2 * math.sqrt(6 / off.size), excess > 2 * math.sqrt(24 / off.size)
    if not skewed and not heavy:
        return f"the {off.size} ordinary devices here look normally distributed, which so many show roughly"
    shape = f"are skewed (skewness {skewness:+.1f})" if skewed else f"have heavy tails (excess kurtosis {excess:+.1f})"
    return f"the ordinary devices here {shape}: one that stands out may be ordinary"


def _times_by_tail(off: Floats) -> Floats | float:
    """How many times as far out as all others a device must be by the tail of a large fleet (Hill's estimate)."""
    if off.shape[-1] < _MANY_DEVICES:
        return math.inf
    count = off.shape[-1] // _TAIL_SHARE
    outer = np.log(np.maximum(-np.sort(-np.abs(off), -1)[..., : count + 1], 1e-300))
    weight = (outer[..., :count] - outer[..., count:]).mean(-1)
    times: Floats = np.exp(np.minimum(weight * f_limit(_TAIL_ERROR, 2, 2 * count), 10.0))
    return np.maximum(times, _NEARER)


def _agree(slowness: Floats, off: Floats, noise: RepeatNoise) -> Bools:
    """Whether the two fastest runs of a device agree: as undisturbed ones do, or to a quarter of its slowness."""
    if slowness.shape[-1] < 2:
        return np.zeros(off.shape, np.bool_)
    ordered = np.sort(slowness, -1)
    apart = ordered[..., 1] - ordered[..., 0]
    agree: Bools = (noise.calm.sum(-1) >= 2) | (apart <= off / 4)
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
    limit_within = t_limits(FAMILY_ERROR / 2 / devices, within.freedom)
    limit_among = t_limits(FAMILY_ERROR / 2 / count, among.freedom)
    # The comparison that is further beyond its own limit decides: t of different degrees of freedom do not compare.
    # `judge` divides FAMILY_ERROR / devices by the factor returned, which restores the probabilities used here.
    by_host = (np.abs(among.t) / limit_among > np.abs(within.t) / limit_within) & (count >= FEWEST_HOSTS)
    t, freedom = (np.where(by_host, a, b) for a, b in zip(among[:2], within[:2], strict=True))
    return _Nested(t, freedom, np.where(by_host, 2 * count / devices, 2.0), by_host), within.ordinary


def _extra_variance(slowness: Floats, noise: RepeatNoise) -> Floats:
    """By how much the noise of each device's median exceeds the typical device's, as a variance."""
    count = np.maximum(noise.calm.sum(-1), 1)
    factors = np.array([1.0, *(median_factor(n) / n for n in range(1, int(count.max()) + 1))])
    # Only the excess counts: the spread between devices already contains the noise of a typical median.
    own = own_sd(slowness, noise) ** 2 * factors[count]
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
    own_slower = np.where(ordinary, counts - quarter + 1, 0)  # a device's own runs are none of the others'
    own_runs = np.where(ordinary, counts, 0)
    slower, others = np.empty(anchor.shape), np.empty((*anchor.shape[:-1], 1))
    for fleet in np.ndindex(anchor.shape[:-1]):
        runs = np.sort(slowness[fleet][ordinary[fleet]], None)
        runs = runs[: np.isfinite(runs).sum()]
        slower[fleet], others[fleet] = runs.size - np.searchsorted(runs, anchor[fleet], "left"), runs.size
    hits = (slower - own_slower).clip(0)
    rates = (hits + np.sqrt(hits) + 1) / (others - own_runs + 1)  # one standard error above
    return binomial_tail(counts, rates, counts - quarter + 1)


def least_chance_by_noise(devices: int, repeats: int) -> float:
    """The smallest chance that a device can get from `chance_by_noise`, or in a small fleet from `rank_tail`."""
    if devices < FEWEST_DEVICES:
        return 1 / math.comb(devices * repeats, repeats)
    trials = np.array([repeats])
    rate = np.array([1 / ((devices - 1) * repeats + 1)])
    return float(binomial_tail(trials, rate, trials - np.maximum(trials // 4, 1) + 1)[0])


def binomial_tail(trials: npt.NDArray[np.int64], rate: Floats, least: npt.NDArray[np.int64]) -> Floats:
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
        limit = t_limits(error / (devices - step + 1), np.take_along_axis(freedom, worst, -1))[..., 0]
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
    differ: Bools = ratio > f_limits(_HOSTS_ALIKE, first, fit.freedom)
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
    # The coefficients of a Gaussian binomial: one factor (1 - q^(first + k)) / (1 - q^k) at a time, in whole numbers.
    ways = [1] + [0] * first * second
    for k in range(1, second + 1):
        ways = [n - (ways[i - first - k] if i >= first + k else 0) for i, n in enumerate(ways)]
        for i in range(k, len(ways)):
            ways[i] += ways[i - k]
    return tuple(n / math.comb(first + second, first) for n in ways)


class FewJudged(NamedTuple):
    """Per device of a small fleet: the chance that one of equal devices is so slow, or so fast, and which differ."""

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
    beats = float((own[:, None] > others[None]).sum() + 0.5 * (own[:, None] == others[None]).sum())
    pairs = own.size * others.size
    if pairs > _MOST_EXACT:  # the exact table would take seconds, and the count is nearly normal
        sd = math.sqrt(pairs * (own.size + others.size + 1) / 12)
        return 1 - NormalDist().cdf((beats - 0.5 - pairs / 2) / sd)
    return math.fsum(_rank_sums(own.size, others.size)[math.floor(beats) :])


def judge_cabinets(values: Floats, hosts: Labels, cabinets: Labels) -> FewJudged:
    """Judges cabinets as `judge_few` does devices: by the ranks of the medians of their hosts. One fleet.

    Hosts are the unit, as devices of a host are alike. No law is assumed: a cabinet that is named differs from the
    others, by whatever makes cabinets differ.
    """
    medians = [
        [float(np.median(values[hosts == host])) for host in np.unique(hosts[cabinets == cabinet])]
        for cabinet in range(int(cabinets.max()) + 1)
    ]
    most = max(map(len, medians))
    judged = judge_few(np.array([row + [math.nan] * (most - len(row)) for row in medians]))
    # 5 % for both sides together; of two cabinets one is fast exactly if the other is slow.
    error = (1 - LEVEL) / (2 if len(medians) > 2 else 1) / len(medians)
    return judged._replace(slow=judged.p_slow < error, fast=judged.p_fast < error)
