"""A variability study for the page: the analysis, and each run with the cabinet and node it happened in."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vernier.measure.study.analysis import SENSORS, Table, analyze
from vernier.measure.study.files import StudyDir, place, read_csv
from vernier.report.study.tables import read_table


@dataclass(frozen=True, kw_only=True)
class Study:
    """`found` is what `study analyze` says; `runs` have device, repeat, value, normalised, sensors, cabinet and node.

    `telemetry` holds a curve of every device: its first repeat.
    """

    found: dict[str, Any]
    runs: tuple[dict[str, Any], ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    telemetry: tuple[dict[str, Any], ...] = ()


def open_study(paths: Sequence[Path]) -> Study:
    """Study directories, or CSV files as `study analyze` reads them."""
    table = read_table(paths)
    places = {k: v for path in paths for k, v in _places(path).items()}
    settings = {k: v for path in paths if StudyDir.is_one(path) for k, v in StudyDir.open(path).meta().settings.items()}
    return Study(found=analyze(table), runs=tuple(_runs(table, places)), settings=settings, telemetry=_telemetry(paths))


def open_study_result(tree: dict[str, Any]) -> Study:
    """What `study analyze --json` printed: devices without their single runs."""
    return Study(found=tree)


def _runs(table: Table, places: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    middle = float(np.median([float(np.median(v)) for v in table.by_device().values()]))
    return [
        {
            "device": r.device,
            "repeat": r.repeat,
            "value": r.value,
            "normalised": r.value / middle,
            "cabinet": places.get(r.device, ("", ""))[0],
            "node": places.get(r.device, ("", ""))[1],
            **{s: r.sensors.get(s) for s in SENSORS},
        }
        for r in table.rows
    ]


def _places(path: Path) -> dict[str, tuple[str, str]]:
    """Device -> cabinet and node, where the study knows them."""
    if StudyDir.is_one(path):
        devices = StudyDir.open(path).meta().devices
        return {d.id: (place(d.host)[0], d.host) for d in devices}
    found = {}
    for row in read_csv(path) if path.suffix == ".csv" else ():
        cabinet, node, device = row.get("cabinet"), row.get("node"), row.get("uuid")
        if device is not None and cabinet not in (None, -1, "") and node not in (None, -1, ""):
            found[str(device)] = (str(cabinet), f"{cabinet}-{node}")
    return found


def _telemetry(paths: Sequence[Path]) -> tuple[dict[str, Any], ...]:
    rows: list[dict[str, Any]] = []
    for path in paths:
        for repeat in StudyDir.open(path).repeats() if StudyDir.is_one(path) else ():
            if repeat.repeat == 0:
                step = -(-len(repeat.telemetry) // 200) or 1
                rows += [{"device": repeat.device, **r} for r in repeat.telemetry[::step]]
    return tuple(rows)
