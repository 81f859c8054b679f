"""Opens the log of any run: a run directory, a bench result, NVIDIA's and MLPerf's logs. Only this module tells them apart."""

import glob
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError, did_you_mean
from vernier.measure.statistics.throughput import warmup_steps
from vernier.records.environment import decode_environment
from vernier.records.events import EvalEvent, Event, StartEvent, StepEvent, sessions
from vernier.report.logs import dllogger, mllog
from vernier.report.logs.model import EvalRecord, RunLog, StepRecord, is_number
from vernier.store import DamagedFile, RunDir, find_runs, read_history, read_json

_KINDS = "a run directory, a bench result (JSON), a raport.json, DLLogger lines or an MLPerf log"


def open_side(paths: str) -> list[RunLog]:
    """All runs of one side of a comparison: comma-separated paths, patterns and folders of runs; FILE#ARM for one arm."""
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
        return _bench(path, tree, arm)
    if isinstance(tree, dict) and "iter" in tree and "epoch" in tree:
        return [dllogger.read_raport(path, tree)]
    raise ConfigError(f"{path} is JSON, but neither a bench result nor a raport.json. Give {_KINDS}.")


# ----------------------------------------------------------------------------------------------------- run directories


def read_run(run: RunDir) -> RunLog:
    """The log of a Vernier run, also of a killed one, with notes about what is missing."""
    events, damaged = read_history(run.path / "events.jsonl")
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


def _bench(path: Path, tree: dict[str, Any], arm: str | None) -> list[RunLog]:
    """Every round of one arm; which arm must be said when there are several."""
    rounds = [r for r in tree["rounds"] if isinstance(r, dict)]
    names = list(dict.fromkeys(str(r.get("arm")) for r in rounds))
    if arm is None and len(names) > 1:
        raise ConfigError(f"{path} has {len(names)} arms: say which, as {path}#ARM, of {', '.join(names)}.")
    chosen = names[0] if arm is None and names else arm
    if chosen not in names:
        raise ConfigError(f"{path} has no arm {chosen!r}. {did_you_mean(str(chosen), names)}")
    found, failed = [], []
    for entry in (r for r in rounds if str(r.get("arm")) == chosen):
        one = _round(path, tree, entry)
        found.append(one) if one is not None else failed.append(entry.get("round"))
    if not found:
        raise ConfigError(f"No round of {chosen} in {path} was measured to its end.")
    if failed:
        note = f"{len(failed)} round(s) of {chosen} in {path.name} were not measured"
        found[0] = replace(found[0], notes=(*found[0].notes, note))
    return found


def _round(path: Path, tree: dict[str, Any], entry: dict[str, Any]) -> RunLog | None:
    result = entry.get("result")
    if not isinstance(result, dict):
        return None
    times = next(_sample_lists(result, "step_s"), None)
    samples = result.get("images_per_step")
    if result.get("status", "ok") != "ok" or not times or not is_number(samples):
        return None
    asked, number = tree.get("asked"), entry.get("round")
    steps = tuple(StepRecord(epoch=0, step=i, seconds=float(s), samples=samples) for i, s in enumerate(times))
    figures = result.get("figures")
    devices = figures.get("devices") if isinstance(figures, dict) else 1
    return RunLog(
        format="bench", path=path, settings=asked if isinstance(asked, dict) else {},
        environment=decode_environment(RunDir(path.parent).read_environment()),
        steps=steps, devices=int(devices) if is_number(devices) else 1, round=number if isinstance(number, int) else None,
    )  # fmt: skip


def _sample_lists(tree: Any, name: str) -> Iterator[list[float]]:
    """Raw samples of that name, anywhere but in the warm-up."""
    if isinstance(tree, dict):
        mine = tree.get(name)
        if isinstance(mine, list) and mine and all(map(is_number, mine)):
            yield mine
        for key, value in tree.items():
            if key != "warmup":
                yield from _sample_lists(value, name)
