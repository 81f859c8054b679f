"""Analyses a variability study: are the devices equal, which is slow, by how much, and is it the device or the noise?

Works on a table with one row per device and repeat (`lab.study.files` and `lab.reading.tables` read them).
Ratios are differences of logarithms, so that 5 % slower and 5 % faster weigh the same; a device's value is the median
of its repeats. What is normal is learned from the devices at hand, not assumed: the noise of repeats in `noise`, the
split of the variance in `variance`, and who is slow for sure in `outliers`.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from vernier.frozen import frozen
from vernier.measure.estimates import LEVEL, Floats
from vernier.measure.student import t_tail
from vernier.references import command

from .noise import RepeatNoise, calm_medians, half_widths, modes_apart, repeat_noise, slowness_rows
from .outliers import (
    FAMILY_ERROR,
    FEWEST_DEVICES,
    FEWEST_HOSTS,
    Labels,
    describe_shape,
    judge,
    judge_cabinets,
    judge_few,
    least_chance_by_noise,
)
from .records import (
    CorrelationMatrix,
    Correlations,
    DeviceVerdict,
    Outliers,
    RepeatCounts,
    SlowFastCounts,
    SlowOrFast,
    Straggler,
    StragglerCost,
    StudyAnalysis,
    Variation,
    name_of_value,
)
from .variance import variance_split

METHOD = "vernier-study-analysis-3"
METHODS = ("vernier-study-analysis-1", "vernier-study-analysis-2", METHOD)
"""Those whose results can be read."""
DEFAULT_MATTER = 0.01
"""A device that is slower by less than this share is not worth removing."""
SENSORS = ("freq", "power", "temp")
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0}
"""Units of time that a table may have, in seconds; other units are rates."""
RATIO = "ratio"
"""The unit of times that are already divided by a reference, as in published tables."""
SUSPICIOUS = 100.0
"""Devices of one kind do not differ by such a factor: their units do."""


@frozen
class Measurement:
    """One repeat on one device. `value` is in the table's unit; `sensors` are medians over the repeat.

    `host` is the machine that the device is in, `cabinet` what hosts share (a rack, a room); empty if that is not
    known. `log` is the log that does not name its device, so that the device has the name of the file.
    """

    device: str
    repeat: str
    value: float
    host: str = ""
    cabinet: str = ""
    sensors: dict[str, float | None] = field(default_factory=dict)
    log: Path | None = None


@frozen
class Table:
    """A study's rows. `what` names the value ("median iteration"); `slow_is_high`: True for times, False for rates."""

    rows: tuple[Measurement, ...]
    unit: str
    what: str
    workload: str = ""
    slow_is_high: bool = True
    simulated: bool = False
    notes: tuple[str, ...] = ()

    def by_device(self) -> dict[str, Floats]:
        grouped: dict[str, list[float]] = {}
        for row in self.rows:
            grouped.setdefault(row.device, []).append(row.value)
        # Sorted: `group_numbers` and the rows of slowness arrays rely on this order.
        return {k: np.array(v) for k, v in sorted(grouped.items())}

    def medians(self) -> dict[str, float]:
        """The median of each device's repeats."""
        return {k: statistics.median(v.tolist()) for k, v in self.by_device().items()}

    def group_numbers(self, level: Literal["host", "cabinet"]) -> Labels | None:
        """A number for the host or cabinet of each device, in the order of `by_device`; None where one is not known."""
        groups: dict[str, str] = {row.device: getattr(row, level) for row in self.rows}
        # A device without a host has no neighbors to be compared with; hosts are then ignored for all devices.
        if not all(groups.values()):
            return None
        return np.unique([groups[device] for device in sorted(groups)], return_inverse=True)[1].astype(np.int64)


# ------------------------------------------------------------------------------------------------------------ variation


def quartile_fences(values: Floats) -> tuple[float, float]:
    """Tukey's fences: 1.5 interquartile ranges below the first and above the third quartile (linear interpolation)."""
    q1, q3 = np.percentile(values, [25, 75]).tolist()
    return q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)


VARIATIONS = {
    "fence": "((Q3 + 1.5 IQR) - (Q1 - 1.5 IQR)) / median, the SC22 study's",
    "whisker": "(largest - smallest value within the fences) / median",
    "range": "(largest - smallest value) / median, outliers included",
    "cv": "standard deviation / mean, outliers included",
}


def variations(values: Floats) -> dict[str, float | None]:
    """Variation in percent under each definition of VARIATIONS; None for fewer than two values, or endless ones."""
    if values.size < 2 or not np.isfinite(values).all():
        return dict.fromkeys(VARIATIONS)
    low, high = quartile_fences(values)
    inside = values[(values >= low) & (values <= high)]
    middle = float(np.median(values))
    return {
        "fence": 100 * (high - low) / middle,
        "whisker": 100 * float(np.ptp(inside)) / middle,
        "range": 100 * float(np.ptp(values)) / middle,
        "cv": 100 * float(values.std(ddof=1) / values.mean()),
    }


# -------------------------------------------------------------------------------------------------------------- devices


def judge_devices(table: Table, matter: float = DEFAULT_MATTER) -> list[DeviceVerdict]:
    """Each device's median over the cluster's, and whether it is slow for sure; slowest first.

    `matter` is the smallest slowness that matters, as a share.
    """
    groups, medians = table.by_device(), np.array(list(table.medians().values()))
    low, high = quartile_fences(medians)
    # The median of the cluster is taken as exact: a device's interval contains the noise of its own repeats only.
    cluster, sign = float(np.median(medians)), 1.0 if table.slow_is_high else -1.0
    slowness = slowness_rows(list(groups.values()), table.slow_is_high)
    noise = repeat_noise(slowness)
    half_width = half_widths(slowness, noise)
    chances = _chances(table, slowness, noise)
    verdicts = []
    for i, ((name, values), middle) in enumerate(zip(groups.items(), medians.tolist(), strict=True)):
        # No interval without repeats, or if they are equal to the last digit: they do not show how repeats vary.
        slow, half = sign * math.log(middle / cluster), float(half_width[i]) if noise.sd else None
        verdicts.append(
            DeviceVerdict(
                device=name,
                repeats=values.size,
                median=middle,
                normalised=middle / cluster,
                low=None if half is None else middle / cluster * math.exp(-half),
                high=None if half is None else middle / cluster * math.exp(half),
                slower_percent=100 * (math.exp(slow) - 1),
                beyond_fence=None if low <= middle <= high else "slow" if slow > 0 else "fast",
                **chances[i]._asdict(),
                matters=abs(math.exp(slow) - 1) >= matter,
                repeat_spread_percent=100 * float(np.ptp(values) / middle) if values.size > 1 else None,
                disturbed_repeats=int(values.size - noise.calm[i].sum()),
                fastest_run_percent=100 * math.expm1(float(np.nanmin(slowness[i])) - sign * math.log(cluster)),
            )
        )
    return sorted(verdicts, key=lambda d: -d.slower_percent)


_RULE = (
    f"certain: in less than {100 * (1 - LEVEL):g} % of fleets an ordinary device is called slow, also if devices "
    "differ by a skewed or heavy-tailed law or come from two bins (one of less than a twelfth of the devices looks "
    "slow); standing out: the same, but only if ordinary devices differ by a normal law"
)
_RULE_OF_FEW = f"standing out: in less than {100 * (1 - LEVEL):g} % of fleets of equal devices one is called different"


class _Chance(NamedTuple):
    """Fields of `DeviceVerdict`: the probability that an ordinary device is so slow, or so fast, and the verdict."""

    p_slow: float
    p_fast: float
    stands_out: SlowOrFast | None
    sure_slow: bool = False
    sure_fast: bool = False
    whole_host: bool = False
    whole_cabinet: bool = False


class _Shared(NamedTuple):
    """What a device shares with its cabinet, which is slow or fast as a whole, and the chance of that by luck."""

    side: SlowOrFast
    off: float
    chance: float


def _shared_with_cabinets(table: Table, values: Floats) -> dict[int, _Shared]:
    """By the number of the device; `values` is the slowness of all of them."""
    hosts, cabinets = table.group_numbers("host"), table.group_numbers("cabinet")
    if hosts is None or cabinets is None or cabinets.max() == 0 or len(values) < FEWEST_DEVICES:
        return {}
    judged, shared = judge_cabinets(values, hosts, cabinets), dict[int, _Shared]()
    for device, cabinet in enumerate(cabinets.tolist()):
        if judged.slow[cabinet] or judged.fast[cabinet]:
            off = float(np.median(values[cabinets == cabinet]) - np.median(values))
            side: SlowOrFast = "slow" if judged.slow[cabinet] else "fast"
            shared[device] = _Shared(side, off, float(min(judged.p_slow[cabinet], judged.p_fast[cabinet])))
    return shared


def _chances(table: Table, slowness: Floats, noise: RepeatNoise) -> list[_Chance]:
    chances: list[_Chance] = []
    if len(slowness) < FEWEST_DEVICES:
        few = judge_few(slowness)
        for p_slow, p_fast, is_slow, is_fast in zip(*(part.tolist() for part in few), strict=True):
            chances.append(_Chance(p_slow, p_fast, "slow" if is_slow else "fast" if is_fast else None))
        return chances
    # A warm cabinet is no fault of its devices: they are compared with each other, without what all of them lose.
    shared = _shared_with_cabinets(table, calm_medians(slowness, noise.calm))
    off = np.array([shared[i].off if i in shared else 0.0 for i in range(len(slowness))])
    judged = judge(slowness - off[:, None], noise, table.group_numbers("host"))
    for i in range(len(slowness)):
        t, freedom, factor = float(judged.t[i]), float(judged.freedom[i]), float(judged.factor[i])
        # Always the tail on the side of t, never 1 - the other one: 1e-30 stays 1e-30, so that devices can be ordered.
        tail = t_tail(abs(t), freedom) if freedom >= 1 else 0.5
        above, below = (factor * p for p in ((tail, 1 - tail) if t > 0 else (1 - tail, tail)))
        stands_out: SlowOrFast | None = "slow" if judged.slower[i] else "fast" if judged.faster[i] else None
        # `factor` corrects for the number of comparisons (Bonferroni) and can lift a chance above 1.
        slow = min(1.0, max(above, float(judged.by_noise[i])))
        # `whole_host` qualifies a verdict and means nothing without one.
        whole_host = bool(judged.whole_host[i] and stands_out)
        sure = bool(judged.slow[i]), bool(judged.fast[i])
        if stands_out is None and (whole := shared.get(i)):
            ends = (whole.chance, 1.0) if whole.side == "slow" else (1.0, whole.chance)
            chances.append(_Chance(*ends, whole.side, whole_cabinet=True))
        else:
            chances.append(_Chance(slow, min(1.0, below), stands_out, *sure, whole_host))
    return chances


def _cabinet_notes(table: Table, ranked: Sequence[DeviceVerdict]) -> list[str]:
    """A sentence per cabinet that is slow or fast as a whole."""
    cabinet_of, named = {row.device: row.cabinet for row in table.rows}, dict[str, list[DeviceVerdict]]()
    for device in ranked:
        if device.whole_cabinet:
            named.setdefault(cabinet_of[device.device], []).append(device)
    return [
        f"{name} is {abs(statistics.median(d.slower_percent for d in devices)):.1f} % {devices[0].stands_out} as a "
        "whole cabinet, by the ranks of its hosts: look at its cooling and power. Its devices are compared with each "
        "other, and none is to be removed for it"
        for name, devices in named.items()
    ]


def find_straggler(table: Table, without: Sequence[str] = ()) -> Straggler:
    """The slowest device, and slowest / median: the cost of synchronous training, in which all wait for it."""
    medians = table.medians()
    rest = {k: v for k, v in medians.items() if k not in without}
    # Over all devices, also those in `without`: costs before and after a removal have the same denominator.
    middle = statistics.median(medians.values())
    worst = (max if table.slow_is_high else min)(rest, key=rest.__getitem__)
    return Straggler(slowest=worst, cost=rest[worst] / middle if table.slow_is_high else middle / rest[worst])


# ---------------------------------------------------------------------------------------------------------- correlation


def _ranks(values: Floats) -> Floats:
    """Average ranks, ties shared."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    # `last` is the highest rank of each group of ties; the mean rank is (size - 1) / 2 below it.
    ranks: Floats = (last - (counts - 1) / 2)[inverse]
    return ranks


def _pearson(a: Floats, b: Floats) -> float | None:
    # Two points always correlate by +-1, and a constant would divide by 0.
    if a.size < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def correlations(table: Table) -> Correlations:
    """Pearson and Spearman between the value and each sensor, over rows that have both; None where one is constant."""
    columns = {name_of_value(table.unit).replace(" ", "_"): np.array([r.value for r in table.rows])}
    columns |= {s: np.array([r.sensors.get(s) for r in table.rows], np.float64) for s in SENSORS}  # None becomes NaN
    pearson: CorrelationMatrix = {a: {} for a in columns}
    spearman: CorrelationMatrix = {a: {} for a in columns}
    for (a, x), (b, y) in itertools.product(columns.items(), repeat=2):
        # Pair by pair: a sensor that is missing in some rows must not remove these rows from the other correlations.
        both = np.isfinite(x) & np.isfinite(y)
        pearson[a][b] = _pearson(x[both], y[both])
        spearman[a][b] = _pearson(_ranks(x[both]), _ranks(y[both])) if both.any() else None
    finite = {k: v[np.isfinite(v)] for k, v in columns.items()}
    return Correlations(
        pearson=pearson,
        spearman=spearman,
        not_measured=tuple(k for k, v in finite.items() if not v.size),
        constant=tuple(k for k, v in finite.items() if v.size and np.ptp(v) == 0),
    )


# ------------------------------------------------------------------------------------------------------------ the whole


def analyze(table: Table, matter: float = DEFAULT_MATTER) -> StudyAnalysis:
    """The whole analysis of a study. Only devices that are slower by at least the share `matter` are to be removed."""
    groups = table.by_device()
    values = np.array([r.value for r in table.rows])
    middle = float(np.median(values))
    ranked = judge_devices(table, matter)
    few = len(groups) < FEWEST_DEVICES
    # So few devices are ranked against each other only, which does not show how much normal devices differ.
    pull = () if few else tuple(d.device for d in ranked if d.sure_slow and d.matters)
    beyond, out = [d.beyond_fence for d in ranked], [d.stands_out for d in ranked]
    counts = sorted(g.size for g in groups.values())
    low, high = np.percentile(values, [25, 75]).tolist()
    return StudyAnalysis(
        method=METHOD,
        workload=table.workload,
        what=table.what,
        unit=table.unit,
        simulated=table.simulated,
        runs=len(table.rows),
        devices_measured=len(groups),
        repeats_per_device=RepeatCounts(least=counts[0], median=statistics.median(counts), most=counts[-1]),
        median=middle,
        quartiles=(low, high),
        variation_percent=Variation(
            definitions=VARIATIONS,
            over_runs=variations(values),
            over_device_medians=variations(np.array(list(table.medians().values()))),
        ),
        variance=variance_split(list(groups.values()), table.slow_is_high),
        correlation=correlations(table),
        outliers=Outliers(
            beyond_fence=SlowFastCounts(slow=beyond.count("slow"), fast=beyond.count("fast")),
            sure=SlowFastCounts(slow=sum(d.sure_slow for d in ranked), fast=sum(d.sure_fast for d in ranked)),
            rule=_RULE_OF_FEW if few else f"{_RULE}; {describe_shape(_ordinary_speeds(ranked))}",
            stand_out=SlowFastCounts(slow=out.count("slow"), fast=out.count("fast")),
        ),
        straggler=StragglerCost(
            **vars(find_straggler(table)),
            slowest_run_over_median=float(values.max() / middle if table.slow_is_high else middle / values.min()),
            after_pulling=find_straggler(table, pull),
        ),
        pull=pull,
        matter_percent=100 * matter,
        devices=tuple(ranked),
        notes=(*table.notes, *_cabinet_notes(table, ranked), *_limits(table, [g.size for g in groups.values()])),
    )


def _ordinary_speeds(ranked: Sequence[DeviceVerdict]) -> Floats:
    """Logarithms of the relative times of devices that do not stand out, nor are slow in some of their runs only."""
    ordinary = (
        d
        for d in ranked
        if d.stands_out is None and (d.beyond_fence is None or 2 * (d.fastest_run_percent or 0.0) > d.slower_percent)
    )
    return np.array([math.log1p(d.slower_percent / 100) for d in ordinary])


def _limits(table: Table, counts: Sequence[int]) -> list[str]:
    """What such a small study cannot tell, and what would be needed."""
    devices, repeats, notes = len(counts), int(statistics.median(counts)), []
    if devices == 1:
        return ["one device: nothing to compare it with"]
    if devices < FEWEST_DEVICES:
        notes.append(
            f"{devices} devices are too few to learn how much normal devices differ (at least {FEWEST_DEVICES}); "
            "the noise of repeats alone shows which are not equal, and none is recommended for removal"
        )
    if max(counts) == 1:
        notes.append(
            "one repeat per device: noise and differences between devices cannot be separated; measure with "
            f"{command('study run', repeats=2)} or more"
        )
    elif least_chance_by_noise(devices, repeats) * devices >= FAMILY_ERROR:
        # Ends: the more repeats, the less likely chance is to slow down nearly all of them.
        needed = next(r for r in itertools.count(repeats) if least_chance_by_noise(devices, r) * devices < FAMILY_ERROR)
        notes.append(
            f"{repeats} repeats on each of {devices} devices are too few to be certain of a slow device: something "
            f"else may have disturbed all its runs; {needed} repeats are enough"
        )
    if apart := float(modes_apart(slowness_rows(list(table.by_device().values()), table.slow_is_high))):
        notes.append(
            f"repeats have two modes, {100 * math.expm1(apart):.1f} % apart, as if devices throttled at times: one "
            "that throttles more often than others stands out and is not certainly slow for it"
        )
    hosts = table.group_numbers("host")
    if devices >= FEWEST_DEVICES and hosts is not None and 1 < len(set(hosts.tolist())) < FEWEST_HOSTS:
        notes.append(
            f"{len(set(hosts.tolist()))} hosts are too few to learn how much hosts differ (at least {FEWEST_HOSTS}): "
            "where they do, devices are compared within their host, and no host is called slow as a whole"
        )
    return notes
