"""Reads what a study, ours or another's, left: study directories, the SC22 CSVs, nvprof traces, logs of runs, any CSV.

Units are known for the forms of others, read off a column's name ("time_ms", "duration (ms)"), or asked for. Rows that cannot
be (no number, no time, a temperature of 900 degrees) are left out and counted; exact copies are counted and kept unless told otherwise.
"""

import csv
import io
import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError, did_you_mean
from vernier.measure.study.analysis import Row, Table
from vernier.measure.study.files import StudyDir, csv_text, read_csv
from vernier.records.environment import Environment
from vernier.report.logs import dllogger, mllog
from vernier.report.logs.model import RunLog
from vernier.report.logs.nvprof import looks_like_trace, read_trace
from vernier.report.logs.reading import open_logs, read_text
from vernier.store import find_runs

TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0}
FIELDS = ("perf", "device", "repeat", "freq", "power", "temp", "workload")
SENSOR_UNITS = {"freq": {"MHz": 1.0, "GHz": 1000.0, "kHz": 1e-3}, "power": {"W": 1.0, "mW": 1e-3}, "temp": {"C": 1.0}}
POSSIBLE = {"freq": (0.0, 10_000.0), "power": (0.0, 3_000.0), "temp": (-50.0, 150.0)}
_SUSPICIOUS = 100.0
_ITERATION = re.compile(r"Iteration Duration (\d+) (\d+) : ([0-9.eE+-]+)")
_ITERATION_FILE = re.compile(r"iterdur_(\d+)_([A-Za-z0-9-]+)")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the user says about foreign columns: our name -> theirs, our name -> unit."""

    columns: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    drop_duplicates: bool = False


@dataclass
class _Part:
    """What one file came to. `values` are in `unit`."""

    unit: str
    what: str
    rows: list[Row] = field(default_factory=list)
    workloads: set[str] = field(default_factory=set)
    simulated: bool = False
    notes: list[str] = field(default_factory=list)


def parse_pairs(text: str | None, flag: str, known: Sequence[str]) -> dict[str, str]:
    """`perf=time,device=uuid` as a dictionary; names must be ours."""
    found = {}
    for pair in filter(None, (text or "").split(",")):
        name, equals, value = (x.strip() for x in pair.partition("="))
        if not equals or not value:
            raise ConfigError(f"{flag} wants NAME=VALUE with commas between, not {pair!r}.")
        if name not in known:
            raise ConfigError(f"{flag}: unknown name {name!r}. {did_you_mean(name, known)}")
        found[name] = value
    return found


def read_table(paths: Sequence[Path], asked: Asked | None = None) -> Table:
    """One table of everything given. Raises ConfigError naming what is missing."""
    asked = asked or Asked()
    parts = [part for path in paths for part in _parts(path, asked)]
    notes = [n for p in parts for n in p.notes]
    parts = [p for p in parts if p.rows]
    if not parts:
        raise ConfigError(f"No usable row in {', '.join(map(str, paths))}. {'; '.join(notes)}".strip())
    workloads = sorted({w for p in parts for w in p.workloads if w})
    if len(workloads) > 1:
        raise ConfigError(f"These rows are of different workloads ({', '.join(workloads)}): analyse each alone.")
    simulated = {p.simulated for p in parts}
    if len(simulated) > 1:
        raise ConfigError("Simulated and real devices cannot be analysed together.")
    unit, rows = _one_unit(parts, notes)
    _refuse_mixed_scales(rows, unit)
    return Table(
        rows=tuple(rows), unit=unit, what=parts[0].what, workload=workloads[0] if workloads else "",
        slow_is_high=unit in TIMES, simulated=simulated.pop(), notes=tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def _one_unit(parts: Sequence[_Part], notes: list[str]) -> tuple[str, list[Row]]:
    units = sorted({p.unit for p in parts})
    if len(units) == 1:
        return units[0], [r for p in parts for r in p.rows]
    if not all(u in TIMES for u in units):
        raise ConfigError(f"Performance is given in {' and '.join(units)}, which cannot be put into one table.")
    notes.append(f"times in {' and '.join(units)} were put into seconds")
    return "s", [
        Row(device=r.device, repeat=r.repeat, value=r.value * TIMES[p.unit], sensors=r.sensors)
        for p in parts
        for r in p.rows
    ]


def _refuse_mixed_scales(rows: Sequence[Row], unit: str) -> None:
    medians = {d: float(statistics.median(v.value for v in rows if v.device == d)) for d in {r.device for r in rows}}
    slow, fast = max(medians, key=medians.__getitem__), min(medians, key=medians.__getitem__)
    if medians[slow] > _SUSPICIOUS * medians[fast]:
        raise ConfigError(
            f"{slow} has {medians[slow]:g} {unit} where {fast} has {medians[fast]:g}: the units seem to be mixed. "
            "Analyse the files apart, or put them into one unit first."
        )


def _parts(path: Path, asked: Asked) -> list[_Part]:
    if not path.exists():
        raise ConfigError(f"{path} does not exist.")
    if not path.is_dir():
        return [_file(path, asked)]
    if StudyDir.is_one(path):
        return [_study(StudyDir.open(path))]
    if find_runs(path) or any(path.glob("*.jsonl")):
        return [_runs(open_logs(path))]
    inside = sorted(
        p for p in path.rglob("*") if p.suffix in (".csv", ".txt", ".log", ".json") and p.name != "LICENSE.txt"
    )
    if not inside:
        raise ConfigError(f"{path} holds neither a study, nor runs, nor CSV files or logs.")
    return [_file(p, asked) for p in inside]


def _file(path: Path, asked: Asked) -> _Part:
    text = read_text(path)
    if not text.strip():
        raise ConfigError(f"{path} is empty.")
    if mllog.PREFIX in text or dllogger.PREFIX in text or text.lstrip().startswith("{"):
        return _runs(open_logs(path))
    if _ITERATION.search(text):
        return _iteration_file(path, text)
    if looks_like_trace(text):
        rows, notes = read_trace(path, text)
        return _Part(unit="ms", what="mean duration of the kernel that takes most time", rows=rows, notes=notes)
    return _csv(path, text, asked)


# -------------------------------------------------------------------------------------------------------- our studies


def _study(study: StudyDir) -> _Part:
    meta = study.meta()
    rows = study.table()
    cells = csv_text(list(rows[0]) if rows else ["uuid"], rows)
    part = _Part(unit="s", what="median iteration", simulated=meta.simulated, workloads={meta.workload})
    for row in csv.DictReader(io.StringIO(cells)):
        sensors = {"freq": row["freq"], "power": row["pwr"], "temp": row["temp"]}
        part.rows.append(
            Row(
                device=row["uuid"], repeat=row["reps"], value=float(row["med_iter_dur"]),
                sensors={k: float(v) if v else None for k, v in sensors.items()},
            )
        )  # fmt: skip
    expected = len(meta.devices) * meta.repeats
    if len(rows) < expected:
        part.notes.append(
            f"{study.path.name} has {len(rows)} of {expected} repeats: it was cut short or is still running"
        )
    part.notes += [f"{r.device}, repeat {r.repeat}: {n}" for r in study.repeats() for n in r.notes]
    return part


def _runs(runs: Sequence[RunLog]) -> _Part:
    """Runs as repeats: the device is what they ran on, as far as the log says."""
    epochs = runs[0].format == "mllog"
    part = _Part(unit="s", what="median epoch" if epochs else "median step")
    for number, run in enumerate(runs):
        times = [s.seconds for s in run.steady_steps]
        part.notes += run.notes
        if not times:
            part.notes.append(f"{run.path} records no steps")
            continue
        part.rows.append(
            Row(device=_device_of(run), repeat=f"{run.path.name}#{number}", value=statistics.median(times))
        )
        part.workloads.add(str(run.settings.get("submission_benchmark") or run.settings.get("arch") or ""))
    return part


def _device_of(run: RunLog) -> str:
    environment = run.environment or Environment()
    uuid = environment.devices[0].uuid if environment.devices else None
    return str(uuid or environment.host or run.settings.get("submission_platform") or run.path.stem)


def _iteration_file(path: Path, text: str) -> _Part:
    """The study's raw `Iteration Duration` lines; the first iteration of each device is dropped."""
    times: dict[str, list[float]] = {}
    for _, device, seconds in _ITERATION.findall(text):
        times.setdefault(device, []).append(float(seconds))
    match = _ITERATION_FILE.search(path.name)
    stamp, host = match.groups() if match else (path.stem, path.stem)
    part = _Part(unit="s", what="median iteration")
    for device, values in times.items():
        if len(values) > 1:
            part.rows.append(Row(device=f"{host}-{device}", repeat=stamp, value=statistics.median(values[1:])))
    part.notes.append("devices are named by host and number: a study with UUIDs can tell exchanged devices apart")
    return part


# ---------------------------------------------------------------------------------------------------------------- CSV


@dataclass(frozen=True)
class _Layout:
    """Which columns hold what, and the unit of the performance column."""

    columns: Mapping[str, str]
    unit: str | None
    what: str


def _layout(path: Path, names: Sequence[str], asked: Asked) -> _Layout:
    have = set(names)
    if missing := [c for c in asked.columns.values() if c not in have]:
        raise ConfigError(f"{path} has no column {missing[0]!r}. {did_you_mean(missing[0], names)}")
    known: dict[str, str] = {}
    unit, what = None, "performance"
    if {"perf", "uuid"} <= have:
        known, unit, what = {"perf": "perf", "device": "uuid"}, "ms", "median iteration or mean kernel (perf)"
    elif "med_iter_dur" in have:
        known, unit, what = {"perf": "med_iter_dur", "repeat": "reps"}, "s", "median iteration"
    elif "mean_iter_dur_median" in have:
        known, unit, what = {"perf": "mean_iter_dur_median"}, "s", "median over repeats of the mean iteration"
    known |= {"freq": "freq", "power": "pwr", "temp": "temp", "workload": "exp"} if known else {}
    if "uuid" in have:
        known.setdefault("device", "uuid")
    columns = {k: v for k, v in known.items() if v in have} | dict(asked.columns)
    if asked.columns.get("perf", columns.get("perf")) != known.get("perf"):
        unit, what = None, columns.get("perf", "performance")
    return _Layout(columns, asked.units.get("perf") or unit or _unit_in_name(columns.get("perf", "")), what)


def _unit_in_name(name: str) -> str | None:
    """`time_ms`, `duration (ms)`, `time [s]`."""
    match = re.search(r"(?:_|\(|\[|\s)(s|ms|us|ns|min|[A-Za-z]+/s)[)\]]?$", name.strip())
    return match.group(1) if match else None


def _csv(path: Path, text: str, asked: Asked) -> _Part:
    rows = read_csv(path)
    names = [n for n in next(csv.reader(io.StringIO(text))) if n]
    layout = _layout(path, names, asked)
    place = {"cabinet", "node", "device"} <= set(names)
    if "perf" not in layout.columns or ("device" not in layout.columns and not place):
        missing = "performance" if "perf" not in layout.columns else "the device"
        raise ConfigError(
            f"{path} has no column that is known to hold {missing}. Say which: --columns perf=...,device=... of {', '.join(names)}."
        )
    part = _Part(unit="", what=layout.what)
    if not rows:
        raise ConfigError(f"{path} has column names but no rows.")
    copies = len(rows) - len({tuple(r.items()) for r in rows})
    if copies:
        part.notes.append(
            f"{path.name}: {copies} of {len(rows)} rows are exact copies of others, "
            + ("left out" if asked.drop_duplicates else "kept (--drop-duplicates leaves them out)")
        )
    kept = list({tuple(r.items()): r for r in rows}.values()) if asked.drop_duplicates else list(rows)
    _fill(part, path, kept, layout, asked)
    return part


def _fill(part: _Part, path: Path, rows: Sequence[Mapping[str, Any]], layout: _Layout, asked: Asked) -> None:
    cells = [_number_and_unit(r.get(layout.columns["perf"])) for r in rows]
    units = _column_units(path, cells, layout)
    _check_units(path, units, asked)
    mixed = len(units) > 1
    part.unit = "s" if mixed else next(iter(units), layout.unit or "")
    if mixed:
        part.notes.append(f"{path.name}: {' and '.join(sorted(units))} in one column, put into seconds")
    left_out: Counter[str] = Counter()
    unmeasured: Counter[str] = Counter()
    numbered: Counter[str] = Counter()
    for row, (value, unit) in zip(rows, cells, strict=True):
        device = _device(row, layout)
        if value is None or not math.isfinite(value) or value <= 0 or not device:
            left_out[_why_unusable(device, value)] += 1
            continue
        scale = TIMES[unit or layout.unit or "s"] if mixed else 1.0
        repeat = row.get(layout.columns.get("repeat", ""), numbered[device])
        numbered[device] += 1
        sensors = {s: _sensor(s, row.get(layout.columns.get(s, "")), asked, unmeasured) for s in SENSOR_UNITS}
        part.rows.append(Row(device=device, repeat=str(repeat), value=value * scale, sensors=sensors))
        part.workloads.add(str(row.get(layout.columns.get("workload", "")) or ""))
        part.simulated |= str(row.get("simulated") or "0") not in ("0", "False", "false")
    part.notes += [f"{path.name}: {count} row(s) with {why}: left out" for why, count in left_out.items()]
    part.notes += [f"{path.name}: {count} {why}: taken as not measured" for why, count in unmeasured.items()]


def _column_units(path: Path, cells: Sequence[tuple[float | None, str | None]], layout: _Layout) -> set[str]:
    """The units in the cells themselves, and the column's where a cell has none."""
    in_cells = {unit for value, unit in cells if value is not None and unit}
    if not any(value is not None and not unit for value, unit in cells):
        return in_cells
    if layout.unit is None:
        some = f" in every row ({', '.join(sorted(in_cells))} in some)" if in_cells else ""
        raise ConfigError(
            f"{path} does not say in which unit {layout.columns['perf']!r} is{some}. "
            "Say it: --units perf=ms (or s, us, ns, min; img/s or another rate)."
        )
    return in_cells | {layout.unit}


def _why_unusable(device: str, value: float | None) -> str:
    if not device:
        return "no device"
    return "no performance" if value is None or not math.isfinite(value) else "performance not above 0"


def _check_units(path: Path, units: set[str], asked: Asked) -> None:
    known = [*TIMES, "img/s", "it/s", "GFLOP/s", "TFLOP/s", "GB/s"]
    for unit in units:
        if unit not in TIMES and not unit.endswith("/s"):
            raise ConfigError(f"{path}: {unit!r} is not a unit of performance known here. {did_you_mean(unit, known)}")
    if len(units) > 1 and not all(u in TIMES for u in units):
        raise ConfigError(f"{path} mixes {' and '.join(sorted(units))} in one column.")
    for sensor, table in SENSOR_UNITS.items():
        if sensor in asked.units and asked.units[sensor] not in table:
            raise ConfigError(f"--units {sensor}={asked.units[sensor]}: use {' or '.join(table)}.")


def _number_and_unit(cell: Any) -> tuple[float | None, str | None]:
    """117.5, or "117.5 ms"."""
    if isinstance(cell, int | float):
        return float(cell), None
    match = re.match(r"^\s*([+-]?[0-9.]+(?:[eE][+-]?\d+)?)\s*([A-Za-z/]+)\s*$", str(cell or ""))
    return (float(match.group(1)), match.group(2)) if match else (None, None)


def _device(row: Mapping[str, Any], layout: _Layout) -> str:
    if "device" in layout.columns:
        found = row.get(layout.columns["device"])
        return "" if found is None else str(found)
    parts = [row.get(c) for c in ("cabinet", "node", "device")]
    return "-".join(str(p) for p in parts if p is not None)


def _sensor(name: str, cell: Any, asked: Asked, impossible: Counter[str]) -> float | None:
    if not isinstance(cell, int | float) or not math.isfinite(cell):
        return None
    value = cell * SENSOR_UNITS[name][asked.units.get(name) or next(iter(SENSOR_UNITS[name]))]
    low, high = POSSIBLE[name]
    if not low < value <= high:
        impossible[
            f"impossible value(s) of {name} (e.g. {value:g} {next(iter(SENSOR_UNITS[name]))}; another unit? --units {name}=...)"
        ] += 1
        return None
    return value
