"""The files of a variability study: what `study run` writes and `study analyze` reads, in one place.

    study.json                                   what was measured, on which devices, in which order
    study/<device>/repeat-<k>/iterations.csv     iteration, seconds
                              kernels.csv        where a profiler was on
                              telemetry.csv      seconds since the repeat began, then one column a sensor
                              repeat.json        which device and repeat, when, how long, what disturbed it
    all_data.csv, aggregated_data.csv            the SC22 study's columns, durations in seconds

A repeat appears whole or not at all, so a study that was killed keeps what it finished. Times are seconds throughout.
"""

import contextlib
import csv
import fcntl
import io
import json
import math
import os
import re
import shutil
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vernier.config import tree_differences
from vernier.errors import ConfigError
from vernier.store import read_json, write_atomically, write_json

METHOD = "vernier-study-1"
META, DATA, ALL, AGGREGATED = "study.json", "study", "all_data.csv", "aggregated_data.csv"
ITERATIONS, KERNELS, TELEMETRY, REPEAT = "iterations.csv", "kernels.csv", "telemetry.csv", "repeat.json"
SENSORS = {"freq": "clock_mhz", "memfreq": "memory_clock_mhz", "temp": "temperature_c", "pwr": "power_w"}
ALL_COLUMNS = (
    "exp", "reps", "cabinet", "node", "device", "train_time", "mean_iter_dur", "med_iter_dur", "max_iter_dur", "min_iter_dur",
    "max_iter_dur_idx", "uuid", *SENSORS, "simulated",
)  # fmt: skip
AGGREGATED_COLUMNS = (
    "exp", "cabinet", "node", "device", "uuid", "mean_iter_dur_mean", "mean_iter_dur_median", "train_time_mean",
    "train_time_median", "repeats", "simulated",
)  # fmt: skip
_REPEAT_DIR = re.compile(r"^repeat-(\d+)$")

Cell = str | int | float | None
Row = Mapping[str, Cell]


@dataclass(frozen=True, kw_only=True)
class StudyDevice:
    """One device: `id` is what identifies it for good (a UUID; host and core for a CPU), `index` its place in the machine.

    `slowdown` is the factor by which a virtual device was slowed on purpose; None for real ones.
    """

    id: str
    index: int = 0
    name: str = ""
    host: str = ""
    slowdown: float | None = None


@dataclass(frozen=True, kw_only=True)
class StudyMeta:
    """study.json: the experiment. `order` lists (device id, repeat) as they were run."""

    workload: str
    iterations: int
    repeats: int
    devices: tuple[StudyDevice, ...]
    order: tuple[tuple[str, int], ...] = ()
    simulated: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    method: str = METHOD


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """One measured repeat on one device. `seconds` has every iteration; the first `warmup` are not in any figure.

    `telemetry` rows use the names of SENSORS' values where they mean the same; a sensor that is absent has no column.
    """

    device: str
    repeat: int
    seconds: tuple[float, ...]
    warmup: int = 1
    train_time_s: float | None = None
    started: str | None = None
    notes: tuple[str, ...] = ()
    telemetry: tuple[Row, ...] = ()
    kernels: tuple[Row, ...] = ()

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


# ---------------------------------------------------------------------------------------------------------------- CSV


def csv_text(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """A CSV file's text; what is None is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([["" if row.get(c) is None else row[c] for c in columns] for row in rows])
    return out.getvalue()


def read_csv(path: Path) -> tuple[Row, ...]:
    """Rows by column name, numbers as numbers and empty cells as None. Raises ConfigError where there is no header."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.") from None
    reader = csv.DictReader(io.StringIO(text))
    try:
        if not reader.fieldnames:
            raise ConfigError(f"{path} is empty: a CSV file needs a line with column names.")
        return tuple({k: _cell(v) for k, v in row.items() if k is not None} for row in reader)
    except csv.Error as error:
        raise ConfigError(f"{path} is not a CSV file: {error}.") from None


def _cell(text: Any) -> Cell:
    if text is None or not str(text).strip():
        return None
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return str(text).strip()


# -------------------------------------------------------------------------------------------------------------- folder


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
        made = cls(path)
        made.write_meta(meta)
        return made

    @classmethod
    def go_on(cls, path: Path, meta: StudyMeta) -> "StudyDir":
        """The same study that was begun there, to be finished; a new one where there is none.

        Raises ConfigError where the directory holds another study.
        """
        if not cls.is_one(path):
            return cls.create(path, meta)
        begun = cls(path)
        before, now = (json.loads(json.dumps(asdict(m))) for m in (begun.meta(), meta))
        if apart := tree_differences(before, now):
            plain = [f"{n} ({a!r} there, {b!r} now)" for n, (a, b) in apart.items() if not isinstance(a, list)]
            said = ", ".join(plain[:3]) or ", ".join(apart)
            raise ConfigError(f"{path} already holds another study, which differs in {said}. Choose another directory.")
        begun.tidy()
        return begun

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the study; the lock vanishes with the process, however it dies."""
        with (self.path / META).open("r") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigError(
                    f"{self.path} is being measured by another process; wait for it or stop it first."
                ) from None
            yield

    @classmethod
    def is_one(cls, path: Path) -> bool:
        return (path / META).is_file()

    @classmethod
    def open(cls, path: Path) -> "StudyDir":
        if not cls.is_one(path):
            raise ConfigError(f"{path} is not a study: it has no {META}.")
        return cls(path)

    def write_meta(self, meta: StudyMeta) -> None:
        write_json(self.path / META, asdict(meta))

    def meta(self) -> StudyMeta:
        try:
            tree = read_json(self.path / META)
            devices = tuple(StudyDevice(**d) for d in tree.pop("devices"))
            order = tuple((str(d), int(k)) for d, k in tree.pop("order"))
            return StudyMeta(devices=devices, order=order, **tree)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{self.path / META} cannot be read: {error}.") from None

    # -- repeats

    def write_repeat(self, repeat: Repeat) -> Path:
        """Add a repeat; it is there whole or not at all."""
        final = self.path / DATA / _folder(repeat.device) / f"repeat-{repeat.repeat}"
        if final.exists():
            raise ConfigError(f"{final} already exists: a repeat is measured once.")
        temporary = final.with_name(f".writing-{final.name}-{os.getpid()}")
        temporary.mkdir(parents=True)
        numbered: list[Row] = [{"iteration": i, "seconds": s} for i, s in enumerate(repeat.seconds)]
        (temporary / ITERATIONS).write_text(csv_text(("iteration", "seconds"), numbered))
        for name, rows in ((KERNELS, repeat.kernels), (TELEMETRY, repeat.telemetry)):
            if rows:
                (temporary / name).write_text(csv_text(list(dict.fromkeys(k for r in rows for k in r)), rows))
        about = {k: v for k, v in asdict(repeat).items() if k not in ("seconds", "telemetry", "kernels")}
        write_json(temporary / REPEAT, about)
        temporary.rename(final)
        return final

    def repeats(self) -> list[Repeat]:
        """Every finished repeat, by device and number. Raises ConfigError naming a file that cannot be read."""
        return [self._read_repeat(p) for p in self._repeat_folders()]

    def _repeat_folders(self) -> list[Path]:
        found = [p for p in (self.path / DATA).glob("*/*") if _REPEAT_DIR.match(p.name)]
        return sorted(found, key=lambda p: (p.parent.name, int(p.name.removeprefix("repeat-"))))

    def _read_repeat(self, folder: Path) -> Repeat:
        try:
            about = read_json(folder / REPEAT)
            seconds = tuple(float(row["seconds"] or "nan") for row in read_csv(folder / ITERATIONS))
            telemetry, kernels = (
                read_csv(folder / name) if (folder / name).is_file() else () for name in (TELEMETRY, KERNELS)
            )
            about["notes"] = tuple(about["notes"])
            return Repeat(**about, seconds=seconds, telemetry=telemetry, kernels=kernels)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{folder} cannot be read: {error}. Remove it to analyse the rest.") from None

    def tidy(self) -> None:
        """Remove half-written repeats that a killed run left."""
        for leftover in (self.path / DATA).glob("*/.writing-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    # -- the study's tables

    def write_tables(self) -> None:
        """all_data.csv and aggregated_data.csv from the repeats there are."""
        meta, rows = self.meta(), self.table()
        write_atomically(self.path / ALL, csv_text(ALL_COLUMNS, rows))
        write_atomically(self.path / AGGREGATED, csv_text(AGGREGATED_COLUMNS, aggregate(rows, meta)))

    def table(self) -> list[Row]:
        """One row a repeat with the columns of all_data.csv."""
        meta = self.meta()
        known = {d.id: d for d in meta.devices}
        return [_all_data_row(r, known.get(r.device) or StudyDevice(id=r.device), meta) for r in self.repeats()]


def _folder(device: str) -> str:
    """A device id as a folder name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", device).strip(".") or "device"


def place(host: str) -> tuple[str, str]:
    """Cabinet and node of a host name as the study reads them: c196-031 is cabinet c196, node 031."""
    match = re.match(r"^([A-Za-z]+\d+)-(\d+)", host)
    return (match.group(1), match.group(2)) if match else ("", host)


def _all_data_row(repeat: Repeat, device: StudyDevice, meta: StudyMeta) -> Row:
    steady = repeat.steady_s
    cabinet, node = place(device.host)
    longest = max(range(len(steady)), key=steady.__getitem__)
    total = repeat.train_time_s if repeat.train_time_s is not None else sum(repeat.seconds)
    return {
        "exp": meta.workload, "reps": repeat.repeat, "cabinet": cabinet, "node": node, "device": device.index,
        "train_time": total, "mean_iter_dur": statistics.fmean(steady), "med_iter_dur": statistics.median(steady),
        "max_iter_dur": steady[longest], "min_iter_dur": min(steady), "max_iter_dur_idx": longest + repeat.warmup,
        "uuid": device.id, "simulated": int(meta.simulated or device.slowdown is not None),
        **{short: repeat.sensor(column) for short, column in SENSORS.items()},
    }  # fmt: skip


def aggregate(rows: Sequence[Row], meta: StudyMeta) -> list[Row]:
    """One row a device, as the study groups them."""
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(str(row["uuid"]), []).append(row)
    out: list[Row] = []
    for uuid, mine in grouped.items():
        means, totals = ([float(r[c] or 0) for r in mine] for c in ("mean_iter_dur", "train_time"))
        out.append({
            **{c: mine[0][c] for c in ("cabinet", "node", "device", "simulated")}, "exp": meta.workload, "uuid": uuid,
            "mean_iter_dur_mean": statistics.fmean(means), "mean_iter_dur_median": statistics.median(means),
            "train_time_mean": statistics.fmean(totals), "train_time_median": statistics.median(totals), "repeats": len(mine),
        })  # fmt: skip
    return out


def merge(sources: Sequence[Path], out: Path) -> StudyDir:
    """Join the studies of several machines, of the same workload, into one; nothing of the sources is changed."""
    studies = [StudyDir.open(p) for p in sources]
    metas = [s.meta() for s in studies]
    for what in ("workload", "iterations", "simulated", "method"):
        values = {getattr(m, what) for m in metas}
        if len(values) > 1:
            raise ConfigError(
                f"These studies do not belong together: {what} is {' and '.join(sorted(map(str, values)))}."
            )
    devices = {d.id: d for m in metas for d in m.devices}
    joined = StudyMeta(
        workload=metas[0].workload, iterations=metas[0].iterations, repeats=max(m.repeats for m in metas),
        devices=tuple(devices.values()), order=tuple(o for m in metas for o in m.order), simulated=metas[0].simulated,
        settings={"merged_from": [p.name for p in sources], "settings": [m.settings for m in metas]},
    )  # fmt: skip
    taken: dict[str, list[Repeat]] = {}
    for source, study in zip(sources, studies, strict=True):
        for repeat in study.repeats():
            mine = taken.setdefault(repeat.device, [])
            if any(repeat.seconds == other.seconds for other in mine):
                raise ConfigError(
                    f"{source} repeats data that is already in: repeat {repeat.repeat} of {repeat.device}."
                )
            mine.append(repeat)
    made = StudyDir.create(out, joined)
    for mine in taken.values():
        for number, repeat in enumerate(mine):
            made.write_repeat(replace(repeat, repeat=number))
    made.write_tables()
    return made
