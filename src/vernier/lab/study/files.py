"""The files of a variability study, which `study run` writes and `study analyze` reads.

    study.json                                   what was measured, on which devices, in which order
    study/<device>/repeat-<k>/iterations.csv     iteration, seconds
                              kernels.csv        only with profiled iterations
                              telemetry.csv      seconds since the repeat began, then one column per sensor
                              repeat.json        which device and repeat, when, how long, what disturbed it
    all_data.csv, aggregated_data.csv            the SC22 study's columns, durations in seconds

repeat.json is written last: a repeat without it is not finished, so a killed study keeps what it finished. Times are
in seconds. The types of the JSON files are in `.records`; the tables of others are read by `lab.reading.tables`.
"""

import contextlib
import math
import re
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from vernier.clock import wall_s
from vernier.config import config_from_tree, differences, to_dict
from vernier.config.migrations import SCHEMAS, migrated
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.reading.csv_tables import CsvRow, csv_text, read_csv
from vernier.lab.records.bench import Cell
from vernier.records.codec import DamagedRecord, decode, encode
from vernier.references import given
from vernier.store import is_locked, lock, read_object, read_record, write_atomically, write_json

from .records import RepeatInfo, StudyDevice, StudyMeta
from .votes import Ballot

META, DATA, ALL, AGGREGATED = "study.json", "study", "all_data.csv", "aggregated_data.csv"
ITERATIONS, KERNELS, TELEMETRY, REPEAT = "iterations.csv", "kernels.csv", "telemetry.csv", "repeat.json"
SENSORS = {"freq": "clock_mhz", "memfreq": "memory_clock_mhz", "temp": "temperature_c", "pwr": "power_w"}
ALL_COLUMNS = (
    *("exp", "reps", "cabinet", "node", "device", "train_time", "mean_iter_dur", "med_iter_dur", "max_iter_dur"),
    *("min_iter_dur", "max_iter_dur_idx", "uuid", *SENSORS, "simulated"),
)
AGGREGATED_COLUMNS = (
    *("exp", "cabinet", "node", "device", "uuid", "mean_iter_dur_mean", "mean_iter_dur_median", "train_time_mean"),
    *("train_time_median", "repeats", "simulated"),
)
_DAY_S = 86_400.0
_REPEAT_DIR = re.compile(r"^repeat-(\d+)$")


@frozen
class Repeat(RepeatInfo):
    """One measured repeat on one device. `seconds` has every iteration, the warm-up included.

    `telemetry` rows use the names of SENSORS' values where they mean the same; a missing sensor has no column.
    """

    seconds: tuple[float, ...]
    telemetry: tuple[CsvRow, ...] = ()
    kernels: tuple[CsvRow, ...] = ()

    def __post_init__(self) -> None:
        if not self.seconds or not all(math.isfinite(s) and s > 0 for s in self.seconds):
            raise ValueError(f"impossible iteration durations in repeat {self.repeat} of {self.device}")
        if not 0 <= self.warmup < len(self.seconds):
            raise ValueError(f"{self.warmup} warm-up iterations of {len(self.seconds)} in {self.device}")

    @property
    def steady_s(self) -> tuple[float, ...]:
        return self.seconds[self.warmup :]

    def sensor(self, column: str) -> float | None:
        """The median of a telemetry column; None where it was not measured."""
        values = [float(v) for row in self.telemetry if (v := row.get(column)) not in (None, "")]
        return statistics.median(values) if values else None


# --------------------------------------------------------------------------------------------------------------- folder


@dataclass(frozen=True)
class StudyDir:
    """A study on disk."""

    path: Path

    @classmethod
    def create(cls, path: Path, meta: StudyMeta) -> "StudyDir":
        """Start a study in a directory, which may exist but must hold no other study."""
        if (path / META).exists():
            raise ConfigError(f"{path} already holds a study. Choose another directory.")
        names = [_folder(d.id) for d in meta.devices]
        if len(set(names)) != len(names):
            raise ConfigError(f"Device ids must differ, also as folder names: {sorted(d.id for d in meta.devices)}.")
        try:
            (path / DATA).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"Cannot make {path / DATA}: {error.strerror}.") from None
        try:
            write_json(path / META, {"schema": SCHEMAS["study"], **encode(meta)})
        except ValueError as error:  # JSON has no endless numbers, and a file that is merged may hold one
            raise ConfigError(f"Cannot write {path / META}: {error}.") from None
        return cls(path)

    @classmethod
    def resume_or_create(cls, path: Path, meta: StudyMeta) -> "StudyDir":
        """The study in this directory, to be resumed; a new one where there is none.

        Raises ConfigError where the directory holds another study.
        """
        if not cls.is_study(path):
            return cls.create(path, meta)
        study = cls(path)
        if changes := study._differences(meta):
            plain = [f"{n} ({a!r} there, {b!r} now)" for n, (a, b) in changes.items() if not isinstance(a, list)]
            names = ", ".join(plain[:3]) or ", ".join(changes)
            raise ConfigError(
                f"{given('out', path)} already holds another study, which differs in {names}. Choose another directory."
            )
        return study

    @classmethod
    def find_interrupted(cls, folder: Path, meta: StudyMeta) -> Path | None:
        """The newest study of a folder that measures the same, was begun within a day and lacks repeats."""
        for path in sorted(folder.glob(f"*-study-{meta.workload}"), reverse=True):
            study = cls(path)
            with contextlib.suppress(OSError, ConfigError):
                is_new = wall_s() - (path / META).stat().st_mtime < _DAY_S
                lacks = len(study.finished()) < len(meta.order)
                if is_new and lacks and not study.is_locked() and not study._differences(meta):
                    return path
        return None

    def _differences(self, meta: StudyMeta) -> Mapping[str, Any]:
        """The settings in which another study differs."""
        return differences(_with_current_config(self.meta()), _with_current_config(meta))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the study to add repeats, and remove unfinished ones.

        The system releases the lock when the process ends, however it ends.
        """
        with (self.path / META).open("r") as f:
            held = False
            with contextlib.suppress(OSError):
                held = lock(f)
            if not held:
                raise ConfigError(f"{self.path} is being measured by another process; wait for it or stop it first.")
            for folder in (self.path / DATA).glob("*/repeat-*"):
                if not (folder / REPEAT).exists():  # a killed process did not finish it
                    shutil.rmtree(folder, ignore_errors=True)
            yield

    @classmethod
    def is_study(cls, path: Path) -> bool:
        return (path / META).is_file()

    @classmethod
    def open(cls, path: Path) -> "StudyDir":
        if not cls.is_study(path):
            raise ConfigError(f"{path} is not a study: it has no {META}.")
        return cls(path)

    def meta(self) -> StudyMeta:
        path = self.path / META
        try:
            return decode(StudyMeta, migrated("study", read_object(path), path))
        except DamagedRecord as error:
            raise ConfigError(f"Cannot read {path}: {error}.") from None

    # -- repeats

    def write_repeat(self, repeat: Repeat) -> Path:
        """Add a repeat; it counts as soon as its last file, repeat.json, is there."""
        folder = self.path / DATA / _folder(repeat.device) / f"repeat-{repeat.repeat}"
        if (folder / REPEAT).exists():
            raise ConfigError(f"{folder} already exists: a repeat is measured once.")
        folder.mkdir(parents=True, exist_ok=True)
        numbered: list[CsvRow] = [{"iteration": i, "seconds": s} for i, s in enumerate(repeat.seconds)]
        for name, rows in ((ITERATIONS, numbered), (KERNELS, repeat.kernels), (TELEMETRY, repeat.telemetry)):
            if rows:
                columns = list(dict.fromkeys(k for r in rows for k in r))
                write_atomically(folder / name, csv_text(columns, rows))
        info = {f.name: encode(getattr(repeat, f.name)) for f in fields(RepeatInfo)}
        write_json(folder / REPEAT, info)
        return folder

    def repeats(self) -> list[Repeat]:
        """Every finished repeat, by device and number. Raises ConfigError naming a file that cannot be read."""
        numbered = [(p.parent.name, int(p.name.rpartition("-")[2]), p) for p in self.finished()]
        return [_read_repeat(folder) for *_, folder in sorted(numbered)]

    def ballots(self) -> Iterator[Ballot]:
        """What its devices computed, with the workload `exact`."""
        models = {device.id: device.name for device in self.meta().devices}
        for r in self.repeats():
            if r.exact is not None:
                hours = sum(r.seconds) / 3600
                yield Ballot(device=r.device, model=models.get(r.device, ""), hours=hours, result=r.exact)

    def finished(self) -> list[Path]:
        """The folders of the finished repeats."""
        folders = (p.parent for p in (self.path / DATA).glob(f"*/*/{REPEAT}"))
        return [folder for folder in folders if _REPEAT_DIR.match(folder.name)]

    def is_locked(self) -> bool:
        """Whether a process is measuring."""
        return is_locked(self.path / META)

    def write_tables(self) -> None:
        """Write all_data.csv and aggregated_data.csv from the repeats so far."""
        all_data, aggregated = table_texts(self.meta(), self.repeats())
        write_atomically(self.path / ALL, all_data)
        write_atomically(self.path / AGGREGATED, aggregated)


def table_texts(meta: StudyMeta, repeats: Sequence[Repeat]) -> tuple[str, str]:
    """The content of all_data.csv and of aggregated_data.csv."""
    devices = {d.id: d for d in meta.devices}
    rows = [_all_data_row(r, devices.get(r.device) or StudyDevice(id=r.device), meta) for r in repeats]
    return csv_text(ALL_COLUMNS, rows), csv_text(AGGREGATED_COLUMNS, _aggregate(rows))


def _read_repeat(folder: Path) -> Repeat:
    try:
        info = read_record(RepeatInfo, folder / REPEAT)
        seconds = tuple(float(row["seconds"] or "nan") for row in read_csv(folder / ITERATIONS))
        telemetry, kernels = (
            read_csv(folder / name) if (folder / name).is_file() else () for name in (TELEMETRY, KERNELS)
        )
        return Repeat(**vars(info), seconds=seconds, telemetry=telemetry, kernels=kernels)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{folder} cannot be read: {error}. Remove it to analyse the rest.") from None


def _with_current_config(meta: StudyMeta) -> Any:
    """study.json as plain values; the configuration has today's settings, also where an older version wrote it."""
    tree = encode(meta)
    tree["settings"].pop("per", None)  # version 0.3 had sockets as devices too; their ids differ from those of cores
    if config := tree["settings"].get("config"):
        tree["settings"]["config"] = to_dict(config_from_tree(migrated("config", config, META)))
    return tree


def _folder(device: str) -> str:
    """A device id as a folder name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", device).strip(".") or "device"


def split_host(host: str) -> tuple[str, str]:
    """Cabinet and node of a host name as in the SC22 study: c196-031 is cabinet c196, node 031."""
    match = re.match(r"^([A-Za-z]+\d+)-(\d+)", host)
    return (match.group(1), match.group(2)) if match else ("", host)


def _all_data_row(repeat: Repeat, device: StudyDevice, meta: StudyMeta) -> CsvRow:
    steady = repeat.steady_s
    cabinet, node = split_host(device.host)
    longest = max(range(len(steady)), key=steady.__getitem__)
    return {
        "exp": meta.workload,
        "reps": repeat.repeat,
        "cabinet": cabinet,
        "node": node,
        "device": device.index,
        "train_time": sum(repeat.seconds) if repeat.train_time_s is None else repeat.train_time_s,
        "mean_iter_dur": statistics.fmean(steady),
        "med_iter_dur": statistics.median(steady),
        "max_iter_dur": steady[longest],
        "min_iter_dur": min(steady),
        "max_iter_dur_idx": longest + repeat.warmup,
        "uuid": device.id,
        "simulated": int(meta.simulated or device.slowdown is not None),
        **{short: repeat.sensor(column) for short, column in SENSORS.items()},
    }


def _aggregate(rows: Sequence[CsvRow]) -> Iterator[CsvRow]:
    """One row per device with the columns of aggregated_data.csv, from the rows of all_data.csv."""
    grouped: dict[Cell, list[CsvRow]] = {}
    for row in rows:
        grouped.setdefault(row["uuid"], []).append(row)
    for repeats in grouped.values():
        aggregated = {**repeats[0], "repeats": len(repeats)}
        for column in ("mean_iter_dur", "train_time"):
            values = [float(r[column] or 0) for r in repeats]
            aggregated[f"{column}_mean"] = statistics.fmean(values)
            aggregated[f"{column}_median"] = statistics.median(values)
        yield aggregated


def merge(sources: Sequence[Path], out: Path) -> StudyDir:
    """Join the studies of several machines, of the same workload, into a new one; the sources are not changed."""
    studies = [StudyDir.open(p) for p in sources]
    metas = [s.meta() for s in studies]
    for name in ("workload", "iterations", "simulated", "method"):
        values = {getattr(m, name) for m in metas}
        if len(values) > 1:
            raise ConfigError(
                f"These studies cannot be merged: {name} is {' and '.join(sorted(map(str, values)))}. "
                "Merge studies of one workload, measured alike."
            )
    meta = replace(
        metas[0],
        repeats=max(m.repeats for m in metas),
        devices=tuple({d.id: d for m in metas for d in m.devices}.values()),
        order=tuple(o for m in metas for o in m.order),
        settings={"merged_from": [p.name for p in sources], "settings": [m.settings for m in metas]},
    )
    by_device: dict[str, list[Repeat]] = {}
    for source, study in zip(sources, studies, strict=True):
        for repeat in study.repeats():
            repeats = by_device.setdefault(repeat.device, [])
            if any(repeat.seconds == other.seconds for other in repeats):
                raise ConfigError(
                    f"{source} has the same data as another source: repeat {repeat.repeat} of {repeat.device}. "
                    "Give each study once."
                )
            repeats.append(repeat)
    merged = StudyDir.create(out, meta)
    for repeats in by_device.values():
        for number, repeat in enumerate(repeats):
            merged.write_repeat(replace(repeat, repeat=number))
    merged.write_tables()
    return merged
