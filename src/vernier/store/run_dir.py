"""One run on disk: which files it has, what they are called, and who may write them.

`vernier.store` has the picture; how a file is written durably is `store.durable`, checkpoints are `store.checkpoints`.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from vernier.addresses import redact_addresses
from vernier.clock import file_stamp, utc_stamp
from vernier.config.migrations import SCHEMAS, migrated
from vernier.errors import ConfigError
from vernier.records.codec import DamagedRecord, decode, encode
from vernier.records.environment import Environment
from vernier.records.events import Event
from vernier.records.predictions import TrainImages
from vernier.records.run import FinetuningRecord, RunStatus
from vernier.references import given, use

from .checkpoints import Checkpoints
from .durable import (
    DamagedFile,
    entries,
    read_object,
    read_record,
    remove_leftover,
    sync_to_disk,
    temporaries,
    write_atomically,
    write_json,
)
from .events import E, EventLog
from .locks import is_locked, lock

_SMOKE = re.compile(r'"smoke"\s*:\s*true')
_LONGEST_NOTE = 2000

HELD_OUT = "held_out.json"
FINETUNING = "finetuning.json"


@dataclass(frozen=True)
class RunDir:
    """One run on disk."""

    path: Path

    @classmethod
    def create(cls, out: Path, name: str) -> "RunDir":
        """A new directory `<time>-<name>` under `out`, never an existing one."""
        stamp = file_stamp()
        safe = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-") or "run"  # mynets:Net(width=8) ends in a bracket
        # Two runs can begin in the same second, as those of a sweep do.
        for suffix in ["", *(f"-{i}" for i in range(2, 1000))]:
            path = out / f"{stamp}-{safe}{suffix}"
            try:
                path.mkdir(parents=True)
                (path / "checkpoints").mkdir()
                _sync_with_parents(path)
            except FileExistsError:
                continue
            except OSError as error:
                shutil.rmtree(path, ignore_errors=True)
                raise _cannot_make(out, error) from None
            return cls(path)
        raise ConfigError(f"Cannot find a free run name in {out}.")

    @staticmethod
    def check_out(out: Path) -> None:
        """Refuse a folder in which no run directory can be made; nothing is left behind. Raises ConfigError."""
        if out.exists() and not out.is_dir():
            raise ConfigError(f"{given('out', out)} is a file. Give a folder.")
        existing = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
        try:
            with tempfile.TemporaryDirectory(dir=existing):
                pass
        except OSError as error:
            raise _cannot_make(out, error) from None

    @classmethod
    def open(cls, path: Path) -> "RunDir":
        """A run directory, or the only run in a folder, such as the one given as `--out`. Raises ConfigError."""
        if not cls.is_run(path):
            if len(inside := find_runs(path)) == 1:
                return inside[0]
            raise ConfigError(f"{path} is not a run directory: it has no config.json.{_runs_inside(path)}")
        return cls(path)

    @classmethod
    def of_checkpoint(cls, path: Path) -> "RunDir | None":
        """The run a checkpoint directory lies in; None when it was taken out of its run."""
        run = path.resolve().parent.parent
        return cls(run) if cls.is_run(run) else None

    @staticmethod
    def is_run(path: Path) -> bool:
        """Whether a folder has the configuration that every run has; False where that cannot be found out."""
        try:
            return (path / "config.json").is_file()
        except OSError:
            return False

    # -- small files

    def _write(self, kind: str, name: str, tree: dict[str, Any]) -> None:
        write_json(self.path / name, {"schema": SCHEMAS[kind], **tree})

    def _read(self, kind: str, name: str) -> dict[str, Any]:
        """Raises FileNotFoundError, DamagedFile, or NewerFile."""
        return migrated(kind, read_object(self.path / name), self.path / name)

    def write_config(self, tree: dict[str, Any]) -> None:
        self._write("config", "config.json", tree)

    def read_config(self) -> dict[str, Any]:
        """The configuration the run was last started with. Raises ConfigError."""
        try:
            return self._read("config", "config.json")
        except OSError as error:
            raise ConfigError(f"Cannot read the configuration of {self.path}: {error}.") from None

    def config_as_written(self) -> dict[str, Any]:
        """The configuration as an older version may have written it. Raises OSError or ConfigError."""
        return read_object(self.path / "config.json")

    def write_environment(self, tree: dict[str, Any]) -> None:
        self._write("environment", "environment.json", tree)

    def read_environment(self) -> dict[str, Any]:
        """The host, devices and versions the run last used; empty where that was lost."""
        try:
            return self._read("environment", "environment.json")
        except (OSError, DamagedFile):
            return {}

    def write_status(self, status: str, **fields: Any) -> None:
        """Replace run.json: `running`, `finished`, `stopped` (by a signal), `crashed` (can be resumed), or `failed`."""
        self._write("run", "run.json", {"status": status, "updated": utc_stamp(), **fields})

    def recorded_status(self) -> RunStatus:
        """run.json as it was written last. Raises FileNotFoundError, DamagedFile, DamagedRecord or NewerFile."""
        return decode(RunStatus, self._read("run", "run.json"))

    def status(self) -> RunStatus:
        """run.json: `unknown` where it is damaged, `crashed` when it says running and no process holds the run.

        Raises NewerFile.
        """
        try:
            status = self.recorded_status()
        except (OSError, DamagedFile, DamagedRecord):
            return RunStatus()
        return replace(status, status="crashed") if status.status == "running" and not self.is_locked() else status

    def write_prediction(self, name: str, document: Any) -> Path:
        """predictions/NAME.json: what the last evaluation predicted."""
        folder = self.path / "predictions"
        folder.mkdir(exist_ok=True)
        write_atomically(folder / f"{name}.json", redact_addresses(json.dumps(document, allow_nan=False)) + "\n")
        return folder / f"{name}.json"

    def write_held_out(self, tree: dict[str, Any]) -> None:
        """held_out.json: which images are held out for validation, and how they were chosen."""
        write_json(self.path / HELD_OUT, tree)

    def write_finetuning(self, tree: dict[str, Any]) -> None:
        """finetuning.json: which settings `vernier finetune` chose and why, and what came out."""
        write_json(self.path / FINETUNING, tree)

    def read_finetuning(self) -> FinetuningRecord:
        """What came out of a fine-tuning. Raises ConfigError where it has not ended, or its file is damaged."""
        if not (self.path / FINETUNING).exists():
            raise ConfigError(f"{self.path} has no {FINETUNING}: its fine-tuning has not ended.")
        return read_record(FinetuningRecord, self.path / FINETUNING)

    def write_bench(self, tree: dict[str, Any], markdown: str) -> None:
        """Replace bench.json, with every sample, and its table for people."""
        self._write("bench", "bench.json", tree)
        write_atomically(self.path / "bench.md", markdown)

    def write_train_images(self, images: TrainImages) -> None:
        """train_images.json: thumbnails of the first training images, for reports."""
        write_json(self.path / "train_images.json", encode(images))

    def read_train_images(self) -> TrainImages:
        """Raises FileNotFoundError for runs of earlier versions, and DamagedFile."""
        return read_record(TrainImages, self.path / "train_images.json")

    def read_note(self) -> str:
        """What a person wrote into notes.txt, shortened; empty where there is none."""
        try:
            # A person wrote it, with any editor.
            with (self.path / "notes.txt").open(encoding="utf-8", errors="replace") as f:
                return redact_addresses(f.read(_LONGEST_NOTE)).strip()
        except OSError:
            return ""

    @property
    def bench_file(self) -> Path:
        """The result of a benchmark, with every sample."""
        return self.path / "bench.json"

    @property
    def is_bench(self) -> bool:
        return self.bench_file.is_file()

    @property
    def is_smoke(self) -> bool:
        """Whether this is a try-out of the settings (`--smoke`), whose figures mean nothing."""
        try:
            text = (self.path / "config.json").read_text(encoding="utf-8")
        except (OSError, ValueError):
            return False
        if not _SMOKE.search(text):  # of a thousand runs in a folder, few need more
            return False
        try:
            return bool((self.read_config().get("limits") or {}).get("smoke"))
        except ConfigError:
            return False

    def unreadable(self) -> list[Path]:
        """Damaged files that a report can do without: run.json and environment.json."""
        files = [(self.path / "run.json", RunStatus), (self.path / "environment.json", Environment)]
        return [path for path, record in files if path.is_file() and not _fits(record, path)]

    # -- folders and logs

    def profiles(self) -> list[Path]:
        """The summaries of profiled steps, one per process that was profiled."""
        return sorted((self.path / "traces").glob("profile.rank*.json"))

    def traces(self) -> Path:
        """The folder for profiles, made on first use."""
        folder = self.path / "traces"
        folder.mkdir(exist_ok=True)
        return folder

    def tensorboard(self) -> Path:
        """The folder of TensorBoard's event files."""
        return self.path / "tensorboard"

    def rank_log(self, rank: int) -> Path:
        """Output of a process that has no terminal."""
        folder = self.path / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"rank{rank}.log"

    def events(self, rank: int = 0) -> EventLog:
        """The event file of a process; that of rank 0 is the run's."""
        self.path.mkdir(parents=True, exist_ok=True)
        return EventLog(self.path / _rank_file("events", rank))

    def history(self, rank: int = 0) -> list[Event]:
        """The events of a process, of all its sessions; damaged ones are left out. Those of rank 0 are the run's."""
        return EventLog.read_history(self.path / _rank_file("events", rank))[0]

    def history_so_far(self) -> list[Event]:
        """The same for a training of this run: none where the log cannot be read, as that must not end it."""
        try:
            return self.history()
        except OSError:
            return []

    def history_and_damage(self) -> tuple[list[Event], int]:
        """The same, and how many lines and events cannot be read: a killed run leaves one, a damaged file more."""
        return EventLog.read_history(self.path / "events.jsonl")

    def first_and_last_events(self, *, tail: bool = True) -> list[Event]:
        """The start of the run and, with `tail`, its last steps and evaluations, without reading the whole file."""
        return EventLog.read_ends(self.path / "events.jsonl", tail=tail)

    def newest_event(self, kind: type[E], *, oldest: bool = False) -> E | None:
        """The newest event of a kind, or the oldest; fast, however long the run is."""
        return EventLog.read_newest(self.path / "events.jsonl", kind, oldest=oldest)

    def telemetry(self, rank: int = 0) -> EventLog:
        """Samples of the sensors; one file per process that samples."""
        return EventLog(self.path / _rank_file("telemetry", rank))

    def read_telemetry(self, rank: int = 0) -> list[dict[str, Any]]:
        return EventLog.read_lines(self.path / _rank_file("telemetry", rank))[0]

    # -- one writer at a time

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run; the lock vanishes with the process, however it dies. run.lock says who holds it."""
        f = open(  # noqa: SIM115  # for as long as the run is held
            self.path / "run.lock", "a+", encoding="utf-8", errors="replace", opener=_without_following
        )
        try:
            if not _lock(f):
                raise ConfigError(
                    f"{self.path} is in use by another process{_holder(f)}. Wait for it or stop it first, or start "
                    f"another run: {use('resume', 'never')}."
                )
            with contextlib.suppress(OSError):  # for people only: a full disk is no reason to refuse
                f.truncate(0)
                f.write(f"process {os.getpid()} on {socket.gethostname()}\n")
                f.flush()
            yield
        finally:
            with contextlib.suppress(OSError):  # it must not hide why the run ended
                f.close()

    def is_locked(self) -> bool:
        return is_locked(self.path / "run.lock")

    def tidy(self) -> None:
        """Remove what a killed process was writing. Only while the run is locked."""
        for leftover in self._temporaries():
            remove_leftover(leftover)
        self.checkpoints.tidy()

    def _temporaries(self) -> list[Path]:
        return temporaries(self.path) + temporaries(self.path / "predictions")

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints")


def _without_following(path: str, flags: int) -> int:
    """Open a file that is no link: somebody may have put one there to a file that is not to be changed."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


_LOCK_TRIES, _LOCK_PAUSE_S = 20, 0.05
"""`is_locked` of another process holds the lock for microseconds: long enough to refuse one try, not all of them."""


def _lock(file: TextIO) -> bool:
    for _ in range(_LOCK_TRIES):
        # A file system without locks refuses every try, and so the run: two writers would damage it.
        with contextlib.suppress(OSError):
            if lock(file):
                return True
        threading.Event().wait(_LOCK_PAUSE_S)
    return False


def _holder(lock: TextIO) -> str:
    lock.seek(0)
    text = lock.read(200).strip()
    return f" ({text})" if text else ""


def _sync_with_parents(path: Path) -> None:
    """Make a new directory durable, and the folders above it that may be new too."""
    for folder in (path, *path.parents):
        # Folders above the user's own existed before, so that nothing of them can be lost.
        with contextlib.suppress(PermissionError):
            sync_to_disk(folder)


def _cannot_make(out: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"Cannot make a run directory in {out}: {error.strerror}. Use another folder: {use('out', slot='DIR')}."
    )


def _fits(record: type[Any], path: Path) -> bool:
    try:
        read_record(record, path)
    except DamagedFile:
        return False
    return True


def _rank_file(name: str, rank: int) -> str:
    """events.jsonl, events.rank1.jsonl, ..."""
    return f"{name}.jsonl" if rank == 0 else f"{name}.rank{rank}.jsonl"


def _runs_inside(path: Path) -> str:
    if not path.exists():
        return f" {path} does not exist."
    inside = find_runs(path)
    results = [run for run in inside if not run.is_smoke]
    counts = {"run": len(results), "smoke run": len(inside) - len(results)}
    words = " and ".join(f"{n} {what}{'' if n == 1 else 's'}" for what, n in counts.items() if n)
    newest = f", the newest is {results[-1].path}" if results else ""
    return f" It holds {words}{newest}." if inside else ""


def unreadable_folders(out: Path) -> list[tuple[Path, str]]:
    """Folders directly under `out` that may be runs and cannot be read as such, with the reason."""
    folders = []
    for path in _visible(out):
        try:
            lost = not (path / "config.json").is_file()
            if lost and (path / "run.json").is_file() and (path / "checkpoints").is_dir():
                folders.append((path, "it has checkpoints, and its config.json is lost. Restore that from a copy."))
        except OSError as error:
            folders.append((path, f"{error.strerror}: {error.filename}"))
    return folders


def find_runs(out: Path) -> list[RunDir]:
    """The run directories directly under `out`, oldest first. What is being removed is hidden, and none."""
    return [RunDir(p) for p in _visible(out) if RunDir.is_run(p)]


def _visible(out: Path) -> list[Path]:
    return [path for path in entries(out) if not path.name.startswith(".")] if out.is_dir() else []
