"""The rows of `vernier runs`: what ran in each run directory, its state, result, progress, size and age.

Reads no more than a list needs, so that a thousand runs are listed in seconds: the small files of a run, and the newest
events of one that has no summary. The page of `vernier report` is made from everything (`report.page.collect`). A run
that cannot be read is a row that says why.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from vernier.clock import wall_s
from vernier.config.migrations import NewerFile
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.plugins import load_group
from vernier.records.bench import StepRow
from vernier.records.codec import DamagedRecord, omitted
from vernier.records.events import EvalEvent, StartEvent, StepEvent
from vernier.records.run import RunStatus, RunSummary
from vernier.records.what_ran import WhatRan
from vernier.store import RunDir
from vernier.store.cleaning import changed_s, incomplete_runs
from vernier.store.space import newest_change_s, used_bytes

from .page.identity import heading, parts_of_record

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


def list_runs(folders: Sequence[Path]) -> list[RunRow]:
    """The runs, benchmarks, profiles and studies in these folders, in the order of their names.

    A folder that is a run itself is one row. Raises ConfigError for a folder that does not exist.
    """
    now_s = wall_s()
    return [_row(path, now_s) for folder in folders for path in run_paths(folder)]


def run_paths(folder: Path) -> list[Path]:
    """The runs and studies directly in a folder, also incomplete ones; the folder itself where it is one."""
    try:
        if _is_any(folder):
            return [folder]
        visible = [path for path in folder.iterdir() if not path.name.startswith(".") and _is_any(path)]
        return sorted([*visible, *incomplete_runs(folder)])
    except OSError as error:
        raise ConfigError(f"Cannot list {folder}: {error.strerror}. Give a folder of runs.") from None


@frozen
class ListedKind:
    """A kind of directory, other than a run, that is listed with the runs; entry points of `vernier.run_kinds`."""

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
    name, size = path.resolve().name, used_bytes(path)
    try:
        if (kind := _kind_of(path)) is not None:
            return replace(kind.row(path, now_s), name=name, bytes=size)
        if RunDir.is_run(path):
            return _of_run(RunDir(path), name, size, now_s)
        problem = "its process was killed while it made the folder"
    except _UNREADABLE as error:
        problem = str(error)
    age_s = max(0.0, now_s - newest_change_s(path))
    return RunRow(name=name, path=path, state="damaged", bytes=size, age_s=age_s, problem=problem)


def _of_run(run: RunDir, name: str, size: int, now_s: float) -> RunRow:
    settings, problem = _settings(run)
    status, state, reason = _state(run)
    summary = status.summary or RunSummary()
    start = None if status.status == "finished" else run.newest_event(StartEvent)
    kind = _kind(run, summary, start)
    ran, metric, result = summary.ran or (start.ran if start is not None else None), None, None
    if kind == "bench":
        ran, metric, result = _bench_result(run)
    elif kind == "training":
        metric, result = _result(run, summary)
    last = run.newest_event(StepEvent) if summary.step is None and start is not None else None
    step = summary.step if last is None else last.step
    changed = changed_s(run, status) if status.status in _ENDED else newest_change_s(run.path)
    return RunRow(
        name=name,
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
        bytes=size,
        age_s=max(0.0, now_s - changed),
        problem=problem or reason,
    )


def _settings(run: RunDir) -> tuple[Mapping[str, Any], str | None]:
    """The configuration of a run, and what is wrong with it."""
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
    if status.status == "running" and not run.is_locked():
        return status, "interrupted", None
    return status, status.status, status.reason


def _kind(run: RunDir, summary: RunSummary, start: StartEvent | None) -> RunKind:
    if run.is_bench:
        return "bench"
    return "profile" if summary.step is None and start is None and run.profiles() else "training"


def _result(run: RunDir, summary: RunSummary) -> tuple[str | None, float | None]:
    """The name and value of the figure of the last evaluation."""
    result = summary.result if summary.step is not None else run.newest_event(EvalEvent)
    figures = result.figures if result is not None else {}
    return next(((name, figures[name]) for name in FIGURES if figures.get(name) is not None), (None, None))


def _bench_result(run: RunDir) -> tuple[WhatRan | None, str | None, float | None]:
    """What ran, and the highest rate of all arms."""
    rows = run.read_bench(samples=False).measured
    rates = [row.images_per_s_total.value for row in rows if isinstance(row, StepRow)]
    ran = next((row.ran for row in rows if row.ran is not None), None)
    return ran, "images_per_s" if rates else None, max(rates, default=None)


def _setting(settings: Mapping[str, Any], *names: str) -> Any:
    value: Any = settings
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _described(settings: Mapping[str, Any]) -> str:
    """What ran according to the settings, where it was not recorded."""
    network, px = _setting(settings, "recipe", "model", "name"), _setting(settings, "recipe", "data", "image_px")
    data = _setting(settings, "recipe", "data", "source")
    return " · ".join(str(part) for part in (network, f"{px} px" if px else "", data) if part)
