"""Reads the tables of studies: study directories, the SC22 CSVs, nvprof traces, logs of runs, any other CSV.

Which column of a CSV holds what is found by `columns`, and its unit by `units`.
Impossible rows (no number, no time, a temperature of 900 degrees) are dropped and counted; exact copies are counted
and kept. The analysis of a table is in `lab.study.analysis`.
"""

import math
import os
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vernier.errors import ConfigError, did_you_mean
from vernier.lab.logs.formats import reader_of
from vernier.lab.logs.model import RunLog
from vernier.lab.logs.nvprof import looks_like_trace, read_trace
from vernier.lab.logs.reading import describe_content, open_logs, read_text
from vernier.lab.logs.tables import is_table
from vernier.lab.records.bench import Cell
from vernier.lab.study.analysis import RATIO, SUSPICIOUS, TIMES, Measurement, Table
from vernier.lab.study.files import StudyDir, split_host
from vernier.records.environment import Environment
from vernier.references import given, use
from vernier.store import find_runs
from vernier.wording import plural

from .columns import VALUE, ColumnOptions, Layout, find_layout, missing_unit, with_known_names
from .csv_tables import CsvRow, read_csv
from .superbench import read_superbench
from .units import SENSOR_UNITS

STUDY_KINDS = (
    "a study directory, a CSV with one row per measurement, iteration durations or nvprof traces of the SC22 study, "
    "run directories, or logs of NVIDIA's, MLPerf's, torchvision's or Habana's scripts"
)
# In MHz, W and °C. The lower end is excluded: a clock or power of 0 was not measured.
POSSIBLE = {"freq": (0.0, 10_000.0), "power": (0.0, 3_000.0), "temp": (-50.0, 150.0)}
_STUDY_SENSORS = {"freq": "clock_mhz", "power": "power_w", "temp": "temperature_c"}
_ITERATION = re.compile(r"Iteration Duration (\d+) (\d+) : ([0-9.eE+-]+)")
_VALUE = re.compile(r"^\s*([+-]?[0-9.]+(?:[eE][+-]?\d+)?)\s*([A-Za-z/]*)\s*$")
# The SC22 study's files have the time stamp and the host in their names.
_ITERATION_FILE = re.compile(r"iterdur_(\d+)_([A-Za-z0-9-]+)")
_DEVICE_FILE = re.compile(r"(gpu|hpu|xpu|npu|device|dev|card|rank|worker|local)[-_]?\d", re.IGNORECASE)
"""Names of logs that stand for a device of a host, not for a repeat."""


@dataclass
class _Part:
    """The rows of one file. Their values are in `unit`."""

    unit: str
    what: str
    rows: list[Measurement] = field(default_factory=list)
    workloads: set[str] = field(default_factory=set)
    simulated: bool = False
    notes: list[str] = field(default_factory=list)


def read_table(paths: Sequence[Path], options: ColumnOptions | None = None) -> Table:
    """One table of all files. Raises ConfigError naming what is missing."""
    options = options or ColumnOptions()
    parts = [part for path in paths for part in _parts(path, options)]
    notes = [n for p in parts for n in p.notes]  # before parts are dropped: the notes explain why
    parts = [p for p in parts if p.rows]
    if not parts:
        more = f"; and {len(notes) - 3} more such notes" if len(notes) > 3 else ""
        raise ConfigError(f"No usable row in {', '.join(map(str, paths))}. {'; '.join(notes[:3])}{more}".strip())
    workloads = sorted({w for p in parts for w in p.workloads if w})
    if len(workloads) > 1:
        raise ConfigError(
            f"These rows are of different workloads ({', '.join(workloads)}). Analyse one workload at a time."
        )
    simulated = {p.simulated for p in parts}
    if len(simulated) > 1:
        raise ConfigError("Simulated and real devices cannot be analysed together.")
    unit, rows = _one_unit(parts, notes)
    rows = _named_by_folder(rows, notes)
    table = Table(
        rows=tuple(rows),
        unit=unit,
        what=parts[0].what,
        workload=workloads[0] if workloads else "",
        slow_is_high=unit in TIMES or unit == RATIO,
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
    if (metrics := read_superbench(text)) is not None:
        return _csv(path, metrics, replace(options, columns={"device": "device", "host": "host", **options.columns}))
    # The order matters: logs and nvprof traces can pass for a CSV table, the last choice.
    if text.lstrip().startswith("{") or reader_of(text) is not None:
        return _runs(open_logs(path))
    if _ITERATION.search(text):
        return _iteration_file(path, text)
    if looks_like_trace(text):
        rows, notes = read_trace(path, text)
        return _Part(unit="ms", what="mean duration of the kernel that takes most time", rows=rows, notes=notes)
    if not is_table(text):
        raise ConfigError(f"{path} {describe_content(text)} Give {STUDY_KINDS}.")
    return _csv(path, read_csv(path), options)


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
            host=(host := hosts.get(r.device, "")),
            cabinet=split_host(host)[0],
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
        named = _device_of(run)
        part.rows.append(
            Measurement(
                device=named or run.path.stem,
                repeat=f"{run.path.name}#{number}",
                value=statistics.median(times),
                log=None if named else run.path,
            )
        )
        part.workloads.add(str(run.settings.get("submission_benchmark") or run.settings.get("arch") or ""))
    return part


def _device_of(run: RunLog) -> str:
    environment = run.environment or Environment()
    # The UUID comes first: it stays the same if a device moves to another host.
    uuid = environment.devices[0].uuid if environment.devices else None
    return str(uuid or environment.host or run.settings.get("submission_platform") or "")


def _named_by_folder(rows: Sequence[Measurement], notes: list[str]) -> list[Measurement]:
    """The rows with other devices where logs of several folders have the same name: HOST_A/run0.txt, HOST_B/run0.txt.

    Such logs are repeats of the device that their folder stands for, or of one in it if their names are those of
    devices (gpu0.log).
    """
    logs = {row.log for row in rows if row.log}
    if len({log.stem for log in logs}) == len(logs):
        return list(rows)
    top = Path(os.path.commonpath([log.parent.resolve() for log in logs]))

    def name(log: Path) -> str:
        path = log.resolve().relative_to(top).with_suffix("")
        return (path if _DEVICE_FILE.match(log.stem) else path.parent).as_posix()

    devices = sorted({name(log) for log in logs})
    shown = f"{', '.join(devices[:3])}{', ...' if len(devices) > 3 else ''}"
    notes.append(
        f"{plural(len(logs), 'log')} do not name their device, and some have the same file name: the folder is taken "
        f"as the device ({plural(len(devices), 'device')}: {shown})"
    )

    def renamed(text: str, log: Path) -> str:
        return text.replace(log.stem, name(log), 1)

    return [
        replace(row, device=renamed(row.device, row.log), host=renamed(row.host, row.log)) if row.log else row
        for row in rows
    ]


def _iteration_file(path: Path, text: str) -> _Part:
    """The SC22 study's raw `Iteration Duration` lines; the first iteration of each device is dropped."""
    every: dict[str, list[float]] = {}
    for _, device, text_s in _ITERATION.findall(text):
        every.setdefault(device, []).append(_number_and_unit(text_s)[0])
    impossible = sum(not 0 < seconds < math.inf for times in every.values() for seconds in times)
    # First the warm-up, then the impossible: otherwise an impossible first iteration would cost the second one.
    times = {device: [t for t in values[1:] if 0 < t < math.inf] for device, values in every.items()}
    match = _ITERATION_FILE.search(path.name)
    stamp, host = match.groups() if match else (path.stem, path.stem)
    rows = [
        Measurement(
            device=f"{host}-{device}",
            repeat=stamp,
            value=statistics.median(values),
            host=host,
            log=None if match else path,
        )
        for device, values in times.items()
        if values
    ]
    notes = [f"{path.name}: {plural(impossible, 'impossible duration')}: dropped"] if impossible else []
    note = (
        "devices are named by host and number, so an exchanged device goes unnoticed; a study with UUIDs would show it"
    )
    return _Part(unit="s", what="median iteration", rows=rows, notes=[*notes, note])


# ------------------------------------------------------------------------------------------------------------------ CSV


def _csv(path: Path, rows: Sequence[CsvRow], options: ColumnOptions) -> _Part:
    if not rows:
        raise ConfigError(f"{path} has column names but no rows.")
    rows = with_known_names(rows)
    layout = find_layout(path, rows, options)
    part = _Part(unit="", what=layout.what, notes=[layout.note] if layout.note else [])
    # `read_csv` has dropped the row numbers of pandas.
    if copies := len(rows) - len({tuple(row.values()) for row in rows}):
        part.notes.append(f"{path.name}: {copies} of {len(rows)} rows are exact copies of others, kept")
    _fill(part, path, rows, layout, options)
    return part


def _fill(part: _Part, path: Path, rows: Sequence[CsvRow], layout: Layout, options: ColumnOptions) -> None:
    cells = [_number_and_unit(r.get(layout.columns[VALUE])) for r in rows]
    units = _column_units(path, cells, layout)
    _check_units(path, units, options)  # from here on, several units are all times
    mixed = len(units) > 1
    part.unit = "s" if mixed else next(iter(units), layout.unit or "")
    if mixed:
        part.notes.append(f"{path.name}: {' and '.join(sorted(units))} in one column, converted to seconds")
    dropped, unmeasured, numbered = Counter[str](), Counter[str](), Counter[str]()
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
        host, cabinet = _place(row, layout)
        part.rows.append(
            Measurement(
                device=device, repeat=str(repeat), value=value * scale, sensors=sensors, host=host, cabinet=cabinet
            )
        )
        part.workloads.add(str(layout.cell(row, "workload") or ""))
        part.simulated |= str(row.get("simulated") or "0") not in ("0", "False", "false")
    lines = [f"{plural(count, 'row')} with {why}: dropped" for why, count in dropped.items()]
    lines += [
        f"{plural(count, 'impossible value')} {why}: treated as not measured" for why, count in unmeasured.items()
    ]
    part.notes += [f"{path.name}: {line}" for line in lines]


def _place(row: CsvRow, layout: Layout) -> tuple[str, str]:
    """Host and cabinet, of columns that the user names or the SC22 study's, which have -1 for what is unknown."""
    own = {level: "" if (cell := layout.cell(row, level)) is None else str(cell) for level in ("host", "cabinet")}
    cabinet, node = ("" if row.get(name) in (None, "", -1) else str(row.get(name)) for name in ("cabinet", "node"))
    return own["host"] or (f"{cabinet}-{node}" if cabinet and node else ""), own["cabinet"] or cabinet


def _column_units(path: Path, cells: Sequence[tuple[float, str]], layout: Layout) -> set[str]:
    """The units in the cells themselves, and the column's where a number has none."""
    in_cells = {unit for _, unit in cells if unit}
    if all(unit or math.isnan(value) for value, unit in cells):  # a cell without a number needs no unit
        return in_cells
    if layout.unit is None:
        raise ConfigError(missing_unit(path, layout.columns[VALUE], ", ".join(sorted(in_cells))))
    return in_cells | {layout.unit}


def _check_units(path: Path, units: set[str], options: ColumnOptions) -> None:
    known = [*TIMES, RATIO, "img/s", "it/s", "GFLOP/s", "TFLOP/s", "GB/s"]
    for unit in units:
        if unit not in TIMES and unit != RATIO and not unit.endswith("/s"):
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
    factors, (low, high) = SENSOR_UNITS[name], POSSIBLE[name]
    unit = next(iter(factors))
    value = cell * factors[options.units.get(name) or unit]
    if not low < value <= high:
        impossible[f"of {name} (e.g. {value:g} {unit}; another unit? {use('units', slot=f'{name}=UNIT')})"] += 1
        return None
    return value
