"""Reads run directories, studies and other systems' logs into the subjects of a page; sections read no files.

A run that is still running, crashed, or is another system's gives what it has. A damaged file is named in `notes` and
left out. Of many runs all but the newest are read briefly: their results, not their curves.
"""

import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.measure.statistics.runs import time_to_train
from vernier.measure.statistics.throughput import Window
from vernier.measure.study.analysis import METHODS as STUDY_METHODS
from vernier.measure.study.csv_tables import read_csv
from vernier.measure.study.files import StudyDir
from vernier.measure.telemetry.noise import describe_noise, measure_noise, worst_noise
from vernier.records.bench import BenchResult, StepRow
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
from vernier.records.predictions import DetectionExample, Mistakes, TrainImages
from vernier.records.profile import KernelTime, MemoryPoint, ProfileSummary
from vernier.records.run import EvalResult, RunSummary
from vernier.records.telemetry import TelemetryRecord, decode_telemetry
from vernier.records.what_ran import WhatRan
from vernier.references import plain
from vernier.report.logs.formats import formats
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

from .identity import Label, heading, parts_of_log, parts_of_record, unique_names
from .studies import Study, open_study, open_study_result

T = TypeVar("T")
MOST_POINTS = 1500  # per curve; more windows are merged into means, so that the page stays small
MANY_RUNS, FULL_RUNS = 12, 8
"""Of more runs than the first number, so many of the newest are shown with their curves, and the others in a table."""
MANY_RANKS = 64
"""Of a run of more processes, only the files of the first one on each host are read."""
LOG_SUFFIXES = ("", ".txt", ".log", ".out", ".json", ".jsonl")  # the first one is for files without a suffix
MOST_FILES = 500
"""A folder with more files than these is not searched for logs of other systems."""
HEADLINES = ("top1", "AP", "eval_accuracy")  # in this order: a run is judged by the first one that it has
STUDY_PARTS = ("network", "image size", "batch", "precision", "mode")
"""What the settings of a study say of what ran."""
# Of formats that plug in; those of outside packages are shown by their own name.
FOREIGN = {
    "raport": "NVIDIA's raport.json",
    "dllogger": "NVIDIA's DLLogger lines",
    "mllog": "an MLPerf log",
    "console": "a script's console output",
}


@frozen
class Point:
    """A window of steps: where it ends, its mean loss, its time. `own_s` is the busy time per step of each process.

    `step` is None where the log has only epochs. `time_s` adds up steps, evaluations and stalls for checkpoints, not
    the pauses between sessions. `t_s` is the session's monotonic clock, as in telemetry.
    """

    epoch: float
    step: int | None
    time_s: float
    loss: float | None
    lr: float | None
    steps: int
    window: Window
    own_s: tuple[float, ...] | None = None
    session: int = 0
    t_s: float | None = None
    steady: bool = True
    """False for a warm-up that another system's log has."""


@frozen
class EvalPoint:
    """An evaluation during training, at its end."""

    epoch: float
    step: int | None
    time_s: float
    result: EvalResult


@frozen
class Peer:
    """Another process of a run, from its own files: its steps of the last session and, of one per host, its sensors."""

    rank: int
    host: str
    points: tuple[Point, ...] = ()
    telemetry: tuple[TelemetryRecord, ...] = ()


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
    brief: bool = False
    """One of many runs: only its settings and results were read."""
    note: str = ""
    """What a person wrote into the run's notes.txt."""
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
    peers: tuple[Peer, ...] = ()
    """The other processes whose files are here; those of another host may come later."""
    disturbances: tuple[str, ...] = ()
    """What disturbed the steps, as far as the sensors tell."""
    study: Study | None = None
    mistakes: Mistakes | None = None
    examples: tuple[DetectionExample, ...] = ()
    train_images: TrainImages | None = None

    @property
    def foreign(self) -> bool:
        return self.format in formats()

    @property
    def heading(self) -> str:
        """What ran in a few words; the name where that is not known."""
        return heading(self.parts) or self.name

    @property
    def result(self) -> EvalResult | None:
        """The last evaluation, also of a run that has no summary yet."""
        return self.summary.result or (self.evals[-1].result if self.evals else None)

    @property
    def best(self) -> EvalPoint | None:
        """The best evaluation by the figure that the run is judged by; the first one of several equal ones."""
        metric = self.metric
        values = [(e.result.figures.get(metric), e) for e in self.evals] if metric else []
        known = [(value, e) for value, e in values if value is not None]
        return max(known, key=lambda pair: pair[0])[1] if known else None

    @property
    def metric(self) -> str | None:
        """The figure that the run is judged by: top1, AP, or what another system's log calls its accuracy."""
        return next((name for name in HEADLINES if self.figure(name) is not None), None)

    @property
    def images_per_s(self) -> tuple[float, float | None, float | None] | None:
        """Over all devices with its interval; of other systems' logs and runs without a summary, over recorded steps.

        Of a benchmark with several arms, the fastest.
        """
        if self.bench is not None:
            # Processes without gradient all-reduce do not train one model: their rate is a reference, not a result.
            rates = [r.images_per_s_total for r in self.bench.measured if isinstance(r, StepRow) and r.exchange is None]
            best = max(rates, key=lambda rate: rate.value, default=None)
            return (best.value, best.low, best.high) if best else None
        if speed := self.summary.training:
            return (speed.images_per_s_total, *speed.images_per_s_total_95)
        # Images over time of all windows; a mean of the windows' rates would give short windows too much weight.
        rate = Window.total(p.window for p in self.points if p.steady).samples_per_s
        return (rate, None, None) if rate else None

    def figure(self, name: str) -> float | None:
        """One figure of the last evaluation, such as top1; None where there is none."""
        return self.result.figures.get(name) if self.result else None


def collect(paths: Sequence[Path], page_folder: Path | None = None) -> list[Subject]:
    """The subjects of all paths, in order; folders of runs are opened, without their smoke runs.

    Links to traces are relative to `page_folder`. Raises ConfigError where there is nothing.
    """
    sources = [source for path in paths for source in _open(path)]
    if not sources:
        if smoke := smoke_runs(paths):
            raise ConfigError(
                f"Nothing to report on: only {plural(len(smoke), 'smoke run')}, whose figures mean nothing. "
                f"Name one to see it: {smoke[-1]}"
            )
        raise ConfigError("Nothing to report on. Give run directories, studies or logs.")
    # The name of a run directory begins with its time, so this order is by age.
    runs = sorted((source for source in sources if isinstance(source, RunDir)), key=lambda run: run.path.name)
    briefly = set(runs[:-FULL_RUNS]) if len(runs) > MANY_RUNS else set[RunDir]()
    opened = [
        source if isinstance(source, Subject) else _of_run_briefly(source) if source in briefly else _of_run(source)
        for source in sources
    ]
    # After all subjects are read: a name is made of what differs between them.
    names = unique_names([_label(subject) for subject in opened])
    subjects = [replace(s, name=name) for s, name in zip(opened, names, strict=True)]
    return [_link_traces(s, page_folder) for s in subjects] if page_folder else subjects


def _label(s: Subject) -> Label:
    started = (s.start.time if s.start else None) or ""
    return Label(path=s.path, name=s.name, settings=s.settings, started=started, parts=s.parts if s.foreign else {})


def times_to_train(subjects: Sequence[Subject]) -> list[str]:
    """MLPerf's score of the logs of one folder and network, in words; aborted runs are counted apart."""
    groups: dict[tuple[str, Path], list[Subject]] = {}
    for subject in subjects:
        if subject.format == "mllog":
            # An MLPerf submission has one folder per system and benchmark, with one file per run.
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
    # Quoted: a `#` or `?` in the name of a folder would end the path of the link.
    links = [quote(os.path.relpath(p.trace, folder)) if p.trace else "" for p in subject.profiles]
    profiles = tuple(replace(p, link=link) for p, link in zip(subject.profiles, links, strict=True))
    return replace(subject, profiles=profiles)


def _open(path: Path) -> Sequence[RunDir | Subject]:
    """What a path holds; run directories are read later, since that depends on how many there are."""
    if not path.exists():
        raise ConfigError(f"{path} does not exist. Give a run directory, a study, a log, or a folder of runs.")
    if path.is_dir():
        if StudyDir.is_study(path):
            return [subject_of_study(path, open_study([path]))]
        # Before RunDir.open, which takes a folder only if it holds a single run. Smoke runs are dropped here alone: one
        # that is named itself is opened below.
        runs = find_runs(path)
        if runs:
            return [run for run in runs if not run.is_smoke]
        try:
            return [RunDir.open(path)]
        except ConfigError:
            # If there are no logs either, the error about the run directory is the better message.
            if logs := _logs_below(path):
                return [_of_log(log) for log in logs]
            raise
    if path.suffix == ".csv":
        return [subject_of_study(path, open_study([path]))]
    tree = read_json_or_none(path)
    # The output of `study analyze --json`.
    if isinstance(tree, dict) and tree.get("method") in STUDY_METHODS:
        return [subject_of_study(path, open_study_result(tree))]
    if is_bench_result(tree):
        return [_of_bench(path, read_bench(path))]
    return [_of_log(log) for log in open_logs(path)]


def _logs_below(folder: Path) -> list[RunLog]:
    """Other systems' logs in a folder that is no run; files that are no logs are passed over."""
    files = [file for file in islice(folder.rglob("*"), MOST_FILES + 1) if file.is_file()]
    logs: list[RunLog] = []
    for file in sorted(files) if len(files) <= MOST_FILES else ():
        if file.suffix in LOG_SUFFIXES:
            with suppress(ConfigError):
                logs += open_logs(file)
    return logs


# ----------------------------------------------------------------------------------------------------- run directories


def _of_run_briefly(run: RunDir) -> Subject:
    """A run with its settings and results only, so that a thousand of them are read in seconds."""
    notes: list[str] = []
    status = run.status()
    summary = status.summary or RunSummary()
    # The end of the event file is read only if the summary lacks what it would provide.
    events = run.first_and_last_events(tail=summary.result is None or summary.training is None)
    start = next((e for e in events if isinstance(e, StartEvent)), None)
    settings = _read_or_note(run.read_config, notes) or {}
    ran = tuple(r for r in (summary.ran or (start.ran if start else None),) if r is not None)
    # Without the samples of the rounds, which a table of runs does not need.
    bench = _read_or_note(lambda: run.read_bench(samples=False), notes) if run.is_bench else None
    points, evals = _curves(events)
    return Subject(
        name=run.path.name,
        path=run.path,
        kind="bench" if run.is_bench else "training" if events or not run.profiles() else "profile",
        status=status.status,
        reason=status.reason,
        updated=status.updated,
        smoke=bool((settings.get("limits") or {}).get("smoke")),
        brief=True,
        note=run.read_note(),
        ran=ran,
        recorded=bool(ran),
        parts=parts_of_record(ran),
        start=start,
        summary=summary,
        settings=settings,
        points=tuple(points[-1:]),
        evals=tuple(evals[-1:]),
        spent_s=summary.spent_s,
        bench=bench,
        notes=tuple(notes),
    )


def _of_run(run: RunDir) -> Subject:
    events, damaged = run.history_and_damage()
    notes = [f"{plural(damaged, 'damaged event')} left out"] if damaged else []
    status, telemetry = run.status(), tuple(decode_telemetry(run.read_telemetry()))
    summary = status.summary or RunSummary()
    bench = _read_or_note(run.read_bench, notes) if run.is_bench else None
    profiles = tuple(p for path in run.profiles() if (p := _read_or_note(partial(_profile, path), notes)))
    environment = decode_environment(run.read_environment())
    # Each session has a start event; the last one has the settings that are in effect.
    start = next((e for e in reversed(events) if isinstance(e, StartEvent)), None)
    settings = _with_arms(_read_or_note(run.read_config, notes) or {}, bench)
    ran, recorded = _what_ran(start, settings, environment, bench, profiles)
    notes += [f"left out: Cannot read {path}." for path in run.unreadable()]
    predictions = run.path / "predictions"
    points, evals = _curves(events)
    return Subject(
        name=run.path.resolve().name,  # a run can be given as `.`
        path=run.path,
        # A training run can have profiled steps too; a profile of its own has no events.
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
        points=tuple(_thin(points)),
        evals=tuple(evals),
        spent_s=summary.spent_s or _spent_so_far(events),
        warnings=tuple(dict.fromkeys(e.message for e in events if isinstance(e, WarningEvent))),
        bench=bench,
        profiles=profiles,
        telemetry=telemetry,
        peers=tuple(_peers(run, start, points)),
        disturbances=tuple(_disturbances(events, telemetry, environment.cpu.cores_logical if environment else None)),
        mistakes=_read_or_note(lambda: read_record(Mistakes, predictions / "mistakes.json"), notes),
        examples=_read_or_note(lambda: _examples(predictions / "examples.json"), notes) or (),
        train_images=_read_or_note(run.read_train_images, notes),
        note=run.read_note(),
        notes=tuple(notes),
    )


def _curves(events: Sequence[Event]) -> tuple[list[Point], list[EvalPoint]]:
    """Windows of steps and evaluations of all sessions, with the time they had taken by then."""
    points: list[Point] = []
    evals: list[EvalPoint] = []
    # Durations are added up instead of subtracting clock readings: pauses between sessions do not count.
    time_s, sessions_begun = 0.0, 0
    for e in events:
        if isinstance(e, StartEvent):
            sessions_begun += 1
        elif isinstance(e, StepEvent):
            time_s += sum(e.step_s)
            point = Point(
                epoch=e.epoch,
                step=e.step,
                time_s=time_s,
                loss=e.loss,
                lr=e.lr,
                steps=len(e.step_s),
                window=Window.of_step(e),
                own_s=e.own_s_by_rank,
                session=max(0, sessions_begun - 1),  # a damaged file may lack the first start event
                t_s=e.t_s,
            )
            points += [point] if sum(e.step_s) > 0 else []  # a window of 0 s has no throughput
        elif isinstance(e, EvalEvent):
            time_s += e.seconds
            # An EvalEvent is an EvalResult.
            evals.append(EvalPoint(epoch=e.epoch, step=e.step, time_s=time_s, result=e))
        elif isinstance(e, CheckpointEvent):
            time_s += _stall_s(e)
    return points, evals


def _peers(run: RunDir, start: StartEvent | None, points: Sequence[Point]) -> list[Peer]:
    """The other processes of the last session; of very many, the first one of each host."""
    processes = sorted(start.processes, key=lambda process: process.rank) if start else []
    # Reversed, so that the lowest rank of a host stays.
    first_ranks = {process.host: process.rank for process in reversed(processes)}
    session = points[-1].session if points else 0
    peers = []
    for process in processes[1:]:
        first = first_ranks[process.host] == process.rank
        if len(processes) > MANY_RANKS and not first:
            continue
        own, _ = _curves(run.history(process.rank))
        # The process may be missing in earlier sessions, which had fewer.
        last = [replace(p, session=session) for p in own if p.session == own[-1].session]
        records = decode_telemetry(run.read_telemetry(process.rank)) if first else []
        telemetry = tuple(r for r in records if getattr(r, "session", session) == session)
        if last or telemetry:
            peers.append(Peer(rank=process.rank, host=process.host, points=tuple(_thin(last)), telemetry=telemetry))
    return peers


def _stall_s(event: CheckpointEvent) -> float:
    return event.seconds if event.stall_s is None else event.stall_s


def _with_arms(settings: dict[str, Any], bench: BenchResult | None) -> dict[str, Any]:
    """The settings of a benchmark with what its arms had for batch, precision, mode and processes."""
    if bench is None or bench.asked is None or not bench.rows or not settings:
        return settings
    batches = ", ".join(f"{batch:,}" for batch in sorted({row.batch for row in bench.rows}))
    # The recipe's global batch and evaluation batch are replaced: the arms did not use them.
    machine: dict[str, Any] = {
        name: ", ".join(dict.fromkeys(str(getattr(row, name)) for row in bench.rows))
        for name in ("precision", "mode", "procs")
    }
    recipe = {name: value for name, value in settings.get("recipe", {}).items() if name != "global_batch"}
    own = {name: value for name, value in settings.get("machine", {}).items() if name != "eval_batch"}
    # Strong scaling divides one batch over the devices.
    total = " in total" if bench.asked.scaling == "strong" else " per device"
    recipe["batch"] = batches + ("" if bench.asked.what == "infer" else total)
    return {**settings, "recipe": recipe, "machine": {**own, **machine}}


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
        ran = ran[:1]  # the profiles of a run repeat what its start event has
    return (ran, True) if ran else (tuple(r for r in old if r is not None), False)


def _read_or_note(read: Callable[[], T], notes: list[str]) -> T | None:
    """The content of a file; None where there is none, and with a note where it cannot be read."""
    try:
        return read()
    except FileNotFoundError:  # most files of a run are optional
        return None
    except (ConfigError, DamagedRecord) as error:  # nothing broader: a bug is not a damaged file
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
        samples = [r for r in telemetry if r.session == number]  # t_s of different sessions cannot be compared
        if times and samples:
            noises.append(measure_noise(samples, (min(times), max(times)), cores))
    worst = worst_noise(noises)
    return describe_noise(worst) if worst else []


def _thin(points: list[Point]) -> list[Point]:
    """At most MOST_POINTS: neighbours are merged, times and samples added, losses averaged by steps."""
    size = -(-len(points) // MOST_POINTS)  # rounded up, so that at most MOST_POINTS remain
    return points if size <= 1 else [_merge(points[i : i + size]) for i in range(0, len(points), size)]


def _merge(points: list[Point]) -> Point:
    losses = [(p.loss, p.steps) for p in points if p.loss is not None]
    own_s = [p.own_s for p in points if p.own_s]
    same_processes = len(own_s) == len(points) and len({len(of_window) for of_window in own_s}) == 1
    return replace(
        points[-1],  # epoch, step and time are those at the end of a window
        loss=math.fsum(v * n for v, n in losses) / sum(n for _, n in losses) if losses else None,
        steps=sum(p.steps for p in points),
        window=Window.total(p.window for p in points),
        # [windows, processes] -> mean per process. None unless every window has it, and for as many processes: a run
        # may have been resumed with another number of them.
        own_s=tuple(sum(rank) / len(own_s) for rank in zip(*own_s, strict=True)) if same_processes else None,
    )


def _spent_so_far(events: Sequence[Event]) -> dict[str, float]:
    """Where the time of a run without a summary went, as far as its events tell."""
    steps = [e for e in events if isinstance(e, StepEvent)]
    saved = [e for e in events if isinstance(e, CheckpointEvent)]
    waits = math.fsum(Window.of_step(e).data_wait_s for e in steps)
    spent = {
        "data_wait": waits,
        # With communication, which events do not separate.
        "compute": math.fsum(t for e in steps for t in e.step_s) - waits,
        "evaluation": math.fsum(e.seconds for e in events if isinstance(e, EvalEvent)),
        "checkpoint": math.fsum(map(_stall_s, saved)),
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
        memory=tuple(memory[:: -(-len(memory) // MOST_POINTS) or 1]),  # `or 1`: an empty list would give a stride of 0
        trace=beside("trace", "json.gz"),
    )


# -------------------------------------------------------------------------------------------------------------- others


def subject_of_study(path: Path, study: Study) -> Subject:
    """The subject of a study that was read from this path; what ran is known of one of our own."""
    config = study.settings.get("config")
    ran = what_an_old_run_ran(config, None, None) if isinstance(config, dict) else None
    parts = parts_of_record([ran] if ran else [])
    return Subject(
        name=path.resolve().stem,
        path=path,
        kind="study",
        status="finished",
        study=study,
        simulated=study.result.simulated,
        settings=dict(study.settings),
        parts={part: parts[part] for part in STUDY_PARTS if part in parts},
        notes=tuple(map(plain, study.result.notes)),  # a page has no flags: references become settings
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
    parts = parts_of_log(log)
    points, evals = _curves_of_log(log, parts["network"])
    return Subject(
        name=log.path.stem,
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
            world=log.devices or 0,  # 0: not in the log
            train_samples=log.train_samples or 0,
            val_samples=log.eval_samples or 0,
            time=log.started,
        ),
        parts=parts,
        summary=RunSummary(reached_target=log.reached_target),
        spent_s={"total": log.total_s} if log.total_s else {},
    )


def _curves_of_log(log: RunLog, network: str) -> tuple[list[Point], list[EvalPoint]]:
    """The curves of another system's log. Where it has only some steps of an epoch, they stand for the others' time."""
    # A record of an MLPerf log is a whole epoch, and epochs count from 1.
    by_epoch = log.format == "mllog"
    # Some logs count steps from 0, others from 1; one that counts from 0 has a step 0, also if it prints every n-th.
    offset = int(min((s.step for s in log.steps), default=0) == 0)
    last_step: dict[int, int] = {}
    recorded: dict[int, int] = {}
    for s in log.steps:
        last_step[s.epoch] = max(last_step.get(s.epoch, 0), s.step + offset)
        recorded[s.epoch] = recorded.get(s.epoch, 0) + s.steps
    # Steps in earlier epochs: external logs start counting again in each epoch, the page counts through.
    before = {epoch: sum(n for e, n in last_step.items() if e < epoch) for epoch in last_step}
    points: list[Point] = []
    time_s, ends = 0.0, dict[int, float]()
    for s in log.steps:
        # A log that prints every n-th step: each printed one stands for n steps of its epoch.
        share = 1.0 if by_epoch else max(1.0, last_step[s.epoch] / recorded[s.epoch])
        time_s += share * s.seconds
        ends[s.epoch] = time_s
        points.append(
            Point(
                epoch=s.epoch + (0.0 if by_epoch else (s.step + offset) / last_step[s.epoch]),
                step=None if by_epoch else before[s.epoch] + s.step + offset,
                time_s=time_s,
                loss=s.loss,
                lr=s.lr,
                steps=s.steps,
                window=s.window,
                steady=s.steady,
            )
        )
    evals = [
        EvalPoint(
            epoch=e.epoch + (not by_epoch),  # an evaluation is at the end of its epoch
            step=None if by_epoch or e.epoch not in before else before[e.epoch] + last_step[e.epoch],
            time_s=ends.get(e.epoch, time_s),
            result=EvalResult(samples=e.samples or log.eval_samples or 0, figures=_figures_of_log(e.values, network)),
        )
        for e in log.evals
    ]
    return points, evals


def _figures_of_log(values: dict[str, float], network: str) -> dict[str, float | None]:
    """Figures under Vernier's names: MLPerf's accuracy is top-1 of ResNet-50 and COCO's AP of SSD, both from 0 to 1."""
    figures: dict[str, float | None] = {**values}
    if network in ("resnet50", "ssd") and "eval_accuracy" in values:
        accuracy = values["eval_accuracy"]
        del figures["eval_accuracy"]
        figures |= {"top1": 100 * accuracy} if network == "resnet50" else {"AP": accuracy}
    return figures
