"""nvprof's GPU-trace CSV as the variability study uses it: kernels, with clock, temperature and power mixed in as pseudo-kernels.

Lines that begin with `==` are noise, the first other line names the columns, the second the units. A file is one repeat; per
device it gives the mean duration of the kernel that takes most time, and the medians of the sensors while kernels ran.
"""

import csv
import io
import re
import statistics
from pathlib import Path

from vernier.errors import ConfigError
from vernier.measure.study.analysis import Row

_TO_MS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
_TO_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SENSORS = {
    "[SM/Memory Clock (MHz)]": ("freq", 1.0),
    "[Temperature (C)]": ("temp", 1.0),
    "[Power/Limit (mW)]": ("power", 1e-3),
}
_FILE = re.compile(r"_(\d{9,})_([A-Za-z0-9-]+)")


def _data_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.startswith("==")]


def looks_like_trace(text: str) -> bool:
    lines = _data_lines(text[:20_000])
    return bool(lines) and {"Start", "Duration", "Name", "Device"} <= set(next(csv.reader(lines[:1])))


def read_trace(path: Path, text: str) -> tuple[list[Row], list[str]]:
    """One row a device, and notes."""
    lines = _data_lines(text)
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    if not rows:
        raise ConfigError(f"{path} is an nvprof trace without the line of units.")
    units, data = rows[0], rows[1:]
    to_ms, to_s = _TO_MS.get(units.get("Duration") or ""), _TO_S.get(units.get("Start") or "")
    if to_ms is None or to_s is None:
        raise ConfigError(
            f"{path}: the second line of an nvprof trace gives units; {units.get('Duration')!r} is none for Duration."
        )
    match = _FILE.search(path.stem)
    stamp, host = match.groups() if match else (path.stem, path.stem)
    found, broken = [], 0
    for device in dict.fromkeys(r.get("Device") or "" for r in data):
        mine = [r for r in data if r.get("Device") == device]
        kernels, bad = _kernels(mine, to_ms, to_s)
        broken += bad
        if kernels:
            found.append(_row(f"{host}-{_index(device)}", stamp, mine, kernels, to_s))
    notes = [f"{path.name}: {broken} trace line(s) without times left out"] if broken else []
    if not found:
        notes.append(f"{path.name} holds no kernel")
    return found, [*notes, "devices are named by host and number: a study with UUIDs can tell exchanged devices apart"]


def _index(device: str) -> str:
    """`Tesla V100-SXM2-16GB (0)` is device 0 of its host."""
    match = re.search(r"\((\d+)\)\s*$", device)
    return match.group(1) if match else device


def _kernels(rows: list[dict[str, str]], to_ms: float, to_s: float) -> tuple[dict[str, list[tuple[float, float]]], int]:
    """Kernel name -> (start s, duration ms); copies and pseudo-kernels have names in brackets."""
    found: dict[str, list[tuple[float, float]]] = {}
    broken = 0
    for row in rows:
        name = row.get("Name") or ""
        if not name or name.startswith("["):
            continue
        try:
            found.setdefault(name, []).append((float(row["Start"]) * to_s, float(row["Duration"]) * to_ms))
        except (ValueError, TypeError):
            broken += 1
    return {k: v for k, v in found.items() if v}, broken


def _row(
    device: str, stamp: str, rows: list[dict[str, str]], kernels: dict[str, list[tuple[float, float]]], to_s: float
) -> Row:
    main = max(kernels, key=lambda k: sum(d for _, d in kernels[k]))
    first, last = min(s for s, _ in kernels[main]), max(s for s, _ in kernels[main])
    samples: dict[str, list[float]] = {}
    for row in rows:
        sensor = _SENSORS.get(row.get("Name") or "")
        if sensor is None:
            continue
        try:
            at, value = float(row["Start"]) * to_s, float((row.get("System") or "").split("/")[0])
        except (ValueError, TypeError):
            continue
        if first <= at <= last:
            samples.setdefault(sensor[0], []).append(value * sensor[1])
    sensors = {name: statistics.median(samples[name]) if samples.get(name) else None for name, _ in _SENSORS.values()}
    return Row(device=device, repeat=stamp, value=statistics.fmean(d for _, d in kernels[main]), sensors=sensors)
