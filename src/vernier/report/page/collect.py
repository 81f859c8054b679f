"""Run directories, and what others left, as plain data for a page. The only code of the page that reads files.

A run that still goes on, crashed, or was never Vernier's gives what it has; what is missing is said in `notes`.
"""

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vernier.errors import ConfigError
from vernier.measure.study.analysis import METHOD as STUDY_METHOD
from vernier.measure.study.files import StudyDir, read_csv
from vernier.measure.telemetry.noise import describe_noise, measure_noise, worst_noise
from vernier.records.codec import DamagedRecord, decode
from vernier.records.environment import Environment, decode_environment
from vernier.records.profile import KernelTime, MemoryPoint, ProfileSummary
from vernier.records.telemetry import TelemetryRecord, decode_telemetry
from vernier.report.logs.model import RunLog
from vernier.report.logs.reading import open_logs
from vernier.report.page.studies import Study, open_study, open_study_result
from vernier.store import DamagedFile, RunDir, find_runs, read_json

MOST_POINTS = 1500
_STAMP = re.compile(r"^\d{8}-\d{6}-(?=.)")
FOREIGN = {"raport": "NVIDIA's raport.json", "dllogger": "NVIDIA's DLLogger lines", "mllog": "an MLPerf log"}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Profiled steps of one process: the summary, its kernels, memory over time, and where the trace is."""

    summary: ProfileSummary
    kernels: tuple[KernelTime, ...] = ()
    memory: tuple[MemoryPoint, ...] = ()
    trace: Path | None = None
    link: str = ""
    """From where the page will be to the trace."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One thing that a page is about. `name` is its own on the page; `points` are windows of steps (see `_point`)."""

    name: str
    path: Path
    kind: str
    format: str = "vernier"
    status: str = "unknown"
    reason: str | None = None
    updated: str | None = None
    simulated: bool = False
    start: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    environment: Environment | None = None
    points: tuple[dict[str, Any], ...] = ()
    evals: tuple[dict[str, Any], ...] = ()
    spent_s: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bench: dict[str, Any] | None = None
    profiles: tuple[Profile, ...] = ()
    telemetry: tuple[TelemetryRecord, ...] = ()
    disturbed: tuple[str, ...] = ()
    """What, as far as the sensors tell, disturbed the steps."""
    study: Study | None = None
    mistakes: dict[str, Any] | None = None
    examples: tuple[dict[str, Any], ...] = ()

    @property
    def foreign(self) -> bool:
        return self.format in FOREIGN

    @property
    def result(self) -> dict[str, Any] | None:
        """The last evaluation, also of a run that has no summary yet."""
        found = self.summary.get("result")
        return found if isinstance(found, dict) else self.evals[-1] if self.evals else None


def collect(paths: Sequence[Path], page_folder: Path | None = None) -> list[Subject]:
    """Everything that was given, in order; folders of runs are opened. Raises ConfigError where there is nothing.

    Traces are linked as seen from `page_folder`.
    """
    found = [subject for path in paths for subject in _open(path)]
    if not found:
        raise ConfigError("Nothing to report on: give run directories, studies or logs.")
    return [_linked(s, page_folder) for s in _named(found)] if page_folder else _named(found)


def _linked(subject: Subject, folder: Path) -> Subject:
    def linked(p: Profile) -> Profile:
        return replace(p, link=quote(os.path.relpath(p.trace, folder))) if p.trace else p

    return replace(subject, profiles=tuple(linked(p) for p in subject.profiles))


def _named(subjects: Sequence[Subject]) -> list[Subject]:
    """Different names for different things: the path's last part, without the date where it is not needed to tell them apart."""
    short = [_STAMP.sub("", s.name) for s in subjects]
    told = [replace(s, name=n) if short.count(n) == 1 else s for s, n in zip(subjects, short, strict=True)]
    taken: dict[str, int] = {}
    out = []
    for subject in told:
        taken[subject.name] = taken.get(subject.name, 0) + 1
        count = taken[subject.name]
        out.append(subject if count == 1 else replace(subject, name=f"{subject.name} ({count})"))
    return out


def _open(path: Path) -> Iterable[Subject]:
    if not path.exists():
        raise ConfigError(f"{path} does not exist. Give a run directory, a study, a log, or a folder of runs.")
    if path.is_dir():
        if StudyDir.is_study(path):
            return [_of_study(path, open_study([path]))]
        return [_of_run(run) for run in find_runs(path) or [RunDir.open(path)]]
    if path.suffix == ".csv":
        return [_of_study(path, open_study([path]))]
    tree = _json(path)
    if isinstance(tree, dict) and tree.get("method") == STUDY_METHOD:
        return [_of_study(path, open_study_result(tree))]
    if isinstance(tree, dict) and isinstance(tree.get("rounds"), list):
        return [Subject(name=path.stem, path=path, kind="bench", bench=tree, status="finished")]
    return [_of_record(r) for r in open_logs(path)]


def _json(path: Path) -> Any:
    if path.suffix != ".json":
        return None
    try:
        return read_json(path)
    except (OSError, ValueError):
        return None


# ----------------------------------------------------------------------------------------------------- run directories


def _of_run(run: RunDir) -> Subject:
    events, status = run.read_events(), run.read_status()
    start: dict[str, Any] = next((e for e in reversed(events) if e["kind"] == "start"), {})
    summary = status.get("summary") or {}
    bench = _bench(run)
    profiles = tuple(p for path in run.profiles() for p in _profile(path))
    kind = "bench" if bench else "training" if events else "profile" if profiles else "training"
    telemetry = decode_telemetry(run.read_telemetry())
    environment = decode_environment(run.read_environment())
    broken = run.broken_event_lines()
    return Subject(
        name=run.path.resolve().name,
        path=run.path,
        kind=kind,
        status=str(status["status"]),
        reason=status.get("reason"),
        updated=status.get("updated"),
        start=start,
        summary=summary,
        settings=_config(run),
        environment=environment,
        points=tuple(_thinned([_point(e) for e in events if e["kind"] == "step" and sum(e["step_s"]) > 0])),
        evals=tuple(e for e in events if e["kind"] == "eval"),
        spent_s=summary.get("spent_s") or _spent_so_far(events),
        warnings=tuple(dict.fromkeys(str(e["message"]) for e in events if e["kind"] == "warning")),
        notes=(f"{broken} broken line(s) of its events left out",) if broken else (),
        bench=bench,
        profiles=profiles,
        telemetry=tuple(telemetry),
        disturbed=tuple(_disturbed(events, telemetry, environment)),
        mistakes=run.read_prediction("mistakes"),
        examples=tuple(run.read_prediction("examples") or ()),
    )


def _disturbed(
    events: list[dict[str, Any]], telemetry: list[TelemetryRecord], environment: Environment | None
) -> list[str]:
    """In words, the worst of all sessions, each from its first step to its last."""
    spans: dict[int, list[float]] = {}
    session = -1
    for event in events:
        session += event["kind"] == "start"
        if event["kind"] == "step" and "t_s" in event:
            spans.setdefault(session, []).append(event["t_s"])
    cores = environment.cpu.cores_logical if environment else None
    mine = {n: [r for r in telemetry if r.session == n] for n in spans}
    worst = worst_noise([measure_noise(mine[n], (min(t), max(t)), cores) for n, t in spans.items() if mine[n]])
    return describe_noise(worst) if worst else []


def _config(run: RunDir) -> dict[str, Any]:
    try:
        return run.read_config()
    except DamagedFile:
        return {}


def _bench(run: RunDir) -> dict[str, Any] | None:
    try:
        return run.read_bench() if run.is_bench else None
    except DamagedFile:
        return None


def _point(event: dict[str, Any]) -> dict[str, Any]:
    """A window of steps: where it ends, its mean loss, what it took."""
    return {
        "epoch": event["epoch"],
        "step": event["step"],
        "loss": event["loss"],
        "lr": event["lr"],
        "steps": len(event["step_s"]),
        "samples": event["samples"],
        "seconds": sum(event["step_s"]),
        "wait_s": sum(event["wait_s"]),
        "own_s": event.get("own_s_by_rank"),
    }


def _thinned(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most MOST_POINTS: neighbours are put together, times and samples added, losses averaged by steps."""
    size = -(-len(points) // MOST_POINTS)
    return points if size <= 1 else [_together(points[i : i + size]) for i in range(0, len(points), size)]


def _together(points: list[dict[str, Any]]) -> dict[str, Any]:
    last = points[-1]
    known = [(p["loss"], p["steps"]) for p in points if p["loss"] is not None]
    mean = math.fsum(v * n for v, n in known) / sum(n for _, n in known) if known else None
    sums = {k: sum(p[k] for p in points) for k in ("steps", "samples", "seconds", "wait_s")}
    own = [p["own_s"] for p in points if p.get("own_s")]
    together = [sum(rank) / len(own) for rank in zip(*own, strict=True)] if len(own) == len(points) else None
    return {"epoch": last["epoch"], "step": last["step"], "lr": last["lr"], "loss": mean, "own_s": together, **sums}


def _spent_so_far(events: list[dict[str, Any]]) -> dict[str, float]:
    """Where the time of a run without a summary went, as far as its events tell."""
    waits = math.fsum(t for e in events if e["kind"] == "step" for t in e["wait_s"])
    steps = math.fsum(t for e in events if e["kind"] == "step" for t in e["step_s"])
    found = {"data_wait": waits, "compute": steps - waits}
    for kind, name in (("eval", "evaluation"), ("checkpoint", "checkpoint")):
        found[name] = math.fsum(e.get("seconds", 0.0) for e in events if e["kind"] == kind)
    return {**found, "total": sum(found.values())} if steps else {}


def _profile(path: Path) -> list[Profile]:
    """The files of one process lie beside each other: profile.rank0.json, kernels.rank0.csv, ...; none if damaged."""

    def sibling(name: str, suffix: str) -> Path | None:
        file = path.with_name(path.name.replace("profile", name, 1).removesuffix("json") + suffix)
        return file if file.is_file() else None

    kernels, memory = sibling("kernels", "csv"), sibling("memory", "csv")
    try:
        points = [decode(MemoryPoint, dict(row)) for row in read_csv(memory)] if memory else []
        return [
            Profile(
                summary=decode(ProfileSummary, _json(path)),
                trace=sibling("trace", "json.gz"),
                memory=tuple(points[:: -(-len(points) // MOST_POINTS) or 1]),
                kernels=tuple(decode(KernelTime, dict(row)) for row in read_csv(kernels)) if kernels else (),
            )
        ]
    except (ConfigError, DamagedRecord):
        return []


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


def _of_record(record: RunLog) -> Subject:
    """A log of another system: steps become points, one each."""
    per_epoch: dict[int, int] = {}
    for s in record.steps:
        per_epoch[s.epoch] = max(per_epoch.get(s.epoch, 0), s.step + 1)
    points = [
        {
            "epoch": s.epoch + (0.0 if record.format == "mllog" else (s.step + 1) / per_epoch[s.epoch]),
            "step": s.step,
            "loss": s.loss,
            "lr": s.lr,
            "steps": 1,
            "samples": s.samples,
            "seconds": s.seconds,
            "wait_s": s.wait_s,
        }
        for s in record.steps
    ]
    evals = [{"epoch": e.epoch + (0 if record.format == "mllog" else 1), **e.values} for e in record.evals]
    spent = {"total": record.total_s} if record.total_s else {}
    return Subject(
        name=record.path.stem,
        path=record.path,
        kind="training",
        format=record.format,
        status="foreign",
        settings=record.settings,
        environment=record.environment,
        points=tuple(_thinned(points)),
        evals=tuple(evals),
        notes=record.notes,
        start={"world": record.devices, "train_samples": record.train_samples, "val_samples": record.eval_samples},
        summary={"reached_target": record.reached_target},
        spent_s=spent,
    )
