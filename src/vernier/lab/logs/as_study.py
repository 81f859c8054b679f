"""Writes a run as a device study: Vernier's study directory, and in `raw/` files that the SC22 study's scripts read.

    raw/resnet_iterdur_<time>_<host>_<device>_<repeat>.txt        `Iteration Duration <n> <device> : <seconds>`
    raw/resnet_<pid>_<time>_<host>_<device>_<repeat>.csv          kernels and sensors, as nvprof lists them

Every process of a training has its own times; sensors and kernels are written where the run recorded them. The rounds
of a benchmark are repeats. The study directory itself is `lab.study.files`.
"""

import csv
import io
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vernier.clock import utc_stamp
from vernier.errors import ConfigError
from vernier.lab.reading.csv_tables import CsvRow, read_csv
from vernier.lab.records.telemetry import Sample, TelemetryHeader, decode_telemetry
from vernier.lab.study.files import Repeat, StudyDir, split_host
from vernier.lab.study.records import StudyDevice, StudyMeta
from vernier.records.events import ProcessInfo, StartEvent, StepEvent, sessions
from vernier.store import RunDir, read_object, write_atomically

from .formats import LogFormat
from .model import RunLog, StepRecord
from .own import steps_of

_RAW = "raw"
_NVPROF = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_DAY_S = 24 * 3600
_COPIES = ("Memcpy", "Memset")  # on the device too, and no kernels


@dataclass(frozen=True)
class _Part:
    """One device of the run, or one repeat on it."""

    device: StudyDevice
    repeat: Repeat
    pid: int = 0
    samples: Sequence[tuple[float, Sample]] = ()
    """Seconds since the first step, and what the sensors said."""
    calls: Sequence[tuple[float, dict[str, str]]] = ()
    """Seconds since the first step, and one call of a kernel."""


def write_study(run: RunLog, out: Path) -> list[Path]:
    """Write the study of a run; returns its directory and the raw files."""
    # Before the directory is made: a run with impossible durations leaves nothing behind.
    parts = _parts(run)
    meta = StudyMeta(
        workload=str((run.settings.get("recipe") or {}).get("name") or run.settings.get("arch") or "training"),
        iterations=min(len(p.repeat.steady_s) for p in parts),
        repeats=len({p.repeat.repeat for p in parts}),
        devices=tuple({p.device.id: p.device for p in parts}.values()),
        order=tuple((p.device.id, p.repeat.repeat) for p in parts),
    )
    study = StudyDir.create(out, meta)
    (out / _RAW).mkdir()
    raw = []
    for part in parts:
        study.write_repeat(part.repeat)
        began, device = int(run.began().timestamp()), part.device
        stem = f"{began}_{study_host(device.host)}_{device.index}_{part.repeat.repeat}"
        # The study's extract_data.py matches this name: NAME_iterdur_TIME_HOST_DEVICE_REPEAT.txt.
        files = {f"resnet_iterdur_{stem}.txt": _durations(part), f"resnet_{part.pid}_{stem}.csv": _trace(part)}
        for file, text in files.items():
            if text:
                raw.append(out / _RAW / file)
                write_atomically(raw[-1], text)
    study.write_tables()
    return [out, *raw]


def study_host(host: str) -> str:
    """A host name from which the study's scripts can take cabinet and node: letters, a hyphen, a number."""
    short = host.partition(".")[0]
    cabinet, node = split_host(short)
    return f"{cabinet}-{node}" if cabinet else f"{re.sub(r'[^A-Za-z0-9]', '', short) or 'host'}-000"


# ------------------------------------------------------------------------------------------------------------- devices


def _parts(run: RunLog) -> list[_Part]:
    if run.format == "vernier" and (parts := _processes(run, RunDir(run.path))):
        return parts
    host = (run.environment and run.environment.host) or "unknown"
    first = run.environment.devices[0] if run.environment and run.environment.devices else None
    device = StudyDevice(id=(first and first.uuid) or f"{host}-0", name=first.name if first else "", host=host)
    # `join_rounds` has made each round an epoch.
    rounds = sorted({s.epoch for s in run.steps}) if run.format == "bench" else [None]
    return [
        _Part(device, _repeat(run, device, [s for s in run.steps if each is None or s.epoch == each], number))
        for number, each in enumerate(rounds)
    ]


def _repeat(run: RunLog, device: StudyDevice, steps: Sequence[StepRecord], number: int = 0, **more: Any) -> Repeat:
    seconds = tuple(s.seconds for s in steps)
    warmup = next((i for i, s in enumerate(steps) if s.steady), 0)
    times: Any = {"seconds": seconds, "train_time_s": sum(seconds), "warmup": warmup}
    try:
        return Repeat(device=device.id, repeat=number, started=run.started or utc_stamp(), **times, **more)
    except ValueError as error:
        raise ConfigError(f"{run.path} cannot be converted to a study: {error}.") from None


def _processes(run: RunLog, folder: RunDir) -> list[_Part]:
    """The processes of a training, each with its own events; those without are named in a note of the first."""
    start = next((e for e in reversed(folder.history()) if isinstance(e, StartEvent)), None)
    processes = start.processes if start else ()
    named = run.environment.devices if run.environment else ()
    parts, missing = [], []
    for process in processes:
        own = folder.history(process.rank)
        steps = steps_of(own)
        if not steps:
            missing.append(process.rank)
            continue
        # The study numbers devices per host, ranks count over all hosts.
        index = sum(p.host == process.host for p in processes[: processes.index(process)])
        name = next((d.name for d in named if process.uuid and d.uuid == process.uuid), named[0].name if named else "")
        shared = [p.uuid for p in processes].count(process.uuid) > 1  # processes on a CPU share that of the machine
        device = StudyDevice(
            id=f"{process.host}-{index}" if shared or not process.uuid else process.uuid,
            index=index,
            name=name or process.device,
            host=process.host,
        )
        events = [e for session in sessions(own) for e in session]
        samples = _samples(folder, process, processes, events)
        telemetry = tuple({"t_s": t_s, **sample.row()} for t_s, sample in samples)
        repeat = _repeat(run, device, steps, telemetry=telemetry, kernels=_kernels(folder, process.rank))
        parts.append(_Part(device, repeat, process.pid, samples, _calls(folder, process.rank, steps)))
    if missing and parts:
        note = f"no step times of process {', '.join(map(str, missing))}: its events are not in this run directory"
        parts[0] = replace(parts[0], repeat=replace(parts[0].repeat, notes=(note,)))
    return parts


def _samples(
    folder: RunDir, process: ProcessInfo, processes: Sequence[ProcessInfo], events: Sequence[StepEvent]
) -> list[tuple[float, Sample]]:
    """The samples of the process's device from its first step to its last. The first process of a host samples."""
    ends = [e.t_s for e in events if e.t_s is not None]
    if not ends:
        return []
    first_s, last_s = ends[0] - sum(events[0].step_s), ends[-1]  # t_s is the clock at the end of a window
    rank = next(p.rank for p in processes if p.host == process.host)
    records = decode_telemetry(folder.read_telemetry(rank))
    headers = [r for r in records if isinstance(r, TelemetryHeader)]
    kind = process.device.partition(":")[0]
    known = [d for h in headers for d in h.devices if d.kind == kind]
    indices = {d.index for d in known if process.uuid and d.uuid == process.uuid}
    # Without a UUID, samples are assigned only if the host has a single device of this kind.
    if not indices and len(every := {d.index for d in known}) == 1:
        indices = every
    samples = (r for r in records if isinstance(r, Sample) and r.device_kind == kind and r.device in indices)
    return [(s.t_s - first_s, s) for s in samples if first_s <= s.t_s <= last_s]


def _kernels(folder: RunDir, rank: int) -> tuple[CsvRow, ...]:
    """The table of kernels of the profiled steps."""
    path = folder.path / "traces" / f"kernels.rank{rank}.csv"
    return tuple(read_csv(path)) if path.is_file() else ()


def _calls(folder: RunDir, rank: int, steps: Sequence[StepRecord]) -> list[tuple[float, dict[str, str]]]:
    """Kernels on the accelerator as rows, by seconds from the first step. Raises ConfigError for a damaged table."""
    path = folder.path / "traces" / f"calls.rank{rank}.csv"
    summary = path.with_name(f"profile.rank{rank}.json")
    if not path.is_file() or not summary.is_file():
        return []
    try:
        rows = [row for row in read_csv(path) if row["device"] != "cpu" and not str(row["name"]).startswith(_COPIES)]
        starts_s = [float(str(row["start_ms"])) / 1000 for row in rows]
        first = int(read_object(summary)["steps"][0])
        # The profiler has its own clock: its first kernel is placed at the start of the first profiled step (from 1).
        offset_s = sum(s.seconds for s in steps[: max(0, first - 1)]) - min(starts_s, default=0.0)
        return [(offset_s + start_s, _kernel_row(row)) for start_s, row in zip(starts_s, rows, strict=True)]
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise ConfigError(f"{path} cannot be read: {error!r:.200}. Remove it to convert the rest.") from None


# --------------------------------------------------------------------------------------------------------------- files


def _durations(part: _Part) -> str:
    """The study's lines; its scripts want a fraction of a second in the training time, and less than a day."""
    lines = [f"Iteration Duration {i} {part.device.index} : {s!r}" for i, s in enumerate(part.repeat.seconds)]
    total = sum(part.repeat.seconds)
    days, rest = divmod(total, _DAY_S)
    hours, minutes = divmod(int(rest // 60), 60)
    clock = f"{hours}:{minutes:02d}:{rest % 60:09.6f}"  # str(timedelta) would omit a fraction of 0
    more = f"{int(days)} day{'s' if days > 1 else ''}, " if days else ""
    return "\n".join([*lines, f"Training time: {more}{clock}\n"])


def _trace(part: _Part) -> str:
    """A file as of nvprof's `--print-gpu-trace --csv`; sensors are pseudo-kernels in brackets. Empty without rows."""
    label = f"{part.device.name or 'device'} ({part.device.index})"
    rows = [*((t_s, row) for t_s, s in part.samples for row in _sensor_rows(s)), *part.calls]
    if not rows:
        return ""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    out.write("== written by Vernier from its own sensors and profiler, in the form of nvprof\n")
    _, *others = columns = _NVPROF["columns"]
    writer.writerow(columns)
    writer.writerow([_NVPROF["units"].get(c, "") for c in columns])
    for t_s, row in sorted(rows, key=lambda r: r[0]):
        writer.writerow([f"{t_s:.6f}", *(({"Device": label} | row).get(c, "") for c in others)])
    return out.getvalue()


def _sensor_rows(sample: Sample) -> Iterable[dict[str, str]]:
    """Memory clock and power limit share a cell with another value: 0 where they were not read."""
    if sample.clock_mhz is not None:
        clocks = f"{sample.clock_mhz:.0f}/{sample.memory_clock_mhz or 0:.0f}"
        yield {"System": clocks, "Name": "[SM/Memory Clock (MHz)]"}
    if sample.temperature_c is not None:
        yield {"System": f"{sample.temperature_c:.0f}", "Name": "[Temperature (C)]"}
    if sample.power_w is not None:
        power = f"{1000 * sample.power_w:.0f}/{1000 * (sample.power_limit_w or 0):.0f}"  # nvprof's unit is mW
        yield {"System": power, "Name": "[Power/Limit (mW)]"}


def _kernel_row(call: CsvRow) -> dict[str, str]:
    """A row of the profiler's table of calls, `records.profile.KernelCall`, as one of nvprof."""
    cells = {
        f"{name} {axis}": size
        for name in ("Grid", "Block")
        for axis, size in zip("XYZ", str(call.get(name.lower()) or "").split("x"), strict=False)
    }
    known = {name: str(call[key]) for name, key in _NVPROF["fields"].items() if call.get(key) is not None}
    return {**cells, **known, "Duration": f"{float(str(call['duration_ms'])):.6f}"}


FORMAT = LogFormat(write_folder=write_study, each_step=True)
