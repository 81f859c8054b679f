"""The system section: sensors of the devices while steps ran, over the same x axis as the curves of a training."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vernier.lab.records.telemetry import (
    ALL_SENSORS,
    LostSensor,
    Sample,
    TelemetryHeader,
    TelemetryRecord,
    decode_telemetry,
)
from vernier.report.page.figures import Content, Figure, Lines, Section, grid, run_legend, with_data
from vernier.report.page.html import note
from vernier.report.page.runs import Run
from vernier.report.page.sections.training import AXES, TIME, x_ranges
from vernier.report.page.training import MOST_POINTS, Point

SENSOR_TITLES = {
    "clock_mhz": "Clock, MHz",
    "power_w": "Power, W",
    "temperature_c": "Temperature, °C",
    "util_pct": "Busy, %",
    "others_pct": "Busy with other programs, %",
    "steal_pct": "Taken by the hypervisor, %",
    "mem_used_bytes": "Memory in use, GiB",
    "rss_bytes": "Memory of the run's processes, GiB",
}


def system(subjects: list[Run]) -> Content | None:
    """None where no run has telemetry."""
    runs = [s for s in subjects if any(isinstance(r, Sample) for r in decode_telemetry(s.telemetry))]
    figures = with_data(*(_figure(key, runs) for key in SENSOR_TITLES))
    if not figures:
        return None
    missing = dict.fromkeys(
        line for s in runs for _, records, _ in _hosts(s) for r in records for line in _missing_sensors(r)
    )
    parts = [run_legend(runs), grid(figures), note(f"Not measured here: {', '.join(missing)}." if missing else "")]
    return Content(lead="Sensors of the devices, while steps ran.", parts=parts, figures=figures)


def _missing_sensors(record: TelemetryRecord) -> list[str]:
    """Sensors that were not there or failed, each with the reason."""

    def name(sensor: str, *device: object) -> str:
        where = " ".join(str(part) for part in device if part is not None)
        return f"all sensors of {where}" if sensor == ALL_SENSORS else sensor

    if isinstance(record, LostSensor):
        return [f"{name(record.sensor, record.device_kind, record.device)}, later ({record.why})"]
    missing = record.missing if isinstance(record, TelemetryHeader) else ()
    return [f"{name(m.sensor, m.kind, m.device)} ({m.why})" for m in missing]


def _figure(key: str, runs: Sequence[Run]) -> Figure:
    """One sensor: a line per run and device."""
    rows = [row for s in runs for row in _curves(s, key)]
    devices = dict.fromkeys(row[1] for row in rows)
    chart = Lines(TIME, key, by="run", y_title="", zero=key.endswith(("pct", "bytes")))
    # Color tells runs apart where there are several, so devices are dashed; within one run they get the colors.
    if len(devices) > 1:
        chart = replace(chart, dash="device") if len(runs) > 1 else replace(chart, by="device")
    # Epochs are on the x axis only if every run has them: profiles and benchmarks have none.
    timed = [s for s in runs if s.points]
    if len(timed) == len(runs):
        chart = replace(chart, x="epoch", x_ranges=x_ranges(timed))
    return Figure(f"telemetry-{key}", SENSOR_TITLES[key], chart, ["run", "device", *AXES, key], rows)


def _hosts(s: Run) -> list[tuple[str, Sequence[TelemetryRecord], Sequence[Point]]]:
    """Of each host that has sensors: what its devices are called after, its samples, and its own clock's steps."""
    others = [(f"{peer.host}: ", decode_telemetry(peer.telemetry), peer.points) for peer in s.peers if peer.telemetry]
    # The host's name is needed only if there are others.
    first = next((f"{p.host}: " for p in (s.start.processes if s.start else ()) if p.rank == 0), "")
    return [(first if others else "", decode_telemetry(s.telemetry), s.points), *others]


def _curves(s: Run, key: str) -> list[list[Any]]:
    """One curve per device: run, device, epoch, step, time and value, thinned by averaging."""
    groups: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    steps: dict[str, Sequence[Point]] = {}
    for host, records, points in _hosts(s):
        steps[host] = points
        for r in records:
            if isinstance(r, Sample) and (value := getattr(r, key)) is not None:
                scaled = value / 2**30 if key.endswith("bytes") else value
                groups.setdefault((host, r.session, f"{host}{r.device_kind} {r.device}"), []).append((r.t_s, scaled))
    # A page with many devices stays small, and every curve keeps its shape.
    most = max(50, MOST_POINTS // max(1, len(groups)))
    rows: list[list[Any]] = []
    for (host, session, device), samples in groups.items():
        # Means over equal stretches: taking every n-th sample would show a clock that oscillates as constant.
        size = -(-len(samples) // most)
        thinned = np.array([np.mean(samples[at : at + size], axis=0) for at in range(0, len(samples), size)])
        moments = _moments([p for p in steps[host] if p.session == session and p.t_s is not None], thinned[:, 0])
        if s.points:
            rows += [[s.name, device, *at, v] for at, v in zip(moments, thinned[:, 1].tolist(), strict=True) if at]
        else:
            begun = thinned[0, 0]
            rows += [[s.name, device, None, None, t - begun, v] for t, v in thinned.tolist()]
    return rows


def _moments(points: Sequence[Point], times_s: Any) -> list[list[float] | None]:
    """Epoch, step and time of the run at times of the monotonic clock; None where no steps ran."""
    if not points:
        return [None] * len(times_s)
    clock = np.array([p.t_s for p in points])
    first_s = clock[0] - points[0].window.wall_s
    curves = [[p.epoch for p in points], [float(p.step or 0) for p in points], [p.time_s for p in points]]
    columns = [np.interp(times_s, clock, values) for values in curves]
    # np.interp repeats its ends outside: start-up and evaluation would pile up at the first and last step.
    inside = (times_s >= first_s) & (times_s <= clock[-1])
    return [row if ok else None for row, ok in zip(np.stack(columns, axis=1).tolist(), inside, strict=True)]


SECTION = Section(title="System", order=90, of=Run, build=system)
