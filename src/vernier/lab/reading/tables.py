"""Reads the tables of studies: study directories, the SC22 CSVs, nvprof traces, logs of runs, any other CSV.

Which column of a CSV holds what is found by `columns`, and its unit by `units`.
Impossible rows (no number, no time, a temperature of 900 degrees) are dropped and counted; exact copies are counted,
and dropped on request. The analysis of a table is in `lab.study.analysis`.
"""

import math
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vernier.errors import ConfigError, did_you_mean
from vernier.lab.logs.nvprof import looks_like_trace, read_trace
from vernier.lab.logs.smi import looks_like_smi, read_smi
from vernier.lab.logs.tables import is_table
from vernier.lab.study.analysis import SUSPICIOUS, TIMES, Measurement, Table
from vernier.lab.study.files import StudyDir
from vernier.records.bench import Cell
from vernier.records.environment import Environment
from vernier.references import given, use
from vernier.report.logs.formats import reader_of
from vernier.report.logs.model import RunLog
from vernier.report.logs.reading import describe_content, open_logs, read_text
from vernier.store import find_runs
from vernier.store.csv_tables import CsvRow, read_csv
from vernier.wording import plural

from .columns import VALUE, ColumnOptions, Layout, find_layout, missing_unit, with_known_names
from .sensors import SensorFile, describe_sensors, join_sensors
from .units import SENSOR_UNITS

STUDY_KINDS = (
    "a study directory, a CSV with one row per measurement, iteration durations or nvprof traces of the SC22 study, "
    "run directories, or logs of NVIDIA's, MLPerf's, Habana's or TensorFlow's scripts"
)
# In MHz, W and °C. The lower end is excluded: a clock or power of 0 was not measured.
POSSIBLE = {"freq": (0.0, 10_000.0), "power": (0.0, 3_000.0), "temp": (-50.0, 150.0)}
_STUDY_SENSORS = {"freq": "clock_mhz", "power": "power_w", "temp": "temperature_c"}
_ITERATION = re.compile(r"Iteration Duration (\d+) (\d+) : ([0-9.eE+-]+)")
_VALUE = re.compile(r"^\s*([+-]?[0-9.]+(?:[eE][+-]?\d+)?)\s*([A-Za-z/]*)\s*$")
# The SC22 study's files have the time stamp and the host in their names.
_ITERATION_FILE = re.compile(r"iterdur_(\d+)_([A-Za-z0-9-]+)")


@dataclass
class _Part:
    """The rows of one file. Their values are in `unit`."""

    unit: str
    what: str
    rows: list[Measurement] = field(default_factory=list)
    workloads: set[str] = field(default_factory=set)
    simulated: bool = False
    notes: list[str] = field(default_factory=list)
    sensors: SensorFile | None = None
    """Sensors of devices whose times are in other files."""


def read_table(paths: Sequence[Path], options: ColumnOptions | None = None) -> Table:
    """One table of all files. Raises ConfigError naming what is missing."""
    options = options or ColumnOptions()
    parts = [part for path in paths for part in _parts(path, options)]
    notes = [n for p in parts for n in p.notes]  # before parts are dropped: the notes explain why
    sensors = [p.sensors for p in parts if p.sensors]
    parts = [p for p in parts if p.rows]
    if sensors and not parts:
        raise ConfigError(f"{describe_sensors(sensors)} Give files with step times too: {STUDY_KINDS}.")
    if not parts:
        raise ConfigError(f"No usable row in {', '.join(map(str, paths))}. {'; '.join(notes)}".strip())
    workloads = sorted({w for p in parts for w in p.workloads if w})
    if len(workloads) > 1:
        raise ConfigError(
            f"These rows are of different workloads ({', '.join(workloads)}). Analyse one workload at a time."
        )
    simulated = {p.simulated for p in parts}
    if len(simulated) > 1:
        raise ConfigError("Simulated and real devices cannot be analysed together.")
    unit, rows = _one_unit(parts, notes)
    rows = join_sensors(rows, sensors, notes)
    table = Table(
        rows=tuple(rows),
        unit=unit,
        what=parts[0].what,
        workload=workloads[0] if workloads else "",
        slow_is_high=unit in TIMES,
        simulated=simulated.pop(),
        notes=tuple(dict.fromkeys(notes)),
    )
    # After the conversion to one unit, so that such a factor between devices means a wrong unit in a file.
    medians = [(median, device) for device, median in table.medians().items()]
    (low, low_device), (high, high_device) = min(medians), max(medians)
    if high > SUSPICIOUS * low:
        raise ConfigError(
            f"{high_device} has {high:g} {unit} and {low_device} has {low:g}: the units seem to be mixed. "
            "Analyse the files separately, or convert them to one unit first."
        )
    return table


def _one_unit(parts: Sequence[_Part], notes: list[str]) -> tuple[str, list[Measurement]]:
    units = sorted({p.unit for p in parts})
    if len(units) == 1:
        return units[0], [r for p in parts for r in p.rows]
    if not all(u in TIMES for u in units):
        raise ConfigError(f"Values in {' and '.join(units)} cannot be analysed together.")
    notes.append(f"times in {' and '.join(units)} were converted to seconds")
    return "s", [replace(r, value=r.value * TIMES[p.unit]) for p in parts for r in p.rows]


def _parts(path: Path, options: ColumnOptions) -> list[_Part]:
    if not path.exists():
        raise ConfigError(f"{path} does not exist.")
    if not path.is_dir():
        return [_file(path, options)]
    if StudyDir.is_study(path):
        return [_study(StudyDir.open(path))]
    if find_runs(path) or any(path.glob("*.jsonl")):  # *.jsonl: the path is a run directory itself
        return [_runs(open_logs(path))]
    # Public data sets come with a license text, which is not a log.
    inside = sorted(
        p for p in path.rglob("*") if p.suffix in (".csv", ".txt", ".log", ".json") and p.name != "LICENSE.txt"
    )
    if not inside:
        raise ConfigError(f"{path} has no study, no runs, no CSV files and no logs.")
    return [_file(p, options) for p in inside]


def _file(path: Path, options: ColumnOptions) -> _Part:
    text = read_text(path)
    if not text.strip():
        raise ConfigError(f"{path} is empty.")
    # The order matters: logs, nvprof traces and samples of nvidia-smi can all pass for a CSV table, the last choice.
    if text.lstrip().startswith("{") or reader_of(text) is not None:
        return _runs(open_logs(path))
    if _ITERATION.search(text):
        return _iteration_file(path, text)
    if looks_like_trace(text):
        rows, notes = read_trace(path, text)
        return _Part(unit="ms", what="mean duration of the kernel that takes most time", rows=rows, notes=notes)
    if looks_like_smi(text):
        return _Part(unit="", what="", sensors=SensorFile(path=path, devices=read_smi(path, text)))
    if not is_table(text):
        raise ConfigError(f"{path} {describe_content(text)} Give {STUDY_KINDS}.")
    return _csv(path, options)


# ---------------------------------------------------------------------------------------------------------- our studies


def _study(study: StudyDir) -> _Part:
    meta, repeats = study.meta(), study.repeats()
    notes = [f"{r.device}, repeat {r.repeat}: {n}" for r in repeats for n in r.notes]
    expected = len(meta.devices) * meta.repeats
    if len(repeats) < expected:
        unfinished = f"{len(repeats)} of {expected} repeats: it was interrupted or is still running"
        notes.insert(0, f"{study.path.name} has {unfinished}")
    hosts = {device.id: device.host for device in meta.devices}
    rows = [
        Measurement(
            device=r.device,
            repeat=str(r.repeat),
            value=statistics.median(r.steady_s),
            host=hosts.get(r.device, ""),
            sensors={name: r.sensor(column) for name, column in _STUDY_SENSORS.items()},
        )
        for r in repeats
    ]
    return _Part(
        unit="s",
        what="median iteration",
        rows=rows,
        workloads={meta.workload},
        simulated=meta.simulated,
        notes=notes,
    )


def _runs(runs: Sequence[RunLog]) -> _Part:
    """Runs as repeats; the device is the one that the log names."""
    epochs = runs[0].format == "mllog"
    part = _Part(unit="s", what="median epoch" if epochs else "median step")
    for number, run in enumerate(runs):
        times = [s.seconds for s in run.steady_steps]
        part.notes += run.notes
        if not run.has_single_steps:  # a median of windows varies less than one of steps
            part.notes.append(f"{run.path} is left out: it has no times of single steps (machine.step_times=each)")
            continue
        if not times:
            part.notes.append(f"{run.path} records no steps")
            continue
        # The number tells the rounds of a benchmark apart, which share a path.
        part.rows.append(
            Measurement(device=_device_of(run), repeat=f"{run.path.name}#{number}", value=statistics.median(times))
        )
        part.workloads.add(str(run.settings.get("submission_benchmark") or run.settings.get("arch") or ""))
    return part


def _device_of(run: RunLog) -> str:
    environment = run.environment or Environment()
    # The UUID comes first: it stays the same if a device moves to another host.
    uuid = environment.devices[0].uuid if environment.devices else None
    return str(uuid or environment.host or run.settings.get("submission_platform") or run.path.stem)


def _iteration_file(path: Path, text: str) -> _Part:
    """The SC22 study's raw `Iteration Duration` lines; the first iteration of each device is dropped."""
    times: dict[str, list[float]] = {}
    impossible = 0
    for _, device, text_s in _ITERATION.findall(text):
        seconds, _ = _number_and_unit(text_s)
        impossible += not 0 < seconds < math.inf
        times.setdefault(device, []).append(seconds)
    # First the warm-up, then the impossible: otherwise an impossible first iteration would cost the second one.
    times = {device: [t for t in values[1:] if 0 < t < math.inf] for device, values in times.items()}
    match = _ITERATION_FILE.search(path.name)
    stamp, host = match.groups() if match else (path.stem, path.stem)
    rows = [
        Measurement(device=f"{host}-{device}", repeat=stamp, value=statistics.median(values), host=host)
        for device, values in times.items()
        if values
    ]
    notes = [f"{path.name}: {plural(impossible, 'impossible duration')}: dropped"] if impossible else []
    note = (
        "devices are named by host and number, so an exchanged device goes unnoticed; a study with UUIDs would show it"
    )
    return _Part(unit="s", what="median iteration", rows=rows, notes=[*notes, note])


# ------------------------------------------------------------------------------------------------------------------ CSV


def _csv(path: Path, options: ColumnOptions) -> _Part:
    rows: Sequence[CsvRow] = read_csv(path)
    if not rows:
        raise ConfigError(f"{path} has column names but no rows.")
    rows = with_known_names(rows)
    layout = find_layout(path, rows, options)
    part = _Part(unit="", what=layout.what, notes=[layout.note] if layout.note else [])
    distinct = {tuple(r.values()): r for r in rows}  # `read_csv` has dropped the row numbers of pandas
    if copies := len(rows) - len(distinct):
        part.notes.append(
            f"{path.name}: {copies} of {len(rows)} rows are exact copies of others, "
            + ("dropped" if options.drop_duplicates else f"kept ({use('drop_duplicates', True)} drops them)")
        )
    _fill(part, path, list(distinct.values()) if options.drop_duplicates else rows, layout, options)
    return part


def _fill(part: _Part, path: Path, rows: Sequence[CsvRow], layout: Layout, options: ColumnOptions) -> None:
    cells = [_number_and_unit(r.get(layout.columns[VALUE])) for r in rows]
    units = _column_units(path, cells, layout)
    _check_units(path, units, options)  # from here on, several units are all times
    mixed = len(units) > 1
    part.unit = "s" if mixed else next(iter(units), layout.unit or "")
    if mixed:
        part.notes.append(f"{path.name}: {' and '.join(sorted(units))} in one column, converted to seconds")
    dropped: Counter[str] = Counter()
    unmeasured: Counter[str] = Counter()
    numbered: Counter[str] = Counter()
    for row, (value, unit) in zip(rows, cells, strict=True):
        device = layout.device(row)
        if not math.isfinite(value) or value <= 0 or not device:
            why = "a value not above 0" if math.isfinite(value) else "no value"
            dropped[why if device else "no device"] += 1
            continue
        scale = TIMES[unit or layout.unit or "s"] if mixed else 1.0
        repeat = layout.cell(row, "repeat") if "repeat" in layout.columns else numbered[device]
        numbered[device] += 1
        sensors = {s: _sensor(s, layout.cell(row, s), options, unmeasured) for s in SENSOR_UNITS}
        part.rows.append(
            Measurement(device=device, repeat=str(repeat), value=value * scale, host=_host(row), sensors=sensors)
        )
        part.workloads.add(str(layout.cell(row, "workload") or ""))
        part.simulated |= str(row.get("simulated") or "0") not in ("0", "False", "false")
    part.notes += [f"{path.name}: {plural(count, 'row')} with {why}: dropped" for why, count in dropped.items()]
    part.notes += [
        f"{path.name}: {plural(count, 'impossible value')} {why}: treated as not measured"
        for why, count in unmeasured.items()
    ]


def _host(row: CsvRow) -> str:
    """Cabinet and node of the SC22 study's tables, which have -1 where that is not known."""
    parts = [str(row.get(name)) for name in ("cabinet", "node") if row.get(name) not in (None, "", -1)]
    return "-".join(parts) if len(parts) == 2 else ""


def _column_units(path: Path, cells: Sequence[tuple[float, str]], layout: Layout) -> set[str]:
    """The units in the cells themselves, and the column's where a number has none."""
    in_cells = {unit for _, unit in cells if unit}
    if all(unit or math.isnan(value) for value, unit in cells):  # a cell without a number needs no unit
        return in_cells
    if layout.unit is None:
        raise ConfigError(missing_unit(path, layout.columns[VALUE], ", ".join(sorted(in_cells))))
    return in_cells | {layout.unit}


def _check_units(path: Path, units: set[str], options: ColumnOptions) -> None:
    known = [*TIMES, "img/s", "it/s", "GFLOP/s", "TFLOP/s", "GB/s"]
    for unit in units:
        if unit not in TIMES and not unit.endswith("/s"):
            raise ConfigError(f"{path}: {unit!r} is no unit of a step time or a rate. {did_you_mean(unit, known)}")
    if len(units) > 1 and not all(u in TIMES for u in units):
        raise ConfigError(f"{path} mixes {' and '.join(sorted(units))} in one column.")
    for sensor, table in SENSOR_UNITS.items():
        if sensor in options.units and options.units[sensor] not in table:
            raise ConfigError(f"{given('units', f'{sensor}={options.units[sensor]}')}: use {' or '.join(table)}.")


def _number_and_unit(cell: Cell) -> tuple[float, str]:
    """117.5, or "117.5 ms"; NaN without a number."""
    if isinstance(cell, int | float):
        return float(cell), ""
    match = _VALUE.match(cell or "")
    try:
        return (float(match[1]), match[2]) if match else (math.nan, "")
    except ValueError:  # 1.2.3
        return math.nan, ""


def _sensor(name: str, cell: Cell, options: ColumnOptions, impossible: Counter[str]) -> float | None:
    if not isinstance(cell, int | float) or not math.isfinite(cell):
        return None
    # The first unit of a sensor is its default, and the one of POSSIBLE.
    value = cell * SENSOR_UNITS[name][options.units.get(name) or next(iter(SENSOR_UNITS[name]))]
    low, high = POSSIBLE[name]
    if not low < value <= high:
        unit = next(iter(SENSOR_UNITS[name]))
        impossible[f"of {name} (e.g. {value:g} {unit}; another unit? {use('units', slot=f'{name}=UNIT')})"] += 1
        return None
    return value
