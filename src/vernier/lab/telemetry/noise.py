"""What disturbed a measurement: other programs, the hypervisor, throttling, clock drift; from the sensors' samples."""

import os
from collections.abc import Iterable, Sequence

from vernier.lab.records.telemetry import Sample, TelemetryRecord
from vernier.records.profile import Noise

from .energy import computing_kind


def measure_noise(records: Iterable[TelemetryRecord], span: tuple[float, float], cores: int | None = None) -> Noise:
    """The noise between two moments of the samples' clock. `cores` is the number of cores of the machine.

    Throttling, clock and temperature are those of the devices that computed, and unknown where these have no sensors.
    """
    records = list(records)
    kind = computing_kind(records)
    samples = [r for r in records if isinstance(r, Sample) and span[0] <= r.t_s <= span[1]]
    # Other programs disturb the host even if an accelerator computes: its loader runs there.
    cpu = [s for s in samples if s.device_kind == "cpu"]
    used = [s for s in samples if s.device_kind == kind]
    others_pct = _mean([s.others_pct for s in cpu if s.others_pct is not None])
    return Noise(
        samples=len(samples),
        others_cores=None if others_pct is None else others_pct / 100 * (cores or os.cpu_count() or 1),
        steal_pct=_mean([s.steal_pct for s in cpu if s.steal_pct is not None]),
        throttled=_merge([s.throttle for s in used]),
        clock_drift_pct=_largest_drift_pct(used),
        temperature_c_max=max((s.temperature_c for s in used if s.temperature_c is not None), default=None),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _merge(readings: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """All reasons of throttling once; None where throttling was never read."""
    reasons = [r for r in readings if r is not None]
    return tuple(sorted(set().union(*reasons))) if reasons else None


def _largest_drift_pct(samples: Sequence[Sample]) -> float | None:
    """The largest drift of a single device's clock."""
    clocks: dict[int, list[float]] = {}
    for sample in samples:
        if sample.clock_mhz is not None:
            clocks.setdefault(sample.device, []).append(sample.clock_mhz)
    # Per device: the mean over devices would hide one that throttles while the others speed up.
    drifts = [drift for values in clocks.values() if (drift := _drift_pct(values)) is not None]
    return max(drifts, key=abs, default=None)


def _drift_pct(values: Sequence[float]) -> float | None:
    """By how much the last third's mean differs from the first third's, in percent of the latter."""
    # Thirds, not halves: a clock that falls as the device warms up differs most between begin and end.
    third = len(values) // 3
    if not third:
        return None
    first, last = sum(values[:third]) / third, sum(values[-third:]) / third
    return 100 * (last / first - 1) if first else None


def worst_noise(noises: Sequence[Noise]) -> Noise | None:
    """The worst of each disturbance over several spans; None where nothing was sampled."""
    if not noises:
        return None

    def worst(name: str) -> float | None:
        return max((v for n in noises if (v := getattr(n, name)) is not None), key=abs, default=None)

    return Noise(
        samples=sum(n.samples for n in noises),
        throttled=_merge([n.throttled for n in noises]),
        **{name: worst(name) for name in ("others_cores", "steal_pct", "clock_drift_pct", "temperature_c_max")},
    )
