"""Energy of devices over stretches of time: from their energy counters, or from power where there is no counter."""

import bisect
import itertools
from collections.abc import Sequence

from vernier.frozen import frozen
from vernier.records.run import EnergyPerImage
from vernier.records.telemetry import Sample, TelemetryHeader, TelemetryRecord

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
    if len(counter) >= 2:
        return _total(counter, spans, "counter")
    power = [(s.t_s, s.power_w) for s in samples if s.power_w is not None]
    if len(power) < 2:
        return None
    joules, points = 0.0, [(power[0][0], 0.0)]
    for (t0, w0), (t1, w1) in itertools.pairwise(power):
        joules += (t1 - t0) * (w0 + w1) / 2
        points.append((t1, joules))
    return _total(points, spans, "integrated power")


def _total(points: list[tuple[float, float]], spans: Sequence[Span], method: str) -> Energy | None:
    """The growth of a counter over the spans, linear between samples; None if samples cover less than 90 % of them."""
    first, last = points[0][0], points[-1][0]
    inside = [(max(a, first), min(b, last)) for a, b in spans]
    inside = [(a, b) for a, b in inside if b > a]
    seconds, covered_s = sum(b - a for a, b in spans), sum(b - a for a, b in inside)
    if not seconds or covered_s < 0.9 * seconds:
        return None
    joules = sum(_interpolate(points, b) - _interpolate(points, a) for a, b in inside)
    return Energy(joules=joules * seconds / covered_s, method=method, seconds=seconds)


def _interpolate(points: list[tuple[float, float]], t: float) -> float:
    right = min(max(bisect.bisect_left(points, (t,)), 1), len(points) - 1)
    (t0, v0), (t1, v1) = points[right - 1], points[right]
    return v0 + (v1 - v0) * (t - t0) / (t1 - t0) if t1 > t0 else v1


def select_devices(records: Sequence[TelemetryRecord], uuids: Sequence[str | None]) -> list[TelemetryRecord]:
    """Drop samples of accelerators that a run does not use. Keeps all if none of the UUIDs is recognised."""
    used = tuple(u.removeprefix("GPU-") for u in uuids if u)
    listed = {
        (d.kind, d.index): d.uuid
        for r in records
        if isinstance(r, TelemetryHeader)
        for d in r.devices
        if d.kind != "cpu" and d.uuid
    }
    unused = {device for device, uuid in listed.items() if not uuid.endswith(used)}
    if len(unused) == len(listed):
        return list(records)
    return [r for r in records if not isinstance(r, Sample) or (r.device_kind, r.device) not in unused]


def energy_per_image(records: Sequence[TelemetryRecord], spans: Sequence[Span], images: int) -> EnergyPerImage | None:
    """Joules per image over all accelerators, or of the CPU where there are none; None where it cannot be measured."""
    by_device: dict[tuple[str, int], list[Sample]] = {}
    for r in records:
        if isinstance(r, Sample):
            by_device.setdefault((r.device_kind, r.device), []).append(r)
    kind = min((kind for kind, _ in by_device if kind != "cpu"), default="cpu")
    energies = [measure_energy(samples, spans) for (k, _), samples in sorted(by_device.items()) if k == kind]
    measured = [e for e in energies if e is not None]
    if not images or not measured or len(measured) < len(energies):
        return None
    joules = sum(e.joules for e in measured)
    return EnergyPerImage(
        joules_per_image=joules / images,
        joules=joules,
        devices=len(measured),
        device_kind=kind,
        method=measured[0].method,
        mean_power_w=joules / measured[0].seconds,
    )
