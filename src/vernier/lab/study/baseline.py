"""Learns a fleet's normal behaviour from its own data, and checks whether a machine belongs to the fleet.

No threshold is set by hand, only the accepted rate of false alarms. A device is slow if a normal device of this fleet,
measured as often, would be that slow with a lower probability: Student's prediction interval of the logarithm, without
the fleet's own outliers, with as few degrees of freedom as the fleet has hosts if hosts differ; wider if the fleet is
skewed or has heavy tails. Runs that something else disturbed do not count, and its fastest runs are slow too. Its
repeats are unsteady if a smaller fraction of the fleet's devices is as unsteady: a rank, so nothing is assumed about
the distribution of the noise. Sensors explain; they do not reject.
"""

import math
import statistics
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np

from vernier.config.migrations import SCHEMAS, migrated
from vernier.errors import ConfigError
from vernier.measure.estimates import Floats
from vernier.measure.student import t_limit, t_tail
from vernier.records.codec import DamagedRecord, decode, encode
from vernier.references import use
from vernier.store import read_object, write_json

from .analysis import DEFAULT_MATTER, SENSORS, SUSPICIOUS, TIMES, Table
from .noise import RepeatNoise, calm_by, calm_medians, median_variance, own_sd, repeat_noise, slowness_rows
from .outliers import FEWEST_DEVICES, binomial_tail, hosts_differ, judge, shape_of, studentized
from .records import Baseline, CheckResult, DeviceCheck, Inliers

METHOD = "vernier-baseline-2"
_METHODS = ("vernier-baseline-1", METHOD)
FALSE_ALARMS = 0.01  # per machine: `check` divides it among the machine's devices
_ODD_SHAPE = 2.0
"""Standard errors of skewness or kurtosis: a missed shape rejects healthy machines, a false one only costs power."""
_SHOW_SHAPE = 32
"""Fewer devices look normal whatever their law is."""
_TAIL_POWER = 3
"""A tail as heavy as that of Student's t3: twice as far out, an eighth as many devices."""
WORTH_KNOWING = 0.05
"""A slowdown that a user wants to find: a check that cannot find it says so."""
_LARGEST_EXPONENT = 700.0  # exp() overflows above 709.78


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Replace the file. Raises ConfigError."""
    try:
        write_json(path, {"schema": SCHEMAS["baseline"], **encode(baseline)})
    except OSError as error:
        raise ConfigError(f"Cannot write {path}: {error.strerror}.") from None


def read_baseline(path: Path) -> Baseline:
    """A baseline from its file. Raises ConfigError for anything that is not a baseline of this method."""
    advice = "Make one: vernier study baseline DIR -o FILE."
    try:
        tree = migrated("baseline", read_object(path), path)
        # Figures of different methods must not be mixed: they would be read as limits of this one.
        if tree.get("method") not in _METHODS:
            raise ConfigError(f"{path} is not a baseline of method {METHOD}. {advice}")
        return decode(Baseline, tree)
    except FileNotFoundError:
        raise ConfigError(f"There is no baseline {path}. {advice}") from None
    except DamagedRecord as error:
        raise ConfigError(f"The baseline {path} is damaged: {error}. {advice}") from None


def _exp(value: float) -> float:
    """e to the power of `value`, as large as a float can be where little data puts a limit beyond all times."""
    return math.exp(min(value, _LARGEST_EXPONENT))


def fit_inliers(values: Floats) -> Inliers:
    """Mean and standard deviation of the values that are no outliers (Rosner's test, as for the devices of a study)."""
    ordinary = values[studentized(values, np.zeros(values.size, np.int64)).ordinary]
    return Inliers(centre=float(ordinary.mean()), sd=float(ordinary.std(ddof=1)), count=ordinary.size)


def p_above(inliers: Inliers, value: float, extra_variance: float = 0.0) -> float:
    """Probability that one more inlier would be this high; counts the uncertainty of the estimate itself."""
    spread = math.sqrt(inliers.sd**2 * (1 + 1 / inliers.count) + extra_variance)
    # A fleet without any spread: whatever differs from it is certain.
    if spread == 0:
        return 0.5 if value == inliers.centre else float(value < inliers.centre)
    return t_tail((value - inliers.centre) / spread, max(1, inliers.count - 1))


def limit_above(inliers: Inliers, alpha: float, extra_variance: float = 0.0) -> float:
    """The value that one more inlier exceeds with probability `alpha`."""
    spread = math.sqrt(inliers.sd**2 * (1 + 1 / inliers.count) + extra_variance)
    return inliers.centre + t_limit(alpha, max(1, inliers.count - 1)) * spread


def _rows(table: Table) -> Floats:
    return slowness_rows(list(table.by_device().values()), table.slow_is_high)


def _spread(values: Floats) -> float | None:
    """Standard deviation of the logarithms of a device's repeats; None for a single one."""
    return float(np.log(values).std(ddof=1)) if values.size > 1 else None


def _sensor_medians(table: Table, sensor: str) -> dict[str, float]:
    readings: dict[str, list[float]] = {}
    for row in table.rows:
        if (value := row.sensors.get(sensor)) is not None:
            readings.setdefault(row.device, []).append(value)
    return {k: float(np.median(v)) for k, v in readings.items()}


def learn(table: Table) -> Baseline:
    """The baseline of a fleet. Raises ConfigError when there are too few devices or repeats to learn from."""
    groups = table.by_device()
    if len(groups) < FEWEST_DEVICES:
        raise ConfigError(f"A baseline needs at least {FEWEST_DEVICES} devices; these are {len(groups)}.")
    # `check` widens its limit by this noise: the median of fewer repeats varies more.
    slowness = _rows(table)
    noise = repeat_noise(slowness)
    if noise.sd == 0:
        raise ConfigError("A baseline needs repeats: no device was measured twice with different results.")
    slow, hosts = calm_medians(slowness, noise.calm), table.group_numbers("host")
    ordinary = studentized(slow, np.zeros(slow.size, np.int64)).ordinary
    speed = fit_inliers(slow)
    # Devices of few hosts that differ show as little as the hosts do.
    if hosts is not None and 1 < hosts.max() + 1 < slow.size and hosts_differ(slow, hosts, ordinary):
        speed = replace(speed, count=min(speed.count, int(hosts.max()) + 1))
    limit = limit_above(speed, FALSE_ALARMS / len(groups))
    # Devices that only stand out may be the tail of this fleet, or another bin of its silicon: they are part of it.
    judged = judge(slowness, noise, hosts)
    unsure = (judged.slower | judged.faster) & ~(judged.slow | judged.fast)
    skewness, excess = shape_of(slow[ordinary])
    odd = (
        speed.count < _SHOW_SHAPE
        or bool(unsure.any())
        or max(abs(skewness) / math.sqrt(6 / speed.count), excess / math.sqrt(24 / speed.count)) > _ODD_SHAPE
    )
    disturbed = float((~noise.calm & np.isfinite(slowness)).sum())
    return Baseline(
        workload=table.workload,
        what=table.what,
        unit=table.unit,
        slow_is_high=table.slow_is_high,
        simulated=table.simulated,
        devices=len(groups),
        runs=len(table.rows),
        speed=speed,
        noise_sd=float(noise.sd),
        spreads=tuple(sorted(s for v in groups.values() if (s := _spread(v)) is not None)),
        sensors={
            s: fit_inliers(np.array(list(v.values())))
            for s in SENSORS
            # Too few readings do not show what is usual; `check` then leaves this sensor out.
            if len(v := _sensor_medians(table, s)) >= FEWEST_DEVICES
        },
        set_aside=tuple(k for k, v in zip(groups, slow.tolist(), strict=True) if v > limit),
        disturbed=(disturbed + math.sqrt(disturbed) + 1) / (len(table.rows) + 1),
        furthest=float(np.abs(slow[ordinary | unsure] - speed.centre).max()) if odd else None,
        method=METHOD,
    )


def check(
    baseline: Baseline, table: Table, matter: float = DEFAULT_MATTER, control: Table | None = None
) -> CheckResult:
    """Accept or reject each device of a machine. Raises ConfigError when the two were not measured alike.

    Times in another unit are converted, with a note. A device that is slower than the fleet by less than the share
    `matter` is not rejected for that. `control` has devices of the fleet that were measured on the same day.
    """
    if control is not None:
        shift, variance = _shift_of_day(baseline, control)
        # The baseline moves to this day; how well the day is known adds to the spread of its devices.
        speed = baseline.speed
        moved = replace(speed, centre=speed.centre + shift, sd=math.hypot(speed.sd, math.sqrt(variance)))
        result = check(replace(baseline, speed=moved), table, matter)
        note = f"{100 * math.expm1(shift):+.1f} % on the day of this check, by {len(control.medians())} control devices"
        return replace(result, notes=(note, *result.notes))
    table = _in_unit_of(baseline, table)
    # After the conversion of units: seconds and milliseconds differ in `unit` only and can be compared.
    for name in ("workload", "what", "unit", "simulated"):
        learned, measured = getattr(baseline, name), getattr(table, name)
        if learned != measured:
            raise ConfigError(
                f"The baseline and this machine were not measured alike: {name} is {learned!r} in the baseline and "
                f"{measured!r} here."
            )
    _check_same_size(baseline, table)
    groups, rows = table.by_device(), _rows(table)
    # Bonferroni: the machine is rejected if one of its devices is.
    alpha = FALSE_ALARMS / len(groups)
    calm = calm_by(rows, baseline.noise_sd)
    slowness, medians = dict(zip(groups, calm_medians(rows, calm).tolist(), strict=True)), table.medians()
    own = own_sd(rows, RepeatNoise(np.array(baseline.noise_sd), np.array(1.0), calm)).tolist()
    sensors = {s: _sensor_medians(table, s) for s in baseline.sensors}
    verdicts, smallest_detectable = [], 0.0
    for i, (name, values) in enumerate(groups.items()):
        extra = median_variance(own[i], int(calm[i].sum()))
        certain = max(limit_above(baseline.speed, alpha, extra), _limit_of_tail(baseline, alpha))
        # Both must be exceeded: certainly slower than the fleet, and by enough to matter.
        limit = max(certain, baseline.speed.centre + math.log1p(matter))
        usual = limit_above(baseline.speed, alpha, median_variance(baseline.noise_sd, values.size))
        least = max(usual, _limit_of_tail(baseline, alpha)) - baseline.speed.centre
        smallest_detectable = max(smallest_detectable, _exp(least) - 1)
        disturbed = _may_be_disturbed(baseline, rows[i], limit, alpha)
        slow = () if disturbed else _slow(baseline, slowness[name], limit)
        reasons = (*slow, *_unsteady(baseline, _spread(values), alpha))
        verdicts.append(
            DeviceCheck(
                device=name,
                accepted=not reasons,
                repeats=values.size,
                median=medians[name],
                limit=_exp(limit if baseline.slow_is_high else -limit),
                p_slow=p_above(baseline.speed, slowness[name], extra),
                reasons=reasons,
                unusual=_unusual(baseline, {s: v[name] for s, v in sensors.items() if name in v}, alpha),
                remarks=_too_little(baseline, slowness[name], certain, limit)
                if slowness[name] <= limit or not disturbed
                else ("slower than the fleet, but something else may have disturbed its runs: measure more repeats",),
            )
        )
    return CheckResult(
        method=METHOD,
        accepted=all(v.accepted for v in verdicts),
        unit=table.unit,
        workload=table.workload,
        simulated=table.simulated,
        false_alarms=FALSE_ALARMS,
        matter_percent=100 * matter,
        devices=tuple(verdicts),
        notes=(*table.notes, *sensitivity_notes(baseline, table, smallest_detectable)),
    )


def _shift_of_day(baseline: Baseline, control: Table) -> tuple[float, float]:
    """By how much devices of the fleet are slower on the day of a check, and the variance of this estimate."""
    control = _in_unit_of(baseline, control)
    _check_same_size(baseline, control)
    rows = _rows(control)
    calm = calm_by(rows, baseline.noise_sd)
    noise = median_variance(baseline.noise_sd, int(calm.sum(-1).min()))
    return float(calm_medians(rows, calm).mean()) - baseline.speed.centre, (baseline.speed.sd**2 + noise) / len(rows)


def _limit_of_tail(baseline: Baseline, alpha: float) -> float:
    """What one more device exceeds with probability `alpha`, if the fleet has a heavy tail from its furthest device."""
    if baseline.furthest is None:
        return -math.inf
    further = max(1.0, 1 / (baseline.devices * alpha)) ** (1 / _TAIL_POWER)
    return float(baseline.speed.centre + baseline.furthest * further)


def _may_be_disturbed(baseline: Baseline, runs: Floats, limit: float, alpha: float) -> bool:
    """Whether a device's fastest runs are as fast as normal ones, or all its runs may have been disturbed by chance."""
    ordered = np.sort(runs[np.isfinite(runs)])
    count, quarter = ordered.size, max(ordered.size // 4, 1)
    least = np.array([count - quarter + 1])
    chance = float(binomial_tail(np.array([count]), np.array([baseline.disturbed or 0.0]), least)[0])
    # The fastest quarter of normal runs is this much faster than their median (Blom's approximation).
    faster = NormalDist().inv_cdf((quarter - 0.375) / (count + 0.25)) * baseline.noise_sd
    return bool(chance > alpha or ordered[quarter - 1] <= limit + faster)


def _in_unit_of(baseline: Baseline, table: Table) -> Table:
    """The table with its times in the baseline's unit."""
    here, there = table.unit, baseline.unit
    if here == there or here not in TIMES or there not in TIMES:
        return table
    factor = TIMES[here] / TIMES[there]
    note = f"times in {here} were converted to {there}, the unit of the baseline"
    rows = tuple(replace(row, value=factor * row.value) for row in table.rows)
    return replace(table, rows=rows, unit=there, notes=(*table.notes, note))


def _check_same_size(baseline: Baseline, table: Table) -> None:
    """Refuse a machine that would be a hundred times slower or faster than the fleet: one unit is wrong."""
    # Slowness is minus the logarithm of a rate: the sign turns it back into the table's unit.
    centre = _exp(baseline.speed.centre if baseline.slow_is_high else -baseline.speed.centre)
    typical = statistics.median(table.medians().values())
    if not 1 / SUSPICIOUS < typical / centre < SUSPICIOUS:
        raise ConfigError(
            f"This machine has {typical:g} {table.unit} and the fleet of the baseline {centre:g} {baseline.unit}: the "
            f"unit of one of them is wrong. State it with {use('units')}, here or when the baseline is learned."
        )


def _slow(baseline: Baseline, slowness: float, limit: float) -> tuple[str, ...]:
    if slowness <= limit:
        return ()
    normal = _exp(baseline.speed.centre if baseline.slow_is_high else -baseline.speed.centre)
    percent = 100 * (_exp(slowness - baseline.speed.centre) - 1)
    allowed = 100 * (_exp(limit - baseline.speed.centre) - 1)
    fleet = f"{normal:g} {baseline.unit}"
    return (f"{percent:.1f} % slower than the fleet's {fleet}; normal devices stay within {allowed:.1f} %",)


def _too_little(baseline: Baseline, slowness: float, certain: float, limit: float) -> tuple[str, ...]:
    """A slowness that is certain and does not matter."""
    if not certain < slowness <= limit:
        return ()
    percent = 100 * (_exp(slowness - baseline.speed.centre) - 1)
    return (f"certainly slower than the fleet, but by {percent:.2f} % only",)


def _unsteady(baseline: Baseline, spread: float | None, alpha: float) -> tuple[str, ...]:
    if spread is None or not baseline.spreads:
        return ()
    as_bad, count = sum(s >= spread for s in baseline.spreads), len(baseline.spreads)
    # The rank of the new device among count + 1 exchangeable ones. It cannot be below 1 / (1 + count), so that small
    # fleets never reject; `sensitivity_notes` reports that.
    if (1 + as_bad) / (1 + count) > alpha:
        return ()
    return (f"its repeats spread by {100 * spread:.1f} % (sd); {as_bad} of the fleet's {count} devices spread as much",)


def _unusual(baseline: Baseline, values: dict[str, float], alpha: float) -> tuple[str, ...]:
    """Sensors whose value would be rare in the fleet."""
    remarks = []
    for sensor, value in values.items():
        p = p_above(baseline.sensors[sensor], value)
        # Two-sided: a sensor is unusual if it is low or high.
        if min(p, 1 - p) < alpha / 2:
            remarks.append(f"{sensor} {value:g} where the fleet has {baseline.sensors[sensor].centre:g}")
    return tuple(remarks)


def sensitivity_notes(baseline: Baseline, table: Table, smallest_detectable: float) -> list[str]:
    """What this check cannot find. `smallest_detectable` is the smallest slowdown that is rejected, as a share."""
    groups, notes = table.by_device(), []
    if smallest_detectable > WORTH_KNOWING:
        notes.append(
            f"only devices that are more than {100 * smallest_detectable:.0f} % slower can be told from normal ones: "
            f"the baseline has {baseline.devices} devices whose repeats differ by {100 * baseline.noise_sd:.1f} %; "
            "learn from more devices, or from more repeats"
        )
    if len(baseline.spreads) + 1 < 1 / FALSE_ALARMS * len(groups):
        notes.append(
            f"the spread of repeats is not judged: the baseline's {len(baseline.spreads)} devices are too few for that"
        )
    if all(v.size == 1 for v in groups.values()):
        notes.append("one repeat per device: a single disturbed run can reject a good device; measure more repeats")
    return notes
