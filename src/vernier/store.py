"""The run directory: the only code that creates, writes and reads its files.

Everything written is either appended and flushed (events) or replaced atomically (JSON, pointers, checkpoints), so a
run that dies at any moment leaves a directory that can be read. What goes into a checkpoint is `engine.checkpoint`'s
business; that it appears whole or not at all is decided here. Imports neither torch nor a device: reports use it too.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from vernier.clock import file_stamp, utc_stamp
from vernier.errors import ConfigError
from vernier.records.codec import DamagedRecord, decode
from vernier.records.events import Event, decode_event, encode_event
from vernier.records.run import RunStatus

SCHEMA = 1
STEP_DIR = re.compile(r"^step-(\d{8,})$")


# ------------------------------------------------------------------------------------------------------ durable writes


def _fsync_dir(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, text: str) -> None:
    """Replace a file so that a reader, or a crash, sees the old or the new content, never a part."""
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    temporary.replace(path)
    _fsync_dir(path.parent)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


# --------------------------------------------------------------------------------------------------------- checkpoints


@dataclass(frozen=True, order=True)
class CheckpointDir:
    """A committed checkpoint on disk."""

    step: int
    path: Path

    def problems(self) -> list[str]:
        """What is wrong with its files; empty when every hash in the manifest agrees."""
        try:
            files = read_json(self.path / "manifest.json")["files"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            return [f"manifest.json: {error}"]
        return [f"{name}: {why}" for name, entry in files.items() if (why := _file_problem(self.path / name, entry))]


def _file_problem(path: Path, entry: dict[str, Any]) -> str:
    if not path.is_file():
        return "missing"
    if path.stat().st_size != entry["bytes"]:
        return f"{path.stat().st_size} bytes instead of {entry['bytes']}"
    return "" if _sha256(path) == entry["sha256"] else "content does not match its hash"


def open_checkpoint(path: Path) -> CheckpointDir:
    """A bare checkpoint directory, checked."""
    match = STEP_DIR.match(path.name)
    try:
        step = int(match.group(1)) if match else int(read_json(path / "state.json")["step"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} is not a checkpoint: it has no readable state.json.") from None
    found = CheckpointDir(step, path)
    if problems := found.problems():
        raise ConfigError(
            f"The checkpoint {path} is damaged ({'; '.join(problems)}). Use an older one of the same run."
        )
    return found


# -------------------------------------------------------------------------------------------------------------- events


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of one file as one history: a broken last line is dropped, and what a resume repeated counts once."""
    events: list[dict[str, Any]] = []
    if not path.exists():
        return events
    with path.open(encoding="utf-8", errors="replace") as f:
        for line in f:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                continue
            if not isinstance(event, dict) or "kind" not in event:
                continue
            if event["kind"] == "start" and event.get("resumed_from") is not None:
                events = [e for e in events if e["kind"] == "start" or e.get("step", 0) <= event["resumed_from"]]
            events.append(event)
    return events


def broken_lines(path: Path) -> int:
    """Lines that are not JSON: a run that was killed leaves one, a damaged file more."""
    if not path.exists():
        return 0
    count = 0
    with path.open(encoding="utf-8", errors="replace") as f:
        for line in f:
            try:
                json.loads(line)
            except json.JSONDecodeError:
                count += bool(line.strip())
    return count


class EventLog:
    """Appends one JSON object a line, flushed at once. The caller gives kind and fields; time and schema are added."""

    def __init__(self, path: Path) -> None:
        torn = path.exists() and path.stat().st_size > 0 and not _ends_with_newline(path)
        self._file: TextIO = path.open("a", encoding="utf-8")
        if torn:
            self._file.write("\n")

    def emit(self, event: Event | dict[str, Any]) -> None:
        tree = event if isinstance(event, dict) else encode_event(event)
        self._file.write(json.dumps({"schema": SCHEMA, "time": utc_stamp(), **tree}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as f:
        f.seek(-1, os.SEEK_END)
        return f.read(1) == b"\n"


# ------------------------------------------------------------------------------------------------------- run directory


@dataclass(frozen=True)
class RunDir:
    """One run on disk."""

    path: Path

    @classmethod
    def create(cls, out: Path, name: str) -> "RunDir":
        """A new directory `<stamp>-<name>` under `out`, never an existing one."""
        stamp = file_stamp()
        safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "run"
        for suffix in ["", *(f"-{i}" for i in range(2, 1000))]:
            path = out / f"{stamp}-{safe}{suffix}"
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise ConfigError(
                    f"Cannot make a run directory in {out}: {error.strerror}. Choose another --out."
                ) from None
            (path / "checkpoints").mkdir()
            return cls(path)
        raise ConfigError(f"Cannot find a free run name in {out}.")

    @classmethod
    def open(cls, path: Path) -> "RunDir":
        if not (path / "config.json").is_file():
            hint = _runs_inside(path)
            raise ConfigError(f"{path} is not a run directory: it has no config.json.{hint}")
        return cls(path)

    # -- small files

    def write_config(self, tree: dict[str, Any]) -> None:
        write_json(self.path / "config.json", {"schema": SCHEMA, **tree})

    def read_config(self) -> dict[str, Any]:
        """The configuration the run was last started with."""
        try:
            tree: dict[str, Any] = read_json(self.path / "config.json")
        except (OSError, ValueError) as error:
            raise ConfigError(f"Cannot read the configuration of {self.path}: {error}.") from None
        tree.pop("schema", None)
        return tree

    def write_environment(self, tree: dict[str, Any]) -> None:
        write_json(self.path / "environment.json", {"schema": SCHEMA, **tree})

    def read_environment(self) -> dict[str, Any]:
        """What the run last happened on; empty where that was lost."""
        try:
            tree: dict[str, Any] = read_json(self.path / "environment.json")
        except (OSError, ValueError):
            return {}
        tree.pop("schema", None)
        return tree

    def write_prediction(self, name: str, document: Any) -> Path:
        """predictions/NAME.json: what the last evaluation predicted."""
        folder = self.path / "predictions"
        folder.mkdir(exist_ok=True)
        write_atomically(folder / f"{name}.json", json.dumps(document, allow_nan=False) + "\n")
        return folder / f"{name}.json"

    def read_prediction(self, name: str) -> Any:
        """predictions/NAME.json; None where there is none that can be read."""
        try:
            return read_json(self.path / "predictions" / f"{name}.json")
        except (OSError, ValueError):
            return None

    def profiles(self) -> list[Path]:
        """The summaries of profiled steps, one a process that was profiled."""
        return sorted((self.path / "traces").glob("profile.rank*.json"))

    def tensorboard(self) -> Path:
        """The folder of TensorBoard's event files."""
        return self.path / "tensorboard"

    def write_status(self, status: str, **fields: Any) -> None:
        """Replace run.json: `running`, `finished`, `stopped` (by a signal), `crashed` (can go on), or `failed`."""
        write_json(self.path / "run.json", {"schema": SCHEMA, "status": status, "updated": utc_stamp(), **fields})

    def read_status(self) -> dict[str, Any]:
        """run.json; status `crashed` when it still says running and nobody holds the run."""
        try:
            found: dict[str, Any] = read_json(self.path / "run.json")
        except (OSError, ValueError):
            return {"status": "unknown"}
        if found.get("status") == "running" and not self.is_locked():
            found["status"] = "crashed"
        return found

    def status(self) -> RunStatus:
        """run.json, typed: `unknown` where it cannot be read."""
        try:
            return decode(RunStatus, self.read_status())
        except DamagedRecord:
            return RunStatus()

    def events(self, rank: int = 0) -> EventLog:
        """The event file of a process; the first one's is the run's."""
        self.path.mkdir(parents=True, exist_ok=True)
        return EventLog(self.path / _of_rank("events", rank, "jsonl"))

    def rank_log(self, rank: int) -> Path:
        """Where a process that has no terminal writes what it says."""
        folder = self.path / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"rank{rank}.log"

    def history(self) -> list[Event]:
        """The run's events as one history, typed; damaged ones and kinds of a newer version are left out."""
        return self.history_and_damage()[0]

    def history_and_damage(self) -> tuple[list[Event], int]:
        """The history, and how many damaged events it leaves out."""
        typed: list[Event] = []
        damaged = 0
        for tree in self.read_events():
            try:
                event = decode_event(tree)
            except DamagedRecord:
                damaged += 1
            else:
                typed += [] if event is None else [event]
        return typed, damaged

    def read_events(self) -> list[dict[str, Any]]:
        return read_events(self.path / "events.jsonl")

    def broken_event_lines(self) -> int:
        return broken_lines(self.path / "events.jsonl")

    def telemetry(self, rank: int = 0) -> EventLog:
        """Samples of the sensors; one file for each process that samples."""
        return EventLog(self.path / _of_rank("telemetry", rank, "jsonl"))

    def read_telemetry(self, rank: int = 0) -> list[dict[str, Any]]:
        return read_events(self.path / _of_rank("telemetry", rank, "jsonl"))

    def write_bench(self, tree: dict[str, Any], markdown: str) -> None:
        """Replace bench.json, with every sample, and its table for people."""
        write_json(self.path / "bench.json", {"schema": SCHEMA, **tree})
        write_atomically(self.path / "bench.md", markdown)

    def read_bench(self) -> dict[str, Any]:
        """What a benchmark found. Raises ConfigError where this is none."""
        try:
            tree: dict[str, Any] = read_json(self.path / "bench.json")
        except FileNotFoundError:
            raise ConfigError(f"{self.path} is no benchmark: it has no bench.json.") from None
        except (OSError, ValueError) as error:
            raise ConfigError(f"Cannot read the benchmark in {self.path}: {error}.") from None
        return tree

    def traces(self) -> Path:
        """The folder for profiles, made when first asked for."""
        folder = self.path / "traces"
        folder.mkdir(exist_ok=True)
        return folder

    # -- one writer at a time

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run; the lock vanishes with the process, however it dies."""
        with (self.path / "run.lock").open("a") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigError(f"{self.path} is in use by another process; wait for it or stop it first.") from None
            yield

    def is_locked(self) -> bool:
        try:
            with (self.path / "run.lock").open("r") as f:
                fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    # -- checkpoints

    def checkpoints(self) -> list[CheckpointDir]:
        """Committed checkpoints, oldest first."""
        folder = self.path / "checkpoints"
        found = (
            [CheckpointDir(int(m.group(1)), p) for p in folder.iterdir() if (m := STEP_DIR.match(p.name))]
            if folder.is_dir()
            else []
        )
        return sorted(found)

    def newest_checkpoint(
        self, on_damage: Callable[[CheckpointDir, list[str]], None] | None = None
    ) -> CheckpointDir | None:
        """The newest checkpoint whose hashes agree; damaged ones are reported and passed over."""
        for candidate in reversed(self.checkpoints()):
            problems = candidate.problems()
            if not problems:
                return candidate
            if on_damage:
                on_damage(candidate, problems)
        return None

    def best_checkpoint(self) -> CheckpointDir | None:
        pointer = self.path / "checkpoints" / "best"
        with contextlib.suppress(OSError):
            target = self.path / "checkpoints" / pointer.read_text().strip()
            match = STEP_DIR.match(target.name)
            if match and target.is_dir():
                return CheckpointDir(int(match.group(1)), target)
        return None

    def commit_checkpoint(self, step: int, fill: Callable[[Path], None], *, best: bool) -> CheckpointDir:
        """Write a checkpoint with `fill` in a hidden directory, hash and sync it, then rename it into place."""
        folder = self.path / "checkpoints"
        final = folder / f"step-{step:08d}"
        self.tidy_checkpoints()
        temporary = folder / f".writing-{final.name}"
        temporary.mkdir(parents=True)
        try:
            fill(temporary)
            _seal(temporary, step)
            if final.exists():
                final.rename(folder / f".replaced-{final.name}")
            temporary.rename(final)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise OSError(error.errno, f"cannot write checkpoint {final}: {error.strerror}") from error
        _fsync_dir(folder)
        write_atomically(folder / "latest", final.name + "\n")
        if best:
            write_atomically(folder / "best", final.name + "\n")
        self.tidy_checkpoints()
        return CheckpointDir(step, final)

    def tidy_checkpoints(self) -> None:
        """Finish what a crash interrupted: put back a checkpoint that was being replaced, remove half-written ones."""
        folder = self.path / "checkpoints"
        for replaced in folder.glob(".replaced-*"):
            original = folder / replaced.name.removeprefix(".replaced-")
            if not original.exists():
                replaced.rename(original)
        for leftover in folder.glob(".*-step-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def prune_checkpoints(self, keep: Callable[[int], bool]) -> None:
        """Remove every checkpoint whose step `keep` does not want; `best` and the newest always stay."""
        found = self.checkpoints()
        best = self.best_checkpoint()
        for old in found[:-1]:
            if not keep(old.step) and (best is None or old.step != best.step):
                doomed = old.path.with_name(f".deleting-{old.path.name}")
                old.path.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)


def _of_rank(name: str, rank: int, suffix: str) -> str:
    """events.jsonl, events.rank1.jsonl, ..."""
    return f"{name}.{suffix}" if rank == 0 else f"{name}.rank{rank}.{suffix}"


def _seal(folder: Path, step: int) -> None:
    files = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb+") as f:
            os.fsync(f.fileno())
        files[path.name] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
    write_json(folder / "manifest.json", {"schema": SCHEMA, "step": step, "files": files})


def _runs_inside(path: Path) -> str:
    if not path.exists():
        return f" {path} does not exist."
    inside = find_runs(path)
    return f" It holds {len(inside)} run(s), the newest is {inside[-1].path}." if inside else ""


def run_of_checkpoint(path: Path) -> RunDir | None:
    """The run a checkpoint directory lies in; None when it was taken out of its run."""
    run = path.resolve().parent.parent
    return RunDir(run) if (run / "config.json").is_file() else None


def find_runs(out: Path) -> list[RunDir]:
    """The run directories directly under `out`, oldest first."""
    if not out.is_dir():
        return []
    return [RunDir(p) for p in sorted(out.iterdir()) if (p / "config.json").is_file()]
