"""Analyses a variability study: are the devices equal, which is slow, by how much, and is it the device or the noise?

Works on a table with one row per device and repeat (`measure.study.files` and `report.study.tables` read them).
Ratios are differences of logarithms, so that 5 % slower and 5 % faster weigh the same; a device's value is the median
of its repeats. What is normal is learned from the devices at hand without their outliers (`fit_inliers`), not
assumed.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt

from vernier.frozen import frozen
from vernier.measure.statistics.estimates import LEVEL, Floats, t_quantiles, t_two_sided
from vernier.records.study import (
    Component,
    CorrelationMatrix,
    Correlations,
    DeviceVerdict,
    Inliers,
    Outliers,
    RepeatCounts,
    SlowFastCounts,
    Straggler,
    StragglerCost,
    StudyAnalysis,
    VarianceComponents,
    VarianceSplit,
    Variation,
    name_of_value,
)

METHOD = "vernier-study-analysis-1"
SENSORS = ("freq", "power", "temp")
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0}
"""Units of time that a table may have, in seconds; other units are rates."""
SUSPICIOUS = 100.0
"""Devices of one kind do not differ by such a factor: their units do."""
FEWEST_DEVICES = 5
_DRAWS = 2000
_CUT, _CUT_BIAS = 2.5, 1.0466  # sd of a normal distribution cut at +-2.5 sd is 1 / 1.0466


@frozen
class Measurement:
    """One repeat on one device. `value` is in the table's unit; `sensors` are medians over the repeat."""

    device: str
    repeat: str
    value: float
    sensors: dict[str, float | None] = field(default_factory=dict)


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
        return {k: np.array(v) for k, v in sorted(grouped.items())}

    def medians(self) -> dict[str, float]:
        """The median of each device's repeats."""
        return {k: float(np.median(v)) for k, v in self.by_device().items()}


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
    """Variation in percent under each definition of VARIATIONS; None for fewer than two values."""
    if values.size < 2:
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


# -------------------------------------------------------------------------------------------------- variance components


def _variances(n: Floats, mean: Floats, within: Floats) -> tuple[Floats, Floats]:
    """Between- and within-device variance of unbalanced one-way random effects; the last axis is the devices."""
    total, devices = n.sum(-1), n.shape[-1]
    grand = (n * mean).sum(-1) / total
    between = (n * (mean - grand[..., None]) ** 2).sum(-1) / (devices - 1)
    noise = within.sum(-1) / np.maximum(total - devices, 1)
    size = (total - (n**2).sum(-1) / total) / (devices - 1)
    return np.maximum((between - noise) / np.maximum(size, 1e-12), 0.0), noise


def undisturbed(groups: Sequence[Floats]) -> list[npt.NDArray[np.bool_]]:
    """Which runs of each device were not disturbed: within three interquartile ranges of their device's median.

    The quartiles are those of all such distances, on a logarithmic scale.
    """
    distances = [np.log(g) - np.median(np.log(g)) for g in groups]
    repeated = [d for d in distances if d.size > 1]
    if not repeated:
        return [np.ones(d.size, np.bool_) for d in distances]
    q1, q3 = np.percentile(np.concatenate(repeated), [25, 75]).tolist()
    reach = 3 * (q3 - q1) + max(abs(q1), abs(q3))
    return [np.abs(d) <= reach for d in distances]


def variance_split(groups: Sequence[Floats]) -> VarianceSplit:
    """Spread between devices and between repeats of one device: over all runs, and without disturbed runs."""
    logs = [np.log(g) for g in groups]
    if len(groups) < 2:
        return VarianceSplit(missing="one device only")
    if all(g.size == 1 for g in logs):
        return VarianceSplit(missing="one repeat per device: device and noise cannot be told apart")
    calm = [part for g, calm in zip(logs, undisturbed(groups), strict=True) if (part := g[calm]).size]
    return VarianceSplit(
        unit="standard deviation, % of the value",
        all_runs=_components(logs),
        undisturbed_runs=_components(calm),
        runs_set_aside=sum(g.size for g in logs) - sum(g.size for g in calm),
    )


def _components(logs: Sequence[Floats]) -> VarianceComponents:
    """Variance components with intervals from redrawing whole devices (bootstrap); no intervals for too few devices."""
    n = np.array([g.size for g in logs], np.float64)
    mean = np.array([g.mean() for g in logs])
    within = np.array([((g - g.mean()) ** 2).sum() for g in logs])
    drawn = np.random.default_rng(0).integers(0, len(logs), (_DRAWS, len(logs)))
    once, redrawn = _variances(n, mean, within), _variances(n[drawn], mean[drawn], within[drawn])

    def component(value: Floats, draws: Floats, scale: float = 100.0) -> Component:
        if len(logs) < FEWEST_DEVICES:
            return Component(value=scale * float(value))
        low, high = np.percentile(draws, [100 * (1 - LEVEL) / 2, 100 * (1 + LEVEL) / 2]).tolist()
        return Component(value=scale * float(value), low=scale * low, high=scale * high)

    def share(parts: tuple[Floats, Floats]) -> Floats:
        return parts[0] / np.maximum(parts[0] + parts[1], 1e-300)

    return VarianceComponents(
        between_devices=component(np.sqrt(once[0]), np.sqrt(redrawn[0])),
        between_repeats=component(np.sqrt(once[1]), np.sqrt(redrawn[1])),
        share_between_devices=component(share(once), share(redrawn), 1.0),
    )


# ------------------------------------------------------------------------------------------------------- what is normal


def p_above(inliers: Inliers, value: float, extra_variance: float = 0.0) -> float:
    """Probability that one more inlier would be this high; counts the uncertainty of the estimate itself."""
    spread = math.sqrt(inliers.sd**2 * (1 + 1 / inliers.count) + extra_variance)
    if spread == 0:
        return 0.5 if value == inliers.centre else float(value < inliers.centre)
    t = (value - inliers.centre) / spread
    two_sided = max(0.0, 1 - t_two_sided(abs(t), max(1, inliers.count - 1)))
    return two_sided / 2 if t > 0 else 1 - two_sided / 2


def limit_above(inliers: Inliers, alpha: float, extra_variance: float = 0.0) -> float:
    """The value that one more inlier exceeds with probability `alpha`."""
    t = float(t_quantiles(1 - 2 * alpha, max(1, inliers.count - 1)))
    return inliers.centre + t * math.sqrt(inliers.sd**2 * (1 + 1 / inliers.count) + extra_variance)


def fit_inliers(values: Floats) -> Inliers:
    """Mean and sd of the values within 2.5 robust sd (from the median absolute deviation) of their median."""
    middle = float(np.median(values))
    robust = 1.4826 * float(np.median(np.abs(values - middle)))
    inside = values[np.abs(values - middle) <= _CUT * robust] if robust > 0 else values[values == middle]
    if inside.size < 2:
        return Inliers(centre=middle, sd=robust, count=max(2, values.size))
    return Inliers(centre=float(inside.mean()), sd=_CUT_BIAS * float(inside.std(ddof=1)), count=inside.size)


def repeat_noise(groups: Sequence[Floats]) -> float:
    """Robust sd of the logarithm between repeats of one device; 0 where no device has two."""
    repeated = [g for g in groups if g.size > 1]
    if not repeated:
        return 0.0
    pooled = np.concatenate([np.sqrt(g.size / (g.size - 1)) * (np.log(g) - np.median(np.log(g))) for g in repeated])
    robust = 1.4826 * float(np.median(np.abs(pooled)))
    inside = pooled[np.abs(pooled) <= _CUT * robust] if robust > 0 else pooled
    return _CUT_BIAS * float(np.sqrt((inside**2).mean()))


def median_variance(noise_sd: float, repeats: int) -> float:
    """Variance of the median of some repeats."""
    return noise_sd**2 / repeats * (1.0 if repeats < 3 else math.pi / 2)


# -------------------------------------------------------------------------------------------------------------- devices


def judge_devices(table: Table) -> list[DeviceVerdict]:
    """Each device's median over the cluster's, and the probability that a normal device is so slow; slowest first."""
    groups, medians = table.by_device(), np.array(list(table.medians().values()))
    low, high = quartile_fences(medians)
    cluster, noise = float(np.median(medians)), repeat_noise(list(groups.values()))
    slowness = (1.0 if table.slow_is_high else -1.0) * np.log(medians / cluster)
    few = len(groups) < FEWEST_DEVICES
    freedom = max(1, len(table.rows) - len(groups))
    normal = Inliers(centre=0.0, sd=0.0, count=freedom + 1) if few else fit_inliers(slowness)
    typical = statistics.median([median_variance(noise, g.size) for g in groups.values()])
    verdicts = []
    for (name, values), middle, slow in zip(groups.items(), medians.tolist(), slowness.tolist(), strict=True):
        own, normalised = median_variance(noise, values.size), middle / cluster
        extra = own * 2 if few else max(0.0, own - typical)
        p_slow = p_above(normal, slow, extra) if values.size > 1 or not few else 0.5
        p_fast = 1 - p_slow
        half = float(t_quantiles(LEVEL, freedom)) * math.sqrt(own)
        verdicts.append(
            DeviceVerdict(
                device=name,
                repeats=values.size,
                median=middle,
                normalised=normalised,
                low=normalised * math.exp(-half) if noise > 0 else None,
                high=normalised * math.exp(half) if noise > 0 else None,
                slower_percent=100 * (math.exp(slow) - 1),
                beyond_fence=None if low <= middle <= high else "slow" if slow > 0 else "fast",
                p_slow=p_slow,
                p_fast=p_fast,
                sure_slow=p_slow * len(groups) < 1 - LEVEL,
                sure_fast=p_fast * len(groups) < 1 - LEVEL,
                repeat_spread_percent=100 * float(np.ptp(values) / middle) if values.size > 1 else None,
            )
        )
    return sorted(verdicts, key=lambda d: -d.slower_percent)


def find_straggler(table: Table, without: Sequence[str] = ()) -> Straggler:
    """The slowest device, and slowest / median: the cost of synchronous training, in which all wait for it."""
    medians = table.medians()
    rest = {k: v for k, v in medians.items() if k not in without}
    middle = statistics.median(medians.values())
    worst = (max if table.slow_is_high else min)(rest, key=rest.__getitem__)
    return Straggler(slowest=worst, cost=rest[worst] / middle if table.slow_is_high else middle / rest[worst])


# ---------------------------------------------------------------------------------------------------------- correlation


def _ranks(values: Floats) -> Floats:
    """Average ranks, ties shared."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[inverse]
    return ranks


def _pearson(a: Floats, b: Floats) -> float | None:
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


def analyze(table: Table) -> StudyAnalysis:
    """The whole analysis of a study."""
    groups = table.by_device()
    values = np.array([r.value for r in table.rows])
    middle = float(np.median(values))
    ranked = judge_devices(table)
    pull = () if len(groups) < FEWEST_DEVICES else tuple(d.device for d in ranked if d.sure_slow)
    beyond = [d.beyond_fence for d in ranked]
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
        variance=variance_split(list(groups.values())),
        correlation=correlations(table),
        outliers=Outliers(
            beyond_fence=SlowFastCounts(slow=beyond.count("slow"), fast=beyond.count("fast")),
            sure=SlowFastCounts(slow=sum(d.sure_slow for d in ranked), fast=sum(d.sure_fast for d in ranked)),
            rule=f"certainly: the chance that even one of the {len(ranked)} devices is called so although it is normal "
            f"is below {100 * (1 - LEVEL):g} % (family-wise error)",
        ),
        straggler=StragglerCost(
            **vars(find_straggler(table)),
            slowest_run_over_median=float(values.max() / middle if table.slow_is_high else middle / values.min()),
            after_pulling=find_straggler(table, pull),
        ),
        pull=pull,
        devices=tuple(ranked),
        notes=(*table.notes, *_limits(len(groups), counts[-1])),
    )


def _limits(count: int, most_repeats: int) -> list[str]:
    """What such a small study cannot tell."""
    notes = []
    if count == 1:
        notes.append("one device: nothing to compare it with")
    elif count < FEWEST_DEVICES:
        notes.append(
            f"{count} devices are too few to learn how much normal devices differ (at least {FEWEST_DEVICES}); "
            "they are judged by the noise of repeats alone, and none is recommended for removal"
        )
    if most_repeats == 1:
        notes.append("one repeat per device: noise and differences between devices cannot be separated; use --repeats")
    return notes
