"""The system section: sensors while steps ran."""

from pathlib import Path
from typing import Any

import pytest

from tests.report.run_dirs import encode_telemetry
from vernier.lab.page.system import system
from vernier.lab.records.telemetry import LostSensor, Sample, TelemetryHeader, TelemetryRecord
from vernier.measure.throughput import Window
from vernier.records.environment import MissingSensor
from vernier.report.page.figures import Lines
from vernier.report.page.runs import Run
from vernier.report.page.training import Point


def lines(*records: TelemetryRecord) -> tuple[dict[str, Any], ...]:
    """The lines of a telemetry file."""
    return tuple(map(encode_telemetry, records))


def test_devices_without_sensors_are_named_with_the_reason() -> None:
    missing = MissingSensor(kind="cuda", device=0, sensor="all", why="GPU-x is not recognised")
    section = system(
        [
            Run(
                name="run",
                path=Path("run"),
                telemetry=lines(
                    TelemetryHeader(device_kind="cuda", missing=(missing,)),
                    *(Sample(device_kind="cpu", device=0, t_s=float(t), util_pct=50.0) for t in range(3)),
                    LostSensor(device_kind="cuda", device=1, sensor="all", why="GPU is lost", t_s=2.0),
                ),
            )
        ]
    )
    assert section is not None
    text = str(section.html)
    assert "all sensors of cuda 0 (GPU-x is not recognised), all sensors of cuda 1, later (GPU is lost)" in text


def point(step: int, t_s: float, session: int = 0) -> Point:
    """Ten steps of 0.1 s that end at `t_s`."""
    window = Window(samples=320, wall_s=1.0)
    return Point(
        epoch=step / 20,
        step=step,
        time_s=step / 10,
        loss=1.0,
        lr=0.1,
        steps=10,
        window=window,
        session=session,
        t_s=t_s,
    )


def test_sensors_are_over_the_steps_of_each_session_and_not_beyond() -> None:
    samples = [
        Sample(device_kind="cpu", device=0, t_s=100.0 + t / 2, util_pct=10.0 * t, rss_bytes=2**31) for t in range(8)
    ]
    later = [Sample(device_kind="cpu", device=0, t_s=500.5, util_pct=99.0, session=1)]
    points = (point(10, 101.5), point(20, 102.5), point(30, 501.0, session=1))
    run = Run(name="run", path=Path("run"), points=points, telemetry=lines(*samples, *later))
    section = system([run])
    assert section is not None
    figures = {figure.name: figure for figure in section.figures}
    busy = figures["telemetry-util_pct"]
    assert busy.columns == ["run", "device", "epoch", "step", "time s", "util_pct"]
    assert [row[3] for row in busy.rows] == pytest.approx([10, 10, 10, 15, 20, 30])
    assert [row[5] for row in busy.rows] == [10.0, 20.0, 30.0, 40.0, 50.0, 99.0]
    assert isinstance(busy.chart, Lines)
    assert busy.chart.x == "epoch"
    assert {row[5] for row in figures["telemetry-rss_bytes"].rows} == {2.0}
