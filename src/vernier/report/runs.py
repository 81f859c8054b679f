"""The rows of `vernier runs`: what ran in each run directory, its state, result, progress, size and age.

Reads no more than a list needs, so that a thousand runs are listed in seconds: the small files of a run, and the newest
events of one that has no summary. The page of `vernier report` is made from everything (`report.page.collect`). A run
that cannot be read is a row that says why.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from vernier.clock import parse_stamp_s, wall_s
from vernier.config.migrations import NewerFile
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.plugins import load_group
from vernier.records.codec import DamagedRecord, omitted
from vernier.records.events import EvalEvent, StartEvent, StepEvent
from vernier.records.run import RunStatus, RunSummary
from vernier.store import RunDir

from .page.identity import differences, heading, parts_of_record

RunKind = Literal["training", "bench", "profile", "study", "unknown"]
State = Literal["running", "finished", "stopped", "interrupted", "crashed", "failed", "damaged", "unknown"]
"""interrupted: its files say that it is running, and no process holds it; it was killed, or the machine went down.
unknown: a newer version of Vernier wrote it."""
FIGURES = ("top1", "AP")
"""The figure of an evaluation by which runs are compared."""
_ENDED = ("finished", "stopped", "crashed", "failed")
_UNREADABLE = (OSError, ConfigError, DamagedRecord)


@frozen
class RunRow:
    """One run. `ran` is what ran in a few words, `step` the last step, `steps` the one at which the training ends.

    `result` is top1 (percent) or AP (0 to 1) of the last evaluation, or the highest images_per_s of a benchmark.
    Studies count repeats instead of steps. `problem`: why it failed, or what is damaged.
    """

    name: str
    path: Path
    kind: RunKind = "unknown"
    recipe: str = ""
    ran: str = ""
    state: State
    smoke: bool = False
    metric: str | None = None
    result: float | None = None
    step: int | None = None
    steps: int | None = None
    bytes: int
    age_s: float
    """Since its end was recorded, or since its files last changed."""
    problem: str | None = omitted()
    differs: str = ""
    """What tells it apart from the other runs of its recipe that are listed, such as `lr 0.1, seed 2`."""


def list_runs(folders: Sequence[Path]) -> list[RunRow]:
    """The runs, benchmarks, profiles and studies in these folders, in the order of their names.

    A folder that is a run itself is one row. Raises ConfigError for a folder that does not exist.
    """
    now_s = wall_s()
    return _told_apart([_row(path, now_s) for folder in folders for path in _run_paths(folder)])


def _told_apart(rows: Sequence[RunRow]) -> list[RunRow]:
    """The rows, with the settings in which runs of one recipe differ."""
    groups: dict[tuple[str, str], list[RunRow]] = {}
    for row in rows:
        groups.setdefault((row.kind, row.recipe), []).append(row)
    texts: dict[Path, str] = {}
    for (_, recipe), group in groups.items():
        # Runs of different recipes are told apart by the recipe; comparing their settings would list everything.
        if recipe and len(group) > 1:
            trees = [_settings(RunDir(row.path))[0] if row.state != "unknown" else {} for row in group]
            texts |= zip((row.path for row in group), differences(trees), strict=True)
    return [replace(row, differs=texts.get(row.path, "")) for row in rows]


def _run_paths(folder: Path) -> list[Path]:
    """The runs and studies directly in a folder, also incomplete ones; the folder itself where it is one."""
    try:
        if _is_any(folder):
            return [folder]
        # Hidden folders are unfinished writes.
        visible = [path for path in folder.iterdir() if not path.name.startswith(".") and _is_any(path)]
        return sorted([*visible, *_incomplete_runs(folder)])
    except OSError as error:
        raise ConfigError(f"Cannot list {folder}: {error.strerror}. Give a folder of runs.") from None


@frozen
class ListedKind:
    """A kind of directory that is listed with the runs in a way of its own; entry points of `vernier.run_kinds`."""

    recognizes: Callable[[Path], bool]
    row: Callable[[Path, float], RunRow]
    """The row of a directory at a time in seconds since 1970, but for its name and size. Raises as reading a run
    does."""


def _kind_of(path: Path) -> ListedKind | None:
    kinds = load_group("vernier.run_kinds", ListedKind).values()
    return next((kind for kind in kinds if kind.recognizes(path)), None)


def _is_any(path: Path) -> bool:
    return RunDir.is_run(path) or _kind_of(path) is not None


def _row(path: Path, now_s: float) -> RunRow:
    name, size = path.resolve().name, _used_bytes(path)
    try:
        # Before run directories, since a plug-in may use those for a kind of its own.
        if (kind := _kind_of(path)) is not None:
            return replace(kind.row(path, now_s), name=name, bytes=size)
        if RunDir.is_run(path):
            return replace(run_row(RunDir(path), now_s), name=name, bytes=size)
        problem = "its process was killed while it made the folder"
    except _UNREADABLE as error:
        problem = str(error)
    age_s = max(0.0, now_s - newest_change_s(path))
    return RunRow(name=name, path=path, state="damaged", bytes=size, age_s=age_s, problem=problem)


def run_row(run: RunDir, now_s: float) -> RunRow:
    """The row of a run directory, but for its size."""
    settings, problem = _settings(run)
    status, state, reason = _state(run)
    summary = status.summary or RunSummary()
    # Reading events is what takes time: a finished run has everything in its summary.
    start = None if status.status == "finished" else run.newest_event(StartEvent)
    kind = _kind(run, summary, start)
    ran, metric, result = summary.ran or (start.ran if start is not None else None), None, None
    if kind == "training":
        metric, result = _result(run, summary)
    # A crashed run has no summary; its newest event tells how far it came.
    last = run.newest_event(StepEvent) if summary.step is None and start is not None else None
    step = summary.step if last is None else last.step
    changed = _changed_s(run, status) if status.status in _ENDED else newest_change_s(run.path)
    return RunRow(
        name=run.path.name,
        path=run.path,
        kind=kind,
        recipe=str(_setting(settings, "recipe", "name") or ""),
        ran=heading(parts_of_record((ran,))) if ran is not None else _described(settings),
        state="damaged" if problem else state,
        smoke=bool(_setting(settings, "limits", "smoke")),
        metric=metric,
        result=result,
        step=step if kind == "training" else None,
        steps=start.stop_step if start is not None else step if kind == "training" else None,
        bytes=0,
        age_s=max(0.0, now_s - changed),
        problem=problem or reason,
    )


def _settings(run: RunDir) -> tuple[Mapping[str, Any], str | None]:
    """The configuration of a run, and the reason if it cannot be read."""
    try:
        return run.read_config(), None
    except NewerFile:
        raise
    except ConfigError as error:
        return {}, str(error)


def _state(run: RunDir) -> tuple[RunStatus, State, str | None]:
    """run.json, the state that follows from it and from the lock, and the reason of a failure or damage."""
    try:
        status = run.recorded_status()
    except FileNotFoundError:  # a process that has just begun, or was killed then
        return RunStatus(), "running" if run.is_locked() else "interrupted", None
    except NewerFile as error:
        return RunStatus(), "unknown", str(error)
    except _UNREADABLE as error:
        return RunStatus(), "damaged", str(error)
    # The lock is released by the kernel when a process dies, so it cannot be stale as the file can.
    if status.status == "running" and not run.is_locked():
        return status, "interrupted", None
    return status, status.status, status.reason


def _kind(run: RunDir, summary: RunSummary, start: StartEvent | None) -> RunKind:
    if run.is_bench:
        return "bench"
    return "profile" if summary.step is None and start is None and run.profiles() else "training"


def _result(run: RunDir, summary: RunSummary) -> tuple[str | None, float | None]:
    """Name and value of the main metric of the last evaluation."""
    result = summary.result if summary.step is not None else run.newest_event(EvalEvent)
    figures = result.figures if result is not None else {}
    return next(((name, figures[name]) for name in FIGURES if figures.get(name) is not None), (None, None))


def _setting(settings: Mapping[str, Any], *names: str) -> Any:
    value: Any = settings
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _described(settings: Mapping[str, Any]) -> str:
    """Model, image size and data from the settings, for runs that did not record what ran."""
    network, px = _setting(settings, "recipe", "model", "name"), _setting(settings, "recipe", "data", "image_px")
    data = _setting(settings, "recipe", "data", "source")
    return " · ".join(str(part) for part in (network, f"{px} px" if px else "", data) if part)


# ---------------------------------------------------------------------------------------------------------- on the disk


_BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system."""
_STAMPED = re.compile(r"^\d{8}-\d{6}-.")  # as `RunDir.create` names runs: date, time, name


def _incomplete_runs(folder: Path) -> list[Path]:
    """Folders with a name of a run and without a configuration: their process was killed while it made them."""
    return [
        path
        for path in sorted(folder.iterdir())
        if _STAMPED.match(path.name) and path.is_dir() and not path.is_symlink() and _has_only_empty_folders(path)
    ]


def _has_only_empty_folders(path: Path) -> bool:
    # `RunDir.create` makes an empty checkpoints/ before the configuration is written.
    return all(p.is_dir() and not p.is_symlink() and not any(p.iterdir()) for p in path.iterdir())


def _changed_s(run: RunDir, status: RunStatus) -> float:
    """When a run last said how it is, or else when its files changed: seconds since 1970."""
    return parse_stamp_s(status.updated) or newest_change_s(run.path)


def _used_bytes(path: Path) -> int:
    """Bytes on disk of a file or of everything in a folder; a file with several names counts once."""
    files = {(info.st_dev, info.st_ino): _size(info) for info in _walk(path)}
    return sum(files.values())


def newest_change_s(path: Path) -> float:
    """When a file of the folder, or the folder itself, was changed last: seconds since 1970, 0 where it is gone."""
    return max((info.st_mtime for info in _walk(path, folders=True)), default=0.0)


def _size(info: os.stat_result) -> int:
    # Not st_size: what is freed is what the file takes, with holes and rounded up to blocks.
    return info.st_blocks * _BLOCK_BYTES


def _walk(path: Path, *, folders: bool = False) -> Iterator[os.stat_result]:
    """Everything below a path, without following links; what cannot be looked at is left out."""
    waiting: list[str | os.DirEntry[str]] = [os.fspath(path)]
    while waiting:
        entry = waiting.pop()
        try:
            info = entry.stat(follow_symlinks=False) if isinstance(entry, os.DirEntry) else os.lstat(entry)
            if stat.S_ISDIR(info.st_mode):
                with os.scandir(entry) as children:
                    waiting += children
                if not folders:
                    continue
        except OSError:
            continue
        yield info
