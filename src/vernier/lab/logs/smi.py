"""Samples of `nvidia-smi --query-gpu=... --format=csv -l 1` and `hl-smi -Q ... -f csv -l 1`: sensors, no step times.

For each device the medians of clock, power and temperature while it was busy. They belong to a study whose step times
come from another file; `lab.reading.tables` joins the two.
"""

import csv
import re
import statistics
from collections.abc import Mapping
from pathlib import Path

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.report.logs.formats import LogFormat

from .tables import STUDY_FILE

_SENSORS = {
    "freq": ("clocks.sm", "clocks.current.sm", "clocks.gr", "clocks.current.graphics"),
    "power": ("power.draw", "power.draw.instant", "power.draw.average"),
    "temp": ("temperature.gpu", "temperature.aip"),
}
_USE = ("utilization.gpu", "utilization.aip")
_BUSY_PCT = 50.0
_NUMBER = re.compile(r"^\s*(-?\d+(?:\.\d+)?)\s*(?:MHz|W|C|%|)\s*$")
_HOST = re.compile(r"([A-Za-z][A-Za-z0-9]*-\d+)")


@frozen
class SmiDevice:
    """One device: its number and UUID as far as the columns have them, and the medians of its sensors."""

    index: str | None
    uuid: str | None
    samples: int
    sensors: dict[str, float]


def looks_like_smi(text: str) -> bool:
    names = _columns(next((line for line in text.splitlines() if line.strip()), ""))
    sensors = {name for group in _SENSORS.values() for name in group}
    return bool(sensors & set(names)) and bool({"index", "uuid", "timestamp", "name"} & set(names))


def read_smi(path: Path, text: str) -> list[SmiDevice]:
    """The devices of a file. Raises ConfigError where no column tells devices apart."""
    rows = [line for line in text.splitlines() if line.strip()]
    names = _columns(rows[0])
    if not {"index", "uuid"} & set(names):
        raise ConfigError(f"{path} does not tell devices apart: query index or uuid too (--query-gpu=index,uuid,...).")
    by_device: dict[tuple[str | None, str | None], list[Mapping[str, str]]] = {}
    for cells in csv.reader(rows[1:]):
        row = dict(zip(names, (c.strip() for c in cells), strict=False))
        by_device.setdefault((row.get("index"), row.get("uuid")), []).append(row)
    devices = [_device(index, uuid, samples) for (index, uuid), samples in by_device.items()]
    known = [d for d in devices if d.sensors]
    if not known:
        raise ConfigError(f"{path} has no sample of a clock, power or temperature that is a number.")
    return known


def host_of(path: Path) -> str | None:
    """The host in a file's name, such as smi_c196-031.csv."""
    match = _HOST.search(path.stem)
    return match[1] if match else None


def _device(index: str | None, uuid: str | None, rows: list[Mapping[str, str]]) -> SmiDevice:
    busy = [r for r in rows if (use := _value(r, _USE)) is None or use >= _BUSY_PCT] or rows
    values = {name: [v for r in busy if (v := _value(r, columns)) is not None] for name, columns in _SENSORS.items()}
    sensors = {name: statistics.median(v) for name, v in values.items() if v}
    return SmiDevice(index=index, uuid=uuid, samples=len(busy), sensors=sensors)


def _columns(line: str) -> list[str]:
    """Names without units: `power.draw [W]` is power.draw."""
    names = [name.strip() for name in line.split(",")]
    return [name.rpartition("[")[0].rstrip() if name.endswith("]") and "[" in name else name for name in names]


def _value(row: Mapping[str, str], columns: tuple[str, ...]) -> float | None:
    cell = next((row[c] for c in columns if c in row), "")
    match = _NUMBER.match(cell)
    return float(match[1]) if match else None


FORMAT = LogFormat(
    recognizes=looks_like_smi,
    about=f"looks like samples of nvidia-smi or hl-smi: sensors without step times. {STUDY_FILE}",
    order=2,
)
