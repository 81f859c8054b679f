"""Reads run directories, studies and other systems' logs into the subjects of a page; sections read no files.

A run that is still running, crashed, or is another system's gives what it has. A damaged file is named in `notes` and
left out.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.measure.statistics.throughput import Window
from vernier.measure.study.analysis import METHODS as STUDY_METHODS
from vernier.measure.study.csv_tables import read_csv
from vernier.measure.study.files import StudyDir
from vernier.measure.telemetry.noise import describe_noise, measure_noise, worst_noise
from vernier.records.bench import BenchResult
from vernier.records.codec import DamagedRecord, decode
from vernier.records.environment import Environment, decode_environment
from vernier.records.events import (
    CheckpointEvent,
    EvalEvent,
    Event,
    StartEvent,
    StepEvent,
    WarningEvent,
    sessions,
)
from vernier.records.predictions import DetectionExample, Mistakes
from vernier.records.profile import KernelTime, MemoryPoint, ProfileSummary
from vernier.records.run import EvalResult, RunSummary
from vernier.records.telemetry import TelemetryRecord, decode_telemetry
from vernier.records.what_ran import WhatRan
from vernier.report.logs.mllog import time_to_train
from vernier.report.logs.model import RunLog, Tree
from vernier.report.logs.own import what_an_old_arm_ran, what_an_old_run_ran
from vernier.report.logs.reading import (
    is_bench_result,
    open_logs,
    read_json_or_none,
)
from vernier.report.logs.work import NOT_IN_LOG
from vernier.store import DamagedFile, RunDir, find_runs, read_bench, read_json, read_record
from vernier.wording import plural

from .identity import heading, parts_of_log, parts_of_record, unique_names
from .studies import Study, open_study, open_study_result

T = TypeVar("T")
MOST_POINTS = 1500
FOREIGN = {
    "raport": "NVIDIA's raport.json",
    "dllogger": "NVIDIA's DLLogger lines",
    "mllog": "an MLPerf log",
    "console": "a script's console output",
}


@frozen
class Point:
    """A window of steps: where it ends, its mean loss, its time. `own_s` is the busy time per step of each process."""

    epoch: float
    step: int
    loss: float | None
    lr: float | None
    steps: int
    window: Window
    own_s: tuple[float, ...] | None = None


@frozen
class EvalPoint:
    """An evaluation during training. `step` is None where the log has only epochs."""

    epoch: float
    step: int | None
    result: EvalResult


@frozen
class Profile:
    """Profiled steps of one process. `link` is the path from the page to the trace."""

    summary: ProfileSummary
    kernels: tuple[KernelTime, ...] = ()
    memory: tuple[MemoryPoint, ...] = ()
    trace: Path | None = None
    link: str = ""


@frozen
class Subject:
    """A run, benchmark, study or log that the page is about. `name` is unique on the page."""

    name: str
    path: Path
    kind: Literal["training", "bench", "profile", "study"]
    format: str = "vernier"
    status: str = "unknown"
    reason: str | None = None
    updated: str | None = None
    simulated: bool = False
    smoke: bool = False
    """A try-out of the settings, whose figures mean nothing."""
    ran: tuple[WhatRan, ...] = ()
    """What ran: one record, or one per arm of a benchmark; from the settings where it was not `recorded`."""
    recorded: bool = True
    parts: dict[str, str] = field(default_factory=dict)
    """What ran, by part; also of another system's log."""
    start: StartEvent | None = None
    summary: RunSummary = field(default_factory=RunSummary)
    settings: Tree = field(default_factory=dict)
    environment: Environment | None = None
    points: tuple[Point, ...] = ()
    evals: tuple[EvalPoint, ...] = ()
    spent_s: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bench: BenchResult | None = None
    profiles: tuple[Profile, ...] = ()
    telemetry: tuple[TelemetryRecord, ...] = ()
    disturbances: tuple[str, ...] = ()
    """What disturbed the steps, as far as the sensors tell."""
    study: Study | None = None
    mistakes: Mistakes | None = None
    examples: tuple[DetectionExample, ...] = ()

    @property
    def foreign(self) -> bool:
        return self.format in FOREIGN

    @property
    def heading(self) -> str:
        """What ran in a few words; the name where that is not known."""
        return heading(self.parts) or self.name

    @property
    def result(self) -> EvalResult | None:
        """The last evaluation, also of a run that has no summary yet."""
        return self.summary.result or (self.evals[-1].result if self.evals else None)

    def figure(self, name: str) -> float | None:
        """One figure of the last evaluation, such as top1; None where there is none."""
        return self.result.figures.get(name) if self.result else None


def collect(paths: Sequence[Path], page_folder: Path | None = None) -> list[Subject]:
    """The subjects of all paths, in order; folders of runs are opened, without their smoke runs.

    Links to traces are relative to `page_folder`. Raises ConfigError where there is nothing.
    """
    opened = [subject for path in paths for subject in _open(path)]
    if not opened:
        if smoke := smoke_runs(paths):
            raise ConfigError(
                f"Nothing to report on: only {plural(len(smoke), 'smoke run')}, whose figures mean nothing. "
                f"Name one to see it: {smoke[-1]}"
            )
        raise ConfigError("Nothing to report on. Give run directories, studies or logs.")
    names = unique_names([s.name for s in opened], [s.settings for s in opened])
    subjects = [replace(s, name=name) for s, name in zip(opened, names, strict=True)]
    return [_link_traces(s, page_folder) for s in subjects] if page_folder else subjects


def times_to_train(subjects: Sequence[Subject]) -> list[str]:
    """MLPerf's score of the logs of one folder and network, in words; aborted runs are counted apart."""
    groups: dict[tuple[str, Path], list[Subject]] = {}
    for subject in subjects:
        if subject.format == "mllog":
            groups.setdefault((subject.parts.get("network", NOT_IN_LOG), subject.path.parent), []).append(subject)
    lines = []
    for (network, folder), group in groups.items():
        finished = [s for s in group if s.summary.reached_target and "total" in s.spent_s]
        left = len(group) - len(finished)
        aborted = f"; {plural(left, 'aborted run')} left out" if left else ""
        score, how = time_to_train([s.spent_s["total"] for s in finished]) or (None, "no run reached the target")
        minutes = "time to train" if score is None else f"time to train {score / 60:,.2f} minutes"
        lines.append(f"{network} in {folder}: {minutes} ({how}{aborted})")
    return lines


def smoke_runs(paths: Sequence[Path]) -> list[Path]:
    """The smoke runs in folders of runs, which `collect` leaves out; those that are named themselves are shown."""
    return [run.path for path in paths for run in find_runs(path) if run.is_smoke]


def _link_traces(subject: Subject, folder: Path) -> Subject:
    links = [quote(os.path.relpath(p.trace, folder)) if p.trace else "" for p in subject.profiles]
    profiles = tuple(replace(p, link=link) for p, link in zip(subject.profiles, links, strict=True))
    return replace(subject, profiles=profiles)


def _open(path: Path) -> Iterable[Subject]:
    if not path.exists():
        raise ConfigError(f"{path} does not exist. Give a run directory, a study, a log, or a folder of runs.")
    if path.is_dir():
        if StudyDir.is_study(path):
            return [_of_study(path, open_study([path]))]
        runs = find_runs(path)
        return [_of_run(run) for run in runs if not run.is_smoke] if runs else [_of_run(RunDir.open(path))]
    if path.suffix == ".csv":
        return [_of_study(path, open_study([path]))]
    tree = read_json_or_none(path)
    if isinstance(tree, dict) and tree.get("method") in STUDY_METHODS:
        return [_of_study(path, open_study_result(tree))]
    if is_bench_result(tree):
        return [_of_bench(path, read_bench(path))]
    return [_of_log(log) for log in open_logs(path)]


# ----------------------------------------------------------------------------------------------------- run directories


def _of_run(run: RunDir) -> Subject:
    events, damaged = run.history_and_damage()
    notes = [f"{damaged} damaged event(s) left out"] if damaged else []
    status, telemetry = run.status(), tuple(decode_telemetry(run.read_telemetry()))
    summary = status.summary or RunSummary()
    bench = _read_or_note(run.read_bench, notes) if run.is_bench else None
    profiles = tuple(p for path in run.profiles() if (p := _read_or_note(partial(_profile, path), notes)))
    environment = decode_environment(run.read_environment())
    start = next((e for e in reversed(events) if isinstance(e, StartEvent)), None)
    settings = _with_arms(_read_or_note(run.read_config, notes) or {}, bench)
    ran, recorded = _what_ran(start, settings, environment, bench, profiles)
    notes += [f"left out: Cannot read {path}." for path in run.unreadable()]
    predictions = run.path / "predictions"
    return Subject(
        name=run.path.resolve().name,
        path=run.path,
        kind="bench" if bench else "profile" if profiles and not events else "training",
        status=status.status,
        reason=status.reason,
        updated=status.updated,
        smoke=run.is_smoke,
        ran=ran,
        recorded=recorded,
        parts=parts_of_record(ran),
        start=start,
        summary=summary,
        settings=settings,
        environment=environment,
        points=tuple(_thin(_points(events))),
        evals=tuple(EvalPoint(epoch=e.epoch, step=e.step, result=e) for e in events if isinstance(e, EvalEvent)),
        spent_s=summary.spent_s or _spent_so_far(events),
        warnings=tuple(dict.fromkeys(e.message for e in events if isinstance(e, WarningEvent))),
        bench=bench,
        profiles=profiles,
        telemetry=telemetry,
        disturbances=tuple(_disturbances(events, telemetry, environment.cpu.cores_logical if environment else None)),
        mistakes=_read_or_note(lambda: read_record(Mistakes, predictions / "mistakes.json"), notes),
        examples=_read_or_note(lambda: _examples(predictions / "examples.json"), notes) or (),
        notes=tuple(notes),
    )


def _points(events: Sequence[Event]) -> list[Point]:
    return [
        Point(
            epoch=e.epoch,
            step=e.step,
            loss=e.loss,
            lr=e.lr,
            steps=len(e.step_s),
            window=Window.of_step(e),
            own_s=e.own_s_by_rank,
        )
        for e in events
        if isinstance(e, StepEvent) and sum(e.step_s) > 0
    ]


def _with_arms(settings: dict[str, Any], bench: BenchResult | None) -> dict[str, Any]:
    """The settings of a benchmark with what its arms had for batch, precision, mode and processes."""
    if bench is None or bench.asked is None or not bench.rows or not settings:
        return settings
    batches = ", ".join(f"{batch:,}" for batch in sorted({row.batch for row in bench.rows}))
    machine: dict[str, Any] = {
        name: ", ".join(dict.fromkeys(str(getattr(row, name)) for row in bench.rows))
        for name in ("precision", "mode", "procs")
    }
    recipe = {name: value for name, value in settings.get("recipe", {}).items() if name != "global_batch"}
    if bench.asked.what == "infer":
        machine["eval_batch"] = batches
    else:
        recipe["batch"] = f"{batches} {'in total' if bench.asked.scaling == 'strong' else 'per device'}"
    return {**settings, "recipe": recipe, "machine": {**settings.get("machine", {}), **machine}}


def _what_ran(
    start: StartEvent | None,
    settings: Tree,
    environment: Environment | None,
    bench: BenchResult | None,
    profiles: Sequence[Profile] = (),
) -> tuple[tuple[WhatRan, ...], bool]:
    """What ran, and whether that was recorded: older versions did not, and it is taken from their settings."""
    if bench is not None:
        records = [row.ran for row in bench.measured]
        old = [what_an_old_arm_ran(bench, row, environment) for row in bench.measured]
    else:
        records = [start.ran if start else None, *(p.summary.ran for p in profiles)]
        old = [what_an_old_run_ran(settings, start, environment)]
    ran = tuple(r for r in records if r is not None)
    if bench is None:
        ran = ran[:1]
    return (ran, True) if ran else (tuple(r for r in old if r is not None), False)


def _read_or_note(read: Callable[[], T], notes: list[str]) -> T | None:
    """The content of a file; None where there is none, and with a note where it cannot be read."""
    try:
        return read()
    except FileNotFoundError:
        return None
    except (ConfigError, DamagedRecord) as error:
        notes.append(f"left out: {error}")
        return None


def _examples(path: Path) -> tuple[DetectionExample, ...]:
    try:
        return tuple(decode(DetectionExample, tree, f"[{i}]") for i, tree in enumerate(read_json(path) or []))
    except (DamagedRecord, TypeError) as error:
        raise DamagedFile(f"Cannot read {path}: {error}.") from None


def _disturbances(events: Sequence[Event], telemetry: Sequence[TelemetryRecord], cores: int | None) -> list[str]:
    """The worst noise of all sessions in words, each from its first step to its last."""
    noises = []
    for number, steps in enumerate(sessions(events)):
        times = [e.t_s for e in steps if e.t_s is not None]
        samples = [r for r in telemetry if r.session == number]
        if times and samples:
            noises.append(measure_noise(samples, (min(times), max(times)), cores))
    worst = worst_noise(noises)
    return describe_noise(worst) if worst else []


def _thin(points: list[Point]) -> list[Point]:
    """At most MOST_POINTS: neighbours are merged, times and samples added, losses averaged by steps."""
    size = -(-len(points) // MOST_POINTS)
    return points if size <= 1 else [_merge(points[i : i + size]) for i in range(0, len(points), size)]


def _merge(points: list[Point]) -> Point:
    losses = [(p.loss, p.steps) for p in points if p.loss is not None]
    own_s = [p.own_s for p in points if p.own_s]
    return replace(
        points[-1],
        loss=math.fsum(v * n for v, n in losses) / sum(n for _, n in losses) if losses else None,
        steps=sum(p.steps for p in points),
        window=Window.total(p.window for p in points),
        own_s=tuple(sum(rank) / len(own_s) for rank in zip(*own_s, strict=True)) if len(own_s) == len(points) else None,
    )


def _spent_so_far(events: Sequence[Event]) -> dict[str, float]:
    """Where the time of a run without a summary went, as far as its events tell."""
    steps = [e for e in events if isinstance(e, StepEvent)]
    waits = math.fsum(Window.of_step(e).data_wait_s for e in steps)
    spent = {
        "data_wait": waits,
        "compute": math.fsum(t for e in steps for t in e.step_s) - waits,
        "evaluation": math.fsum(e.seconds for e in events if isinstance(e, EvalEvent)),
        "checkpoint": math.fsum(e.seconds for e in events if isinstance(e, CheckpointEvent)),
    }
    return {**spent, "total": sum(spent.values())} if steps else {}


def _profile(path: Path) -> Profile:
    """The profile of one process: profile.rank0.json, with kernels.rank0.csv, memory.rank0.csv and the trace beside."""

    def beside(name: str, suffix: str) -> Path | None:
        file = path.with_name(path.name.replace("profile", name, 1).removesuffix("json") + suffix)
        return file if file.is_file() else None

    def rows(cls: type[T], file: Path | None) -> list[T]:
        return [decode(cls, dict(row), f"{file}[{i}]") for i, row in enumerate(read_csv(file))] if file else []

    memory = rows(MemoryPoint, beside("memory", "csv"))
    return Profile(
        summary=read_record(ProfileSummary, path),
        kernels=tuple(rows(KernelTime, beside("kernels", "csv"))),
        memory=tuple(memory[:: -(-len(memory) // MOST_POINTS) or 1]),
        trace=beside("trace", "json.gz"),
    )


# -------------------------------------------------------------------------------------------------------------- others


def _of_study(path: Path, study: Study) -> Subject:
    return Subject(
        name=path.resolve().stem,
        path=path,
        kind="study",
        status="finished",
        study=study,
        simulated=study.result.simulated,
        settings=dict(study.settings),
        notes=study.result.notes,
    )


def _of_bench(path: Path, bench: BenchResult) -> Subject:
    """A copy of bench.json that lies outside its run directory."""
    ran, recorded = _what_ran(None, {}, None, bench)
    return Subject(
        name=path.stem,
        path=path,
        kind="bench",
        status="finished",
        bench=bench,
        settings=_with_arms(bench.config, bench),
        ran=ran,
        recorded=recorded,
        parts=parts_of_record(ran),
    )


def _of_log(log: RunLog) -> Subject:
    """Another system's log: each step becomes a point. MLPerf's logs have whole epochs, counted from one."""
    by_epoch, parts = log.format == "mllog", parts_of_log(log)
    per_epoch: dict[int, int] = {}
    for s in log.steps:
        per_epoch[s.epoch] = max(per_epoch.get(s.epoch, 0), s.step + 1)
    points = []
    for s in log.steps:
        epoch = s.epoch + (0.0 if by_epoch else (s.step + 1) / per_epoch[s.epoch])
        points.append(Point(epoch=epoch, step=s.step, loss=s.loss, lr=s.lr, steps=s.steps, window=s.window))
    evals = [
        EvalPoint(epoch=e.epoch + (not by_epoch), step=None, result=EvalResult(figures={**e.values})) for e in log.evals
    ]
    return Subject(
        name=log.path.stem if parts["network"] == NOT_IN_LOG else f"{parts['network']} {log.path.stem}",
        path=log.path,
        kind="training",
        format=log.format,
        status="foreign",
        settings=log.settings,
        environment=log.environment,
        points=tuple(_thin(points)),
        evals=tuple(evals),
        notes=log.notes,
        start=StartEvent(
            world=log.devices or 0, train_samples=log.train_samples or 0, val_samples=log.eval_samples or 0
        ),
        parts=parts,
        summary=RunSummary(reached_target=log.reached_target),
        spent_s={"total": log.total_s} if log.total_s else {},
    )
