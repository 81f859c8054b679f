"""What a variability study says: are the devices equal, which is slow, by how much, and is it the device or the noise?

Works on a table with one row a device and repeat (`study_files` and `report.study_tables` make them). Ratios are taken of logarithms,
so that 5 % slower and 5 % faster weigh the same; a device is placed by the median of its repeats. Nothing is assumed about how
equal devices should be: what is normal is learned from the devices at hand, outliers set aside (`ordinary`).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vernier.measure.statistics.estimates import LEVEL, Floats, t_quantiles, t_two_sided

METHOD = "vernier-study-analysis-1"
SENSORS = ("freq", "power", "temp")
FEWEST_DEVICES = 5
_DRAWS = 2000
_CUT, _CUT_BIAS = 2.5, 1.0466  # sd of a normal distribution cut at +-2.5 sd is 1 / 1.0466


@dataclass(frozen=True, kw_only=True)
class Row:
    """One repeat on one device. `value` is its performance in the table's unit."""

    device: str
    repeat: str
    value: float
    sensors: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A study's rows. `what` names the value ("median iteration"); `slow_is_high` is True for times, False for rates."""

    rows: tuple[Row, ...]
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


# ------------------------------------------------------------------------------------------------------- variation


def quartile_fences(values: Floats) -> tuple[float, float]:
    """Tukey's: 1.5 interquartile ranges below the first and above the third quartile (linear interpolation)."""
    q1, q3 = (float(q) for q in np.percentile(values, [25, 75]))
    return q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)


VARIATIONS = {
    "fence": "((Q3 + 1.5 IQR) - (Q1 - 1.5 IQR)) / median, the SC22 study's",
    "whisker": "(largest - smallest value within the fences) / median",
    "range": "(largest - smallest value) / median, outliers included",
    "cv": "standard deviation / mean, outliers included",
}


def variations(values: Floats) -> dict[str, float | None]:
    """Percent, under each definition of VARIATIONS; None for fewer than two values."""
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


# --------------------------------------------------------------------------------------------- variance components


def _components(n: Floats, mean: Floats, within: Floats) -> tuple[Floats, Floats]:
    """Between- and within-device variance of one-way random effects, unbalanced; last axis is the devices."""
    total, devices = n.sum(-1), n.shape[-1]
    grand = (n * mean).sum(-1) / total
    between = (n * (mean - grand[..., None]) ** 2).sum(-1) / (devices - 1)
    noise = within.sum(-1) / np.maximum(total - devices, 1)
    size = (total - (n**2).sum(-1) / total) / (devices - 1)
    return np.maximum((between - noise) / np.maximum(size, 1e-12), 0.0), noise


def variance_split(groups: Sequence[Floats]) -> dict[str, Any]:
    """Spread between devices and between repeats of one device: over all runs, and without runs that something disturbed.

    A disturbed run is three interquartile ranges away from its device's median, by the spread of all such distances.
    """
    logs = [np.log(g) for g in groups]
    if len(groups) < 2 or sum(g.size for g in logs) <= len(groups):
        why = "one device only" if len(groups) < 2 else "one repeat a device: device and noise cannot be told apart"
        return {"all_runs": None, "undisturbed_runs": None, "runs_set_aside": 0, "missing": why}
    distances = np.concatenate([g - np.median(g) for g in logs if g.size > 1])
    q1, q3 = np.percentile(distances, [25, 75])
    reach = 3 * float(q3 - q1) + max(abs(float(q1)), abs(float(q3)))
    calm = [kept for g in logs if (kept := g[np.abs(g - np.median(g)) <= reach]).size]
    return {
        "unit": "standard deviation, % of the value",
        "all_runs": _split_with_intervals(logs),
        "undisturbed_runs": _split_with_intervals(calm),
        "runs_set_aside": sum(g.size for g in logs) - sum(g.size for g in calm),
        "missing": None,
    }


def _split_with_intervals(logs: Sequence[Floats]) -> dict[str, Any]:
    """Intervals come from redrawing whole devices, of which there must be enough: null where there are not."""
    n = np.array([g.size for g in logs], np.float64)
    mean = np.array([g.mean() for g in logs])
    within = np.array([((g - g.mean()) ** 2).sum() for g in logs])
    drawn = np.random.default_rng(0).integers(0, len(logs), (_DRAWS, len(logs)))
    ones, many = _components(n, mean, within), _components(n[drawn], mean[drawn], within[drawn])

    def told(value: Floats, draws: Floats, scale: float = 100.0) -> dict[str, float | None]:
        if len(logs) < FEWEST_DEVICES:
            return {"value": scale * float(value), "low": None, "high": None}
        low, high = np.percentile(draws, [100 * (1 - LEVEL) / 2, 100 * (1 + LEVEL) / 2])
        return {"value": scale * float(value), "low": scale * float(low), "high": scale * float(high)}

    def share(parts: tuple[Floats, Floats]) -> Floats:
        return parts[0] / np.maximum(parts[0] + parts[1], 1e-300)

    return {
        "between_devices": told(np.sqrt(ones[0]), np.sqrt(many[0])),
        "between_repeats": told(np.sqrt(ones[1]), np.sqrt(many[1])),
        "share_between_devices": told(share(ones), share(many), 1.0),
    }


# ------------------------------------------------------------------------------------------------ what is ordinary


@dataclass(frozen=True, kw_only=True)
class Ordinary:
    """Where the ordinary ones of a set of numbers lie: mean and sd of those that are not outliers, and how many they are."""

    centre: float
    sd: float
    count: int

    def p_above(self, value: float, extra_variance: float = 0.0) -> float:
        """Chance that one more ordinary number would be this far up; the estimate's own uncertainty is counted."""
        spread = math.sqrt(self.sd**2 * (1 + 1 / self.count) + extra_variance)
        if spread == 0:
            return 0.5 if value == self.centre else float(value < self.centre)
        t = (value - self.centre) / spread
        two_sided = max(0.0, 1 - t_two_sided(abs(t), max(1, self.count - 1)))
        return two_sided / 2 if t > 0 else 1 - two_sided / 2

    def limit_above(self, alpha: float, extra_variance: float = 0.0) -> float:
        """What an ordinary number exceeds with chance `alpha` only."""
        t = float(t_quantiles(1 - 2 * alpha, max(1, self.count - 1)))
        return self.centre + t * math.sqrt(self.sd**2 * (1 + 1 / self.count) + extra_variance)


def ordinary(values: Floats) -> Ordinary:
    """Start from median and median deviation, leave out what is beyond 2.5 sd of them, take mean and sd of the rest."""
    middle = float(np.median(values))
    robust = 1.4826 * float(np.median(np.abs(values - middle)))
    kept = values[np.abs(values - middle) <= _CUT * robust] if robust > 0 else values[values == middle]
    if kept.size < 2:
        return Ordinary(centre=middle, sd=robust, count=max(2, int(values.size)))
    return Ordinary(centre=float(kept.mean()), sd=_CUT_BIAS * float(kept.std(ddof=1)), count=int(kept.size))


def repeat_noise(groups: Sequence[Floats]) -> float:
    """Ordinary sd of the logarithm from repeat to repeat of one device; 0 where no device has two."""
    residuals = [np.log(g) - np.median(np.log(g)) for g in groups if g.size > 1]
    if not residuals:
        return 0.0
    scale = [
        np.sqrt(g.size / (g.size - 1)) * r for g, r in zip([g for g in groups if g.size > 1], residuals, strict=True)
    ]
    pooled = np.concatenate(scale)
    robust = 1.4826 * float(np.median(np.abs(pooled)))
    kept = pooled[np.abs(pooled) <= _CUT * robust] if robust > 0 else pooled
    return _CUT_BIAS * float(np.sqrt((kept**2).mean()))


def median_variance(noise_sd: float, repeats: int) -> float:
    """Variance of the median of some repeats."""
    return noise_sd**2 / repeats * (1.0 if repeats < 3 else math.pi / 2)


# ---------------------------------------------------------------------------------------------------------- devices


def devices(table: Table) -> list[dict[str, Any]]:
    """Each device: its median, normalised performance with interval, and how sure it is slow or fast; slowest first."""
    groups = table.by_device()
    medians = np.array([float(np.median(g)) for g in groups.values()])
    low, high = quartile_fences(medians)
    cluster, noise = float(np.median(medians)), repeat_noise(list(groups.values()))
    sign = 1.0 if table.slow_is_high else -1.0
    slowness = sign * np.log(medians / cluster)
    few = len(groups) < FEWEST_DEVICES
    freedom = max(1, len(table.rows) - len(groups))
    normal = Ordinary(centre=0.0, sd=0.0, count=freedom + 1) if few else ordinary(slowness)
    typical = statistics.median([median_variance(noise, g.size) for g in groups.values()])
    found = []
    for (name, values), middle, slow in zip(groups.items(), medians, slowness, strict=True):
        own = median_variance(noise, values.size)
        extra = own * 2 if few else max(0.0, own - typical)
        p_slow = normal.p_above(float(slow), extra) if values.size > 1 or not few else 0.5
        p_fast = 1 - p_slow
        half = float(t_quantiles(LEVEL, freedom)) * math.sqrt(own)
        found.append({
            "device": name, "repeats": int(values.size), "median": float(middle), "normalised": float(middle / cluster),
            "low": float(middle / cluster * math.exp(-half)) if noise > 0 else None,
            "high": float(middle / cluster * math.exp(half)) if noise > 0 else None,
            "slower_percent": float(100 * (math.exp(slow) - 1)),
            "beyond_fence": None if low <= middle <= high else "slow" if slow > 0 else "fast",
            "p_slow": p_slow, "p_fast": p_fast,
            "sure_slow": bool(p_slow * len(groups) < 1 - LEVEL), "sure_fast": bool(p_fast * len(groups) < 1 - LEVEL),
            "repeat_spread_percent": 100 * float(np.ptp(values) / middle) if values.size > 1 else None,
        })  # fmt: skip
    return sorted(found, key=lambda d: -d["slower_percent"])


def straggler(table: Table, without: Sequence[str] = ()) -> dict[str, Any]:
    """What synchronous training pays for its slowest device: slowest / median, as all wait for it."""
    groups = {k: float(np.median(v)) for k, v in table.by_device().items()}
    kept = {k: v for k, v in groups.items() if k not in without}
    middle = statistics.median(groups.values())
    worst = (max if table.slow_is_high else min)(kept, key=kept.__getitem__)
    return {"slowest": worst, "cost": kept[worst] / middle if table.slow_is_high else middle / kept[worst]}


# ------------------------------------------------------------------------------------------------------ correlation


def _ranks(values: Floats) -> Floats:
    """Average ranks, ties shared."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    found: Floats = (last - (counts - 1) / 2)[inverse]
    return found


def _pearson(a: Floats, b: Floats) -> float | None:
    if a.size < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def correlations(table: Table) -> dict[str, Any]:
    """Pearson and Spearman between performance and each sensor, over rows that have both; None where one is constant."""
    columns = {"perf": np.array([r.value for r in table.rows])}
    for sensor in SENSORS:
        values = [r.sensors.get(sensor) for r in table.rows]
        columns[sensor] = np.array([math.nan if v is None else v for v in values])
    pearson: dict[str, dict[str, float | None]] = {}
    spearman: dict[str, dict[str, float | None]] = {}
    for a, x in columns.items():
        pearson[a], spearman[a] = {}, {}
        for b, y in columns.items():
            both = np.isfinite(x) & np.isfinite(y)
            pearson[a][b] = _pearson(x[both], y[both])
            spearman[a][b] = _pearson(_ranks(x[both]), _ranks(y[both])) if both.any() else None
    missing = [s for s in SENSORS if not np.isfinite(columns[s]).any()]
    constant = [k for k, v in columns.items() if np.isfinite(v).any() and np.ptp(v[np.isfinite(v)]) == 0]
    return {"pearson": pearson, "spearman": spearman, "not_measured": missing, "constant": constant}


# ---------------------------------------------------------------------------------------------------------- the whole


def analyze(table: Table) -> dict[str, Any]:
    """Everything as plain values."""
    groups = table.by_device()
    values = np.array([r.value for r in table.rows])
    medians = np.array([float(np.median(g)) for g in groups.values()])
    ranked = devices(table)
    few = len(groups) < FEWEST_DEVICES
    pull = [] if few else [d["device"] for d in ranked if d["sure_slow"]]
    counts = sorted(g.size for g in groups.values())
    cost, left = straggler(table), straggler(table, pull)
    return {
        "method": METHOD, "workload": table.workload, "what": table.what, "unit": table.unit, "simulated": table.simulated,
        "runs": len(table.rows), "devices_measured": len(groups),
        "repeats_per_device": {"least": int(counts[0]), "median": statistics.median(counts), "most": int(counts[-1])},
        "median": float(np.median(values)), "quartiles": [float(q) for q in np.percentile(values, [25, 75])],
        "variation_percent": {"definitions": VARIATIONS, "over_runs": variations(values), "over_device_medians": variations(medians)},
        "variance": variance_split(list(groups.values())),
        "correlation": correlations(table),
        "outliers": {
            "beyond_fence": {k: sum(d["beyond_fence"] == k for d in ranked) for k in ("slow", "fast")},
            "sure": {k: sum(d[f"sure_{k}"] for d in ranked) for k in ("slow", "fast")},
            "rule": f"sure: less than a {100 * (1 - LEVEL):g} % chance that any of the {len(groups)} devices were ordinary and looked so",
        },
        "straggler": {**cost, "slowest_run_over_median": _worst_run(table), "after_pulling": left},
        "pull": pull,
        "devices": ranked,
        "notes": [*table.notes, *_limits(len(groups), int(counts[-1]))],
    }  # fmt: skip


def _worst_run(table: Table) -> float:
    values = [r.value for r in table.rows]
    middle = statistics.median(values)
    return max(values) / middle if table.slow_is_high else middle / min(values)


def _limits(count: int, most_repeats: int) -> list[str]:
    notes = []
    if count == 1:
        notes.append("one device: nothing to compare it with")
    elif count < FEWEST_DEVICES:
        notes.append(
            f"{count} devices: what is normal between devices cannot be learned from so few (from {FEWEST_DEVICES} on); "
            "judged against the noise of repeats alone, and nothing is recommended for pulling"
        )
    if most_repeats == 1:
        notes.append("one repeat a device: noise cannot be told from differences between devices; repeat the study")
    return notes
