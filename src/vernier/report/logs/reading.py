"""Opens the log of any run: run directories, bench results, NVIDIA's and MLPerf's logs.

Only this module recognises formats; parsing a foreign one is left to `dllogger` and `mllog`.
"""

import glob
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vernier.config import config_from_tree
from vernier.errors import ConfigError, did_you_mean
from vernier.measure.study.csv_tables import decode_text
from vernier.measure.what_ran import describe_old_run
from vernier.records.bench import ArmLabels, BenchResult, StepResult
from vernier.records.environment import Environment, decode_environment
from vernier.records.events import EvalEvent, Event, StartEvent, StepEvent, sessions
from vernier.records.run import RunSummary
from vernier.records.what_ran import WhatRan
from vernier.report.logs import dllogger, mllog
from vernier.store import DamagedFile, RunDir, find_runs, read_bench, read_json

from .model import EvalRecord, RunLog, StepRecord, Tree, finite, mark_warmup

_KINDS = "a run directory, a bench result (JSON), a raport.json, DLLogger lines or an MLPerf log"


def open_side(paths: str) -> list[RunLog]:
    """All runs of one side of a comparison: comma-separated paths, patterns or folders of runs; FILE#ARM for an arm."""
    runs: list[RunLog] = []
    for part in filter(None, (p.strip() for p in paths.split(","))):
        name, _, arm = part.partition("#")
        pattern = str(Path(name).expanduser())
        matches = sorted(glob.glob(pattern)) or [pattern]  # noqa: PTH207  an absolute pattern is not a Path.glob
        for match in matches:
            runs += open_logs(Path(match), arm or None)
    if not runs:
        raise ConfigError(f"{paths!r} names no run.")
    return runs


def open_logs(path: Path, arm: str | None = None) -> list[RunLog]:
    """The run, or runs, of a log or directory."""
    if not path.exists():
        raise ConfigError(f"{path} does not exist.")
    if path.is_dir():
        return _open_runs(find_runs(path), arm) or _open_folder(path, arm)
    text = read_text(path)
    if text.lstrip().startswith("{"):
        try:
            tree = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{path} is not complete JSON: {error}.") from None
        if is_bench_result(tree):
            return _bench_rounds(path, arm)
        if "iter" in tree and "epoch" in tree:
            return [dllogger.read_raport(path, tree)]
        raise ConfigError(f"{path} is JSON, but neither a bench result nor a raport.json. Give {_KINDS}.")
    if mllog.PREFIX in text:
        return [mllog.read_mllog(path, text)]
    if dllogger.PREFIX in text:
        return [dllogger.read_dllogger(path, text)]
    raise ConfigError(f"{path} is not the log of a run. Give {_KINDS}.")


def _open_runs(runs: Sequence[RunDir], arm: str | None) -> list[RunLog]:
    """The runs of a folder without its smoke runs, whose figures mean nothing; those are counted in a note."""
    results = [run for run in runs if not run.is_smoke]
    if runs and not results:
        raise ConfigError(
            f"{runs[-1].path.parent} holds smoke runs only, whose figures mean nothing. "
            f"Name one to use it all the same: {runs[-1].path}"
        )
    logs = [log for run in results for log in _open_folder(run.path, arm)]
    if logs and len(results) < len(runs):
        note = f"smoke runs left out: {len(runs) - len(results)}"
        logs[0] = replace(logs[0], notes=(*logs[0].notes, note))
    return logs


def read_text(path: Path) -> str:
    try:
        return decode_text(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.") from None


def _open_folder(path: Path, arm: str | None) -> list[RunLog]:
    results = [p for p in sorted(path.glob("*.json")) if is_bench_result(read_json_or_none(p))]
    return [run for p in results for run in _bench_rounds(p, arm)] or [read_run(RunDir.open(path))]


def read_json_or_none(path: Path) -> Any:
    """The content of a .json file; None for another file and one that cannot be read."""
    try:
        return read_json(path) if path.suffix == ".json" else None
    except (OSError, DamagedFile):
        return None


def is_bench_result(tree: Any) -> bool:
    """Whether this is the content of a bench.json."""
    return isinstance(tree, dict) and isinstance(tree.get("rounds"), list)


# ----------------------------------------------------------------------------------------------------- run directories


def read_run(run: RunDir) -> RunLog:
    """The log of a Vernier run, also of a killed one, with notes about what is missing."""
    events, damaged = run.history_and_damage()
    start = next((e for e in reversed(events) if isinstance(e, StartEvent)), None)
    steps = tuple(_steps(events, start.steps_per_epoch if start else 1))
    notes = [f"{run.path.name}: {damaged} damaged event(s) left out"] if damaged else []
    status = run.status()
    summary = status.summary or RunSummary()
    if status.status != "finished":
        notes.insert(0, f"{run.path.name} did not finish ({status.status}): its {len(steps)} recorded steps are used")
    settings, environment = run.read_config(), decode_environment(run.read_environment())
    return RunLog(
        format="vernier",
        path=run.path,
        settings=settings,
        ran=(start and start.ran) or what_an_old_run_ran(settings, start, environment),
        environment=environment,
        steps=steps,
        evals=tuple(_eval(e) for e in events if isinstance(e, EvalEvent)),
        devices=start.world if start else None,
        reached_target=bool(summary.reached_target),
        started=start.time if start else None,
        train_samples=start.train_samples if start else None,
        eval_samples=start.val_samples if start else None,
        total_s=summary.spent_s.get("total"),
        notes=tuple(notes),
    )


def what_an_old_run_ran(
    settings: Tree, start: StartEvent | None, environment: Environment | None, **more: Any
) -> WhatRan | None:
    """What ran, from the configuration of a run that did not record it; None where that cannot be read any more."""
    try:
        return describe_old_run(config_from_tree(settings), start, environment, **more)
    except ConfigError:
        return None


def _steps(events: Sequence[Event], steps_per_epoch: int) -> Iterator[StepRecord]:
    """One record per step, or per window where only those were timed; a window's mean loss is that of its last step."""
    for session in sessions(events):
        yield from mark_warmup([s for e in session for s in _steps_of_window(e, max(1, steps_per_epoch))])


def _steps_of_window(event: StepEvent, steps_per_epoch: int) -> Iterator[StepRecord]:
    count = len(event.step_s)
    if event.step_times == "windows":
        yield StepRecord(
            epoch=(event.step - 1) // steps_per_epoch,
            step=event.step - 1,
            seconds=sum(event.step_s),
            wait_s=sum(event.wait_s),
            samples=event.samples,
            loss=finite(event.loss),
            lr=event.lr,
            steps=count,
        )
        return
    for number, (seconds, wait_s) in enumerate(zip(event.step_s, event.wait_s, strict=True), event.step - count):
        last = number == event.step - 1
        yield StepRecord(
            epoch=number // steps_per_epoch,
            step=number,
            seconds=seconds,
            wait_s=wait_s,
            samples=event.samples / count,
            loss=finite(event.loss) if last else None,
            lr=event.lr if last else None,
        )


def _eval(event: EvalEvent) -> EvalRecord:
    figures = {**event.figures, "detections": event.detections}
    values = {k: float(v) for k, v in figures.items() if v is not None}
    return EvalRecord(epoch=max(0, math.ceil(event.epoch - 1e-9) - 1), values=values, seconds=event.seconds)


# -------------------------------------------------------------------------------------------------------------- bench


def _bench_rounds(path: Path, arm: str | None) -> list[RunLog]:
    """One log per round of an arm; `arm` may be None where there is only one."""
    bench = read_bench(path)
    names = list(dict.fromkeys(r.arm for r in bench.rounds))
    if arm is None and len(names) > 1:
        raise ConfigError(f"{path} has {len(names)} arms. Name one as {path}#ARM: {', '.join(names)}.")
    chosen = arm or next(iter(names), "")
    if chosen not in names:
        raise ConfigError(f"{path} has no arm {chosen!r}. {did_you_mean(chosen, names)}")
    rounds = [r for r in bench.rounds if r.arm == chosen]
    row = next((row for row in bench.rows if row.arm == chosen), None)
    runs = [_round(path, bench, row, r.round, r.result) for r in rounds if isinstance(r.result, StepResult)]
    if not runs:
        raise ConfigError(
            f"No round of {chosen} in {path} has step times: it failed, or measured single queries. There is no speed "
            "to compare."
        )
    if len(runs) < len(rounds):
        note = f"{len(rounds) - len(runs)} round(s) of {chosen} in {path.name} were not measured"
        runs[0] = replace(runs[0], notes=(note,))
    return runs


def _settings_of_arm(bench: BenchResult, row: ArmLabels | None) -> Tree:
    """The configuration that an arm was measured with, in the form of a run's."""
    tree = bench.asked.config if bench.asked else {}
    machine = tree.get("machine")
    if row is None or not isinstance(machine, dict):
        return tree
    of_arm = {name: getattr(row, name) for name in ("precision", "mode", "procs")}
    return {**tree, "machine": {**machine, **of_arm}}


def what_an_old_arm_ran(bench: BenchResult, row: ArmLabels, environment: Environment | None) -> WhatRan | None:
    """The same for an arm of a benchmark that did not record it."""
    if bench.asked is None:
        return None
    more = {"kind": bench.asked.what, "batch_per_device": row.batch, "devices": row.procs, "whole_run": False}
    return what_an_old_run_ran(_settings_of_arm(bench, row), None, environment, **more)


def _round(path: Path, bench: BenchResult, row: ArmLabels | None, number: int, result: StepResult) -> RunLog:
    samples = float(result.images_per_step)
    environment = decode_environment(RunDir(path.parent).read_environment())
    settings = _settings_of_arm(bench, row)
    ran = result.ran or (what_an_old_arm_ran(bench, row, environment) if row is not None else None)
    return RunLog(
        format="bench",
        path=path,
        settings={**settings, **{n: v for n in ("scenario", "exchange") if (v := getattr(row, n, None)) is not None}},
        ran=ran,
        environment=environment,
        started=result.time or None,
        steps=tuple(StepRecord(epoch=0, step=i, seconds=s, samples=samples) for i, s in enumerate(result.raw.step_s)),
        devices=result.figures.devices,
        round=number,
    )
