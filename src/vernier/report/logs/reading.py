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

from vernier.errors import ConfigError, did_you_mean
from vernier.measure.statistics.throughput import warmup_steps
from vernier.records.bench import BenchResult, StepResult
from vernier.records.codec import encode
from vernier.records.environment import decode_environment
from vernier.records.events import EvalEvent, Event, StartEvent, StepEvent, sessions
from vernier.report.logs import dllogger, mllog
from vernier.report.logs.model import EvalRecord, RunLog, StepRecord
from vernier.store import DamagedFile, RunDir, find_runs, read_bench, read_json

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
        folders = [run.path for run in find_runs(path)] or [path]
        return [run for folder in folders for run in _open_folder(folder, arm)]
    text = read_text(path)
    if text.lstrip().startswith("{"):
        try:
            tree = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{path} is not complete JSON: {error}.") from None
        return _open_json(path, tree, arm)
    if mllog.PREFIX in text:
        return [mllog.read_mllog(path, text)]
    if dllogger.PREFIX in text:
        return [dllogger.read_dllogger(path, text)]
    raise ConfigError(f"{path} is not the log of a run. Give {_KINDS}.")


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.") from None


def _open_folder(path: Path, arm: str | None) -> list[RunLog]:
    results = [p for p in sorted(path.glob("*.json")) if _is_bench(p)]
    if results:
        return [run for p in results for run in _open_json(p, read_json(p), arm)]
    return [read_run(RunDir.open(path))]


def _is_bench(path: Path) -> bool:
    try:
        tree = read_json(path)
    except (OSError, DamagedFile):
        return False
    return isinstance(tree, dict) and isinstance(tree.get("rounds"), list)


def _open_json(path: Path, tree: Any, arm: str | None) -> list[RunLog]:
    if isinstance(tree, dict) and isinstance(tree.get("rounds"), list):
        return _bench_rounds(path, arm)
    if isinstance(tree, dict) and "iter" in tree and "epoch" in tree:
        return [dllogger.read_raport(path, tree)]
    raise ConfigError(f"{path} is JSON, but neither a bench result nor a raport.json. Give {_KINDS}.")


# ----------------------------------------------------------------------------------------------------- run directories


def read_run(run: RunDir) -> RunLog:
    """The log of a Vernier run, also of a killed one, with notes about what is missing."""
    events, damaged = run.history_and_damage()
    start = next((e for e in reversed(events) if isinstance(e, StartEvent)), None)
    steps = tuple(_steps(events, start or StartEvent()))
    status = run.status()
    summary = status.summary
    return RunLog(
        format="vernier",
        path=run.path,
        settings=run.read_config(),
        environment=decode_environment(run.read_environment()),
        steps=steps,
        evals=tuple(_eval(e) for e in events if isinstance(e, EvalEvent)),
        devices=start.world if start else 1,
        reached_target=bool(summary and summary.reached_target),
        started=start.time if start else None,
        train_samples=start.train_samples if start else None,
        eval_samples=start.val_samples if start else None,
        total_s=summary.spent_s.get("total") if summary else None,
        notes=tuple(_run_notes(run, status.status, len(steps), damaged)),
    )


def _run_notes(run: RunDir, status: str, steps: int, damaged: int) -> Iterator[str]:
    if status != "finished":
        yield f"{run.path.name} did not finish ({status}): its {steps} recorded steps are used"
    if damaged:
        yield f"{run.path.name}: {damaged} damaged event(s) left out"


def _steps(events: Sequence[Event], start: StartEvent) -> Iterator[StepRecord]:
    """One record per step; the mean loss of a window is that of its last step."""
    for session in sessions(events):
        warmup = warmup_steps([t for e in session for t in e.step_s])
        for position, (event, i) in enumerate((e, i) for e in session for i in range(len(e.step_s))):
            yield _step(event, i, start.steps_per_epoch, steady=position >= warmup)


def _step(event: StepEvent, i: int, steps_per_epoch: int, *, steady: bool) -> StepRecord:
    count = len(event.step_s)
    number, last = event.step - count + i, i == count - 1
    return StepRecord(
        epoch=number // max(1, steps_per_epoch),
        step=number,
        seconds=event.step_s[i],
        wait_s=event.wait_s[i],
        samples=event.samples / count,
        loss=event.loss if last and math.isfinite(event.loss) else None,
        lr=event.lr if last else None,
        steady=steady,
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
    runs = [_round(path, bench, r.round, r.result) for r in rounds if isinstance(r.result, StepResult)]
    if not runs:
        raise ConfigError(f"No round of {chosen} in {path} has step times.")
    if len(runs) < len(rounds):
        note = f"{len(rounds) - len(runs)} round(s) of {chosen} in {path.name} were not measured"
        runs[0] = replace(runs[0], notes=(note,))
    return runs


def _round(path: Path, bench: BenchResult, number: int, result: StepResult) -> RunLog:
    samples = float(result.images_per_step)
    return RunLog(
        format="bench",
        path=path,
        settings=encode(bench.asked) if bench.asked else {},
        environment=decode_environment(RunDir(path.parent).read_environment()),
        steps=tuple(StepRecord(epoch=0, step=i, seconds=s, samples=samples) for i, s in enumerate(result.raw.step_s)),
        devices=result.figures.devices,
        round=number,
    )
