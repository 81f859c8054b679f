"""A fleet's ordinary behaviour, learned from its own data, and whether a machine belongs to it.

No threshold is written by hand: only the rate of false alarms one accepts. A device is judged slow when an ordinary device of this
fleet, measured as often, would be that slow with less than that chance (Student's prediction interval of the logarithm; the
fleet's own outliers are set aside first). Its repeats are judged unsteady when fewer than that share of the fleet's devices are
as unsteady: a rank, so nothing is assumed about how noise is distributed. Sensors explain; they do not reject.
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from vernier.errors import ConfigError
from vernier.measure.statistics.estimates import Floats
from vernier.measure.study.analysis import (
    FEWEST_DEVICES,
    SENSORS,
    Ordinary,
    Table,
    median_variance,
    ordinary,
    repeat_noise,
)

METHOD = "vernier-baseline-1"
FALSE_ALARMS = 0.01
WORTH_KNOWING = 0.05
"""A slowness that one wants to find: where a baseline cannot, it says so."""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What is ordinary. `speed` is of the logarithm of each device's median, counted so that slow is up."""

    workload: str
    what: str
    unit: str
    slow_is_high: bool
    simulated: bool
    devices: int
    runs: int
    speed: Ordinary
    noise_sd: float
    spreads: tuple[float, ...]
    sensors: dict[str, Ordinary] = field(default_factory=dict)
    set_aside: tuple[str, ...] = ()
    method: str = METHOD

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, tree: Any) -> "Baseline":
        """Raises ConfigError for anything else than a baseline of this method."""
        if not isinstance(tree, dict) or tree.get("method") != METHOD:
            raise ConfigError(
                f"This is not a baseline of method {METHOD}. Make one: vernier study baseline DIR -o FILE."
            )
        try:
            given = {
                **tree, "speed": Ordinary(**tree["speed"]), "spreads": tuple(map(float, tree["spreads"])),
                "sensors": {k: Ordinary(**v) for k, v in tree["sensors"].items()}, "set_aside": tuple(tree["set_aside"]),
            }  # fmt: skip
            return cls(**given)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"The baseline is damaged: {error}.") from None


def _slowness(table: Table) -> dict[str, float]:
    sign = 1.0 if table.slow_is_high else -1.0
    return {name: sign * math.log(float(np.median(values))) for name, values in table.by_device().items()}


def _spread(values: Floats) -> float | None:
    """How unsteady a device's repeats are: sd of the logarithm."""
    return float(np.log(values).std(ddof=1)) if values.size > 1 else None


def _sensor_medians(table: Table, sensor: str) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for row in table.rows:
        value = row.sensors.get(sensor)
        if value is not None:
            found.setdefault(row.device, []).append(value)
    return {k: float(np.median(v)) for k, v in found.items()}


def learn(table: Table) -> Baseline:
    """Raises ConfigError when there are too few devices or repeats to learn from."""
    groups = table.by_device()
    if len(groups) < FEWEST_DEVICES:
        raise ConfigError(f"A baseline needs at least {FEWEST_DEVICES} devices; these are {len(groups)}.")
    noise = repeat_noise(list(groups.values()))
    if noise == 0:
        raise ConfigError("A baseline needs repeats: no device was measured twice with different results.")
    slow = _slowness(table)
    speed = ordinary(np.array(list(slow.values())))
    limit = speed.limit_above(FALSE_ALARMS / len(groups))
    sensors = {
        s: ordinary(np.array(list(v.values())))
        for s in SENSORS
        if len(v := _sensor_medians(table, s)) >= FEWEST_DEVICES
    }
    return Baseline(
        workload=table.workload, what=table.what, unit=table.unit, slow_is_high=table.slow_is_high, simulated=table.simulated,
        devices=len(groups), runs=len(table.rows), speed=speed, noise_sd=noise,
        spreads=tuple(sorted(s for v in groups.values() if (s := _spread(v)) is not None)),
        sensors=sensors, set_aside=tuple(k for k, v in slow.items() if v > limit),
    )  # fmt: skip


def check(baseline: Baseline, table: Table) -> dict[str, Any]:
    """Accept or reject each device of a machine. Raises ConfigError when the two were not measured alike."""
    for what in ("workload", "what", "unit", "simulated"):
        ours, theirs = getattr(baseline, what), getattr(table, what)
        if ours != theirs:
            raise ConfigError(
                f"The baseline and this machine were not measured alike: {what} is {ours!r} there, {theirs!r} here."
            )
    groups, slow = table.by_device(), _slowness(table)
    alpha = FALSE_ALARMS / len(groups)
    least = 0.0
    hints = {s: _sensor_medians(table, s) for s in baseline.sensors}
    judged = []
    for name, values in groups.items():
        extra = median_variance(baseline.noise_sd, values.size)
        limit = baseline.speed.limit_above(alpha, extra)
        least = max(least, math.exp(limit - baseline.speed.centre) - 1)
        reasons = _slow(baseline, slow[name], limit) + _unsteady(baseline, _spread(values), alpha)
        judged.append({
            "device": name, "accepted": not reasons, "repeats": int(values.size), "median": float(np.median(values)),
            "limit": math.exp(limit if baseline.slow_is_high else -limit),
            "p_slow": baseline.speed.p_above(slow[name], extra), "reasons": reasons,
            "unusual": _unusual(baseline, {s: v[name] for s, v in hints.items() if name in v}, alpha),
        })  # fmt: skip
    return {
        "method": METHOD, "accepted": all(j["accepted"] for j in judged), "unit": table.unit, "workload": table.workload,
        "simulated": table.simulated, "false_alarms": FALSE_ALARMS, "devices": judged,
        "notes": [*table.notes, *_blind(baseline, table, least)],
    }  # fmt: skip


def _slow(baseline: Baseline, slowness: float, limit: float) -> list[str]:
    if slowness <= limit:
        return []
    ordinary_value = math.exp(baseline.speed.centre if baseline.slow_is_high else -baseline.speed.centre)
    percent = 100 * (math.exp(slowness - baseline.speed.centre) - 1)
    allowed = 100 * (math.exp(limit - baseline.speed.centre) - 1)
    return [
        f"{percent:.1f} % slower than the fleet's {ordinary_value:g} {baseline.unit}; ordinary devices stay within {allowed:.1f} %"
    ]


def _unsteady(baseline: Baseline, spread: float | None, alpha: float) -> list[str]:
    if spread is None or not baseline.spreads:
        return []
    as_bad = sum(s >= spread for s in baseline.spreads)
    if (1 + as_bad) / (1 + len(baseline.spreads)) > alpha:
        return []
    return [
        f"its repeats spread by {100 * spread:.1f} % (sd); {as_bad} of the fleet's {len(baseline.spreads)} devices do so"
    ]


def _unusual(baseline: Baseline, values: dict[str, float], alpha: float) -> list[str]:
    found = []
    for sensor, value in values.items():
        p = baseline.sensors[sensor].p_above(value)
        if min(p, 1 - p) < alpha / 2:
            found.append(f"{sensor} {value:g} where the fleet has {baseline.sensors[sensor].centre:g}")
    return found


def _blind(baseline: Baseline, table: Table, least: float) -> list[str]:
    """What could not be seen; `least` is by how much a device must be slower to be rejected."""
    notes = []
    if least > WORTH_KNOWING:
        notes.append(
            f"only devices that are more than {100 * least:.0f} % slower can be told from ordinary ones: {baseline.devices} devices, "
            f"whose repeats differ by {100 * baseline.noise_sd:.1f} %, teach no more; learn from more of them, or from more repeats"
        )
    if len(baseline.spreads) + 1 < 1 / FALSE_ALARMS * len(table.by_device()):
        notes.append(
            f"steadiness of repeats is not judged: the baseline's {len(baseline.spreads)} devices are too few for that"
        )
    if all(v.size == 1 for v in table.by_device().values()):
        notes.append("one repeat a device: a single disturbed run can reject a good device; repeat")
    return notes
