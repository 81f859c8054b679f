"""Energy of devices over stretches of time: from their energy counters, or from power where there is no counter."""

import bisect
import itertools
from collections.abc import Iterable, Sequence

from vernier.frozen import frozen
from vernier.lab.records.telemetry import ALL_SENSORS, LostSensor, Sample, TelemetryHeader, TelemetryRecord
from vernier.records.run import EnergyPerImage

Span = tuple[float, float]
"""First and last second of a stretch of time, on the clock of the samples."""


@frozen
class Energy:
    """Joules over some spans of `seconds` in total. `method` is `counter` or `integrated power`."""

    joules: float
    method: str
    seconds: float


def measure_energy(samples: Sequence[Sample], spans: Sequence[Span]) -> Energy | None:
    """Energy of one device over spans that its samples cover; None without a counter or a power reading."""
    counter = [(s.t_s, s.energy_j) for s in samples if s.energy_j is not None]
    # The counter comes first: it integrates in hardware at kilohertz, samples of power miss peaks between them.
    if len(counter) >= 2:
        return _total(counter, spans, "counter")
    power = [(s.t_s, s.power_w) for s in samples if s.power_w is not None]
    if len(power) < 2:
        return None
    joules, points = 0.0, [(power[0][0], 0.0)]
    for (t0, w0), (t1, w1) in itertools.pairwise(power):
        # Trapezoids: samples are rarely evenly spaced, as a busy machine delays the sampling thread.
        joules += (t1 - t0) * (w0 + w1) / 2
        points.append((t1, joules))
    return _total(points, spans, "integrated power")


def _total(points: list[tuple[float, float]], spans: Sequence[Span], method: str) -> Energy | None:
    """The growth of a counter over the spans, linear between samples; None if samples cover less than 90 % of them."""
    first, last = points[0][0], points[-1][0]
    inside = [(max(a, first), min(b, last)) for a, b in spans]
    inside = [(a, b) for a, b in inside if b > a]
    seconds, covered_s = sum(b - a for a, b in spans), sum(b - a for a, b in inside)
    # Up to a tenth may be missing at the ends, where the thread had not started; it is extrapolated below.
    if not seconds or covered_s < 0.9 * seconds:
        return None
    joules = sum(_interpolate(points, b) - _interpolate(points, a) for a, b in inside)
    return Energy(joules=joules * seconds / covered_s, method=method, seconds=seconds)


def _interpolate(points: list[tuple[float, float]], t: float) -> float:
    right = min(max(bisect.bisect_left(points, (t,)), 1), len(points) - 1)
    (t0, v0), (t1, v1) = points[right - 1], points[right]
    return v0 + (v1 - v0) * (t - t0) / (t1 - t0) if t1 > t0 else v1


def computing_kind(records: Iterable[TelemetryRecord]) -> str:
    """The kind of device whose samples describe the computation; the host's are in every file too."""
    records = list(records)
    stated = [r.device_kind for r in records if isinstance(r, TelemetryHeader) and r.device_kind]
    sampled = sorted({r.device_kind for r in records if isinstance(r, Sample)} - {"cpu"})
    return next(iter([*stated[-1:], *sampled]), "cpu")  # files of earlier versions do not state it


@frozen
class EnergyOutcome:
    """The energy per image, or in words why it is not known."""

    energy: EnergyPerImage | None = None
    energy_missing: str | None = None


def energy_per_image(records: Sequence[TelemetryRecord], spans: Sequence[Span], images: int) -> EnergyOutcome:
    """Joules per image over all devices that computed. Unknown where that of a single one of them is."""
    kind = computing_kind(records)
    by_device: dict[int, list[Sample]] = {}
    for r in records:
        if isinstance(r, Sample) and r.device_kind == kind:
            by_device.setdefault(r.device, []).append(r)
    energies = [measure_energy(samples, spans) for _, samples in sorted(by_device.items())]
    measured = [e for e in energies if e is not None]
    complete = bool(images and measured) and len(measured) == len(energies)
    if why := _why_unknown(records, kind, complete=complete):
        return EnergyOutcome(energy_missing=why)
    # Devices that computed together: their energies add up, their times are the same.
    joules = sum(e.joules for e in measured)
    return EnergyOutcome(
        energy=EnergyPerImage(
            joules_per_image=joules / images,
            joules=joules,
            devices=len(measured),
            device_kind=kind,
            method=measured[0].method,
            mean_power_w=joules / measured[0].seconds,
        )
    )


def _why_unknown(records: Sequence[TelemetryRecord], kind: str, *, complete: bool) -> str | None:
    """Why the energy of these devices is not known; None where each was sampled and measured."""
    if not records:
        return "sensors were not read (machine.telemetry_hz=0)"
    headers = [r for r in records if isinstance(r, TelemetryHeader)]
    missing = {(m.device, m.sensor): m.why for h in headers for m in h.missing if m.kind == kind}
    unknown = [why for (_, sensor), why in missing.items() if sensor == ALL_SENSORS]
    if unknown or complete:
        return unknown[0] if unknown else None
    lost = [r.why for r in records if isinstance(r, LostSensor) and r.device_kind == kind]
    without = [why for (_, sensor), why in missing.items() if sensor == "energy_j"]
    return next(iter([*lost, *without]), "the samples cover less than nine tenths of the time")
