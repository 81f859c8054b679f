"""nvprof's GPU-trace CSV as the SC22 variability study uses it: kernels, and sensors mixed in as pseudo-kernels.

Lines that begin with `==` are messages, the first other line names the columns, the second the units. A file is one
repeat. For each device it gives the mean duration of the kernel with the most total time, and the medians of clock,
temperature and power while that kernel ran.
"""

import csv
import io
import re
import statistics
from dataclasses import replace
from pathlib import Path

from vernier.errors import ConfigError
from vernier.lab.study.analysis import Measurement
from vernier.wording import plural

from .formats import LogFormat
from .tables import STUDY_FILE

_TO_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_TO_MS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
_SENSORS = {
    "[SM/Memory Clock (MHz)]": ("freq", 1.0),
    "[Temperature (C)]": ("temp", 1.0),
    "[Power/Limit (mW)]": ("power", 1e-3),
}
_FILE = re.compile(r"_(\d{9,})_([A-Za-z0-9-]+)")
_INDEX = re.compile(r"^.*\((\d+)\)\s*$")
"""`Tesla V100-SXM2-16GB (0)` is device 0 of its host."""
_Kernels = dict[str, list[tuple[float, float]]]
"""Kernel name -> (start in s, duration in ms) of each call."""


def _data_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.startswith("==")]


def looks_like_trace(text: str) -> bool:
    lines = _data_lines(text[:20_000])
    return bool(lines) and {"Start", "Duration", "Name", "Device"} <= set(next(csv.reader(lines[:1])))


def read_trace(path: Path, text: str) -> tuple[list[Measurement], list[str]]:
    """One row per device, and notes."""
    lines = list(csv.DictReader(io.StringIO("\n".join(_data_lines(text)))))
    if not lines:
        raise ConfigError(f"{path} is an nvprof trace without the line of units.")
    # nvprof chooses the units by file, from the largest value in each column, so they cannot be fixed here.
    units, data = lines[0], lines[1:]
    to_ms, to_s = _TO_MS.get(units.get("Duration") or ""), _TO_S.get(units.get("Start") or "")
    if to_ms is None or to_s is None:
        raise ConfigError(
            f"{path}: the second line of an nvprof trace gives units; {units.get('Duration')!r} is no unit of Duration."
        )
    # The trace itself names neither host nor repeat: the SC22 study put both into the names of its files.
    match = _FILE.search(path.stem)
    stamp, host = match.groups() if match else (path.stem, path.stem)
    rows, broken = [], 0
    for device in dict.fromkeys(r.get("Device") or "" for r in data):
        own = [r for r in data if r.get("Device") == device]
        kernels, without_times = _kernels(own, to_ms, to_s)
        broken += without_times
        if kernels:
            index = _INDEX.sub(r"\1", device)
            row = _row(f"{host}-{index}", stamp, own, kernels, to_s)
            rows.append(row if match else replace(row, log=path))
    notes = [f"{path.name}: {plural(broken, 'trace line')} without times left out"] if broken else []
    if not rows:
        notes.append(f"{path.name} has no kernel")
    return rows, [*notes, "devices are named by host and number: only a study with UUIDs can recognise a moved device"]


def _kernels(lines: list[dict[str, str]], to_ms: float, to_s: float) -> tuple[_Kernels, int]:
    """The calls of each kernel, and how many have no times; copies and sensors have names in brackets."""
    kernels: _Kernels = {}
    broken = 0
    for line in lines:
        name = line.get("Name") or ""
        # [CUDA memcpy HtoD] and the like; sensors such as [Temperature (C)] are pseudo-kernels of the same form.
        if not name or name.startswith("["):
            continue
        try:
            call = (float(line["Start"]) * to_s, float(line["Duration"]) * to_ms)
            kernels.setdefault(name, []).append(call)
        except (ValueError, TypeError):
            broken += 1
    return kernels, broken


def _row(device: str, stamp: str, lines: list[dict[str, str]], kernels: _Kernels, to_s: float) -> Measurement:
    # As the study judges devices: short kernels are dominated by the overhead of launches.
    main = max(kernels, key=lambda k: sum(d for _, d in kernels[k]))
    first, last = min(s for s, _ in kernels[main]), max(s for s, _ in kernels[main])
    samples: dict[str, list[float]] = {}
    for line in lines:
        sensor = _SENSORS.get(line.get("Name") or "")
        if sensor is None:
            continue
        try:
            start_s, value = float(line["Start"]) * to_s, float((line.get("System") or "").split("/")[0])
        except (ValueError, TypeError):
            continue
        # A clock before the first kernel is that of an idle device.
        if first <= start_s <= last:
            samples.setdefault(sensor[0], []).append(value * sensor[1])
    sensors = {name: statistics.median(samples[name]) if samples.get(name) else None for name, _ in _SENSORS.values()}
    return Measurement(
        device=device, repeat=stamp, value=statistics.fmean(d for _, d in kernels[main]), sensors=sensors
    )


FORMAT = LogFormat(recognizes=looks_like_trace, about=f"looks like an nvprof GPU trace. {STUDY_FILE}", order=1)
