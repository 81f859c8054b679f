"""Opens whatever records a run: a run directory, a bench result, NVIDIA's and MLPerf's logs. The one place that tells them apart."""

import glob
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError, did_you_mean
from vernier.measure.statistics.run_summary import steady_steps
from vernier.report.logs import dllogger, mllog
from vernier.report.logs.model import EvalRecord, RunLog, StepRecord, is_number
from vernier.store import RunDir, find_runs, read_json

_KINDS = "a run directory, a bench result (JSON), a raport.json, DLLogger lines or an MLPerf log"


def open_side(given: str) -> list[RunLog]:
    """All runs of one side of a comparison: paths with commas between them, patterns, folders of runs; FILE#ARM for one arm."""
    found: list[RunLog] = []
    for part in filter(None, (p.strip() for p in given.split(","))):
        name, _, arm = part.partition("#")
        whole = str(Path(name).expanduser())
        matches = sorted(glob.glob(whole)) or [whole]  # noqa: PTH207  an absolute pattern is not a Path.glob
        for match in matches:
            found += open_logs(Path(match), arm or None)
    if not found:
        raise ConfigError(f"{given!r} names no run.")
    return found


def open_logs(path: Path, arm: str | None = None) -> list[RunLog]:
    """The run, or runs, that a path holds."""
    if not path.exists():
        raise ConfigError(f"{path} does not exist.")
    if path.is_dir():
        return _open_folder(path, arm)
    text = read_text(path)
    if text.lstrip().startswith("{"):
        try:
            tree = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{path} is not whole JSON: {error}.") from None
        return _open_json(path, tree, arm)
    if mllog.PREFIX in text:
        return [mllog.read_mllog(path, text)]
    if dllogger.PREFIX in text:
        return [dllogger.read_dllogger(path, text)]
    raise ConfigError(f"{path} is not something that records a run: give {_KINDS}.")


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.") from None


def _open_folder(path: Path, arm: str | None) -> list[RunLog]:
    inside = [run.path for run in find_runs(path)] or [path]
    return [record for folder in inside for record in _open_run(folder, arm)]


def _open_run(path: Path, arm: str | None) -> list[RunLog]:
    results = [p for p in sorted(path.glob("*.json")) if _is_bench(p)]
    if results:
        return [record for p in results for record in _open_json(p, read_json(p), arm)]
    return [read_run(RunDir.open(path))]


def _is_bench(path: Path) -> bool:
    try:
        tree = read_json(path)
    except (OSError, ValueError):
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
    """A Vernier run, also one that was killed: what is there, and a note of what is not."""
    config = run.read_config()
    recorded = run.read_events()
    events = [e for e in recorded if _usable(e)]
    start: dict[str, Any] = next((e for e in reversed(events) if e["kind"] == "start"), {})
    steps = list(_steps(events, start))
    status = run.read_status()
    summary = status.get("summary") or {}
    return RunLog(
        format="vernier", path=run.path, settings=config, environment=run.read_environment(), steps=tuple(steps),
        evals=tuple(_evals(events)), devices=int(start.get("world") or 1), reached=bool(summary.get("reached_target")),
        started=start.get("time"), train_samples=start.get("train_samples"), eval_samples=start.get("val_samples"),
        total_s=(summary.get("spent_s") or {}).get("total"), 
        notes=tuple(_run_notes(run, status["status"], len(steps), len(recorded) - len(events))),
    )  # fmt: skip


def _usable(event: dict[str, Any]) -> bool:
    """Whether an event has what is read from it, in the form it was written in."""
    if event["kind"] == "step":
        times, waits = event.get("step_s"), event.get("wait_s")
        if not isinstance(times, list) or not isinstance(waits, list) or len(times) != len(waits):
            return False
        return all(map(is_number, [event.get("step"), event.get("loss"), event.get("lr"), *times, *waits]))
    if event["kind"] == "start":
        return all(is_number(event.get(k) or 0) for k in ("steps_per_epoch", "global_batch", "world"))
    return event["kind"] != "eval" or is_number(event.get("epoch"))


def _run_notes(run: RunDir, status: str, steps: int, unusable: int) -> Iterator[str]:
    if status != "finished":
        yield f"{run.path.name} did not finish ({status}): its {steps} recorded steps are used"
    if unusable:
        yield f"{run.path.name}: {unusable} damaged event(s) left out"
    if broken := run.broken_event_lines():
        yield f"{run.path.name}: {broken} broken line(s) of its events left out"


def _steps(events: list[dict[str, Any]], start: dict[str, Any]) -> Iterator[StepRecord]:
    """One record a step; the mean loss of a window stands at its last step."""
    per_epoch, batch = int(start.get("steps_per_epoch") or 1), float(start.get("global_batch") or 0)
    session: list[dict[str, Any]] = []
    for event in [*events, {"kind": "start"}]:
        if event["kind"] == "step":
            session.append(event)
        elif event["kind"] == "start" and session:
            left_out = steady_steps(session).skipped
            yield from _session(session, per_epoch, batch, left_out)
            session = []


def _session(events: list[dict[str, Any]], per_epoch: int, batch: float, left_out: int) -> Iterator[StepRecord]:
    seen = 0
    for event in events:
        count = len(event["step_s"])
        samples = event["samples"] / count if is_number(event.get("samples")) else batch
        for i, (seconds, wait) in enumerate(zip(event["step_s"], event["wait_s"], strict=True)):
            number, last = event["step"] - count + i, i == count - 1
            yield StepRecord(
                epoch=number // per_epoch, step=number, seconds=seconds, wait_s=wait, samples=samples,
                loss=event["loss"] if last else None, lr=event["lr"] if last else None, steady=seen >= left_out,
            )  # fmt: skip
            seen += 1


def _evals(events: list[dict[str, Any]]) -> Iterator[EvalRecord]:
    told = {"schema", "time", "kind", "step", "epoch", "seconds", "samples"}
    for event in events:
        if event["kind"] == "eval":
            numbers = {
                k: float(v)
                for k, v in event.items()
                if k not in told and isinstance(v, int | float) and not isinstance(v, bool)
            }
            epoch = max(0, math.ceil(event["epoch"] - 1e-9) - 1)
            yield EvalRecord(epoch=epoch, values=numbers, seconds=float(event.get("seconds") or 0.0))


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
        format="bench", path=path, settings=asked if isinstance(asked, dict) else {}, environment=RunDir(path.parent).read_environment(),
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
