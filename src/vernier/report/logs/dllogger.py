"""NVIDIA's two log formats, read and written: `raport.json` of 2019 (one object) and DLLogger lines (`DLLL {...}`).

Both record, for each printed iteration, `train.data_time` and `train.compute_time` in seconds and `*_ips` in images per
second over all devices; `val.top1` and `val.top5` are in percent. Rates written here are images over time, never means
of rates.
"""

import datetime as dt
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError
from vernier.measure.statistics.throughput import Window

from .model import EvalRecord, RunLog, StepRecord, Tree, finite, mark_warmup, whole

PREFIX = "DLLL "
_RATE, _TIME, _PERCENT = ({"unit": u, "format": f} for u, f in (("img/s", ":.2f"), ("s", ":.5f"), ("%", ":.2f")))
_UNITS: dict[str, dict[str, str]] = {
    "train.loss": {"format": ":.5f"},
    "train.compute_ips": _RATE,
    "train.total_ips": _RATE,
    "train.data_time": _TIME,
    "train.compute_time": _TIME,
    "lr": {},
    "val.top1": _PERCENT,
    "val.top5": _PERCENT,
    "val.loss": {"format": ":.5f"},
}
_EVAL_NAMES = ("val.top1", "val.top5", "val.loss")


# ------------------------------------------------------------------------------------------------------------- reading


def read_dllogger(path: Path, text: str) -> RunLog:
    """The run of a stream of DLLogger lines; other lines between them are ignored, broken ones counted."""
    settings: Tree = {}
    points: dict[tuple[int, ...], dict[str, float]] = {}
    broken = 0
    for line in text.splitlines():
        if not line.startswith(PREFIX):
            continue
        try:
            record = json.loads(line.removeprefix(PREFIX))
            step, data = record.get("step"), record.get("data")
        except (ValueError, AttributeError):
            broken += 1
            continue
        if step == "PARAMETER" and isinstance(data, dict):
            settings |= data
        elif isinstance(step, list) and isinstance(data, dict) and all(isinstance(s, int) for s in step):
            points.setdefault(tuple(step), {}).update(data)
    if not settings and not points:
        raise ConfigError(f"{path} has no DLLogger records (lines that begin with {PREFIX.strip()}).")
    steps = [_step(k[0], k[1], v, settings) for k, v in points.items() if len(k) == 2]
    evals = [_eval(k[0], v) for k, v in points.items() if len(k) == 1]
    notes = [f"{broken} broken line(s) in {path.name} left out"] if broken else []
    return _run_log("dllogger", path, settings, steps, evals, notes)


def read_raport(path: Path, tree: Tree) -> RunLog:
    """The run of a `raport.json`: lists by metric, inner lists by epoch."""
    settings, per_iteration, per_epoch = (tree.get(k) or {} for k in ("run", "iter", "epoch"))
    if not all(isinstance(part, dict) for part in (settings, per_iteration, per_epoch)):
        raise ConfigError(f"{path} is not a raport.json: it has no `iter` and `epoch` tables.")
    metrics = {
        k: [e if isinstance(e, list) else [] for e in v]
        for k, v in per_iteration.items()
        if k.startswith("train.") and isinstance(v, list)
    }
    flat_lr = per_iteration["lr"] if isinstance(per_iteration.get("lr"), list) else []
    rates = iter(flat_lr[0] if flat_lr and isinstance(flat_lr[0], list) else flat_lr)
    steps = []
    for epoch, values in enumerate(metrics.get("train.compute_time", [])):
        for number in range(len(values)):
            data = {k: v[epoch][number] for k, v in metrics.items() if epoch < len(v) and number < len(v[epoch])}
            lr = next(rates, None)
            steps.append(_step(epoch, number, data if lr is None else {**data, "lr": lr}, settings))
    results = {k: v for k, v in per_epoch.items() if k.startswith("val.") and isinstance(v, list)}
    count = max((len(v) for v in results.values()), default=0)
    evals = [_eval(e, {k: v[e] for k, v in results.items() if e < len(v)}) for e in range(count)]
    return _run_log("raport", path, settings, steps, evals, [])


def _run_log(
    form: str,
    path: Path,
    settings: Tree,
    steps: Sequence[StepRecord | None],
    evals: Sequence[EvalRecord | None],
    notes: list[str],
) -> RunLog:
    usable = [s for s in steps if s is not None]
    if len(usable) < len(steps):
        notes.append(f"{len(steps) - len(usable)} step record(s) of {path.name} without usable times left out")
    return RunLog(
        format=form,
        path=path,
        settings=settings,
        steps=mark_warmup(usable),
        evals=tuple(e for e in evals if e is not None),
        devices=whole(settings.get("world_size")) or None,
        notes=(*notes, "times are those of the printed iterations, not of every step"),
    )


def _step(epoch: int, number: int, data: Mapping[str, Any], settings: Tree) -> StepRecord | None:
    wait, busy = finite(data.get("train.data_time")), finite(data.get("train.compute_time"))
    if wait is None or busy is None or busy <= 0 or wait < 0:
        return None
    per_process, world = finite(settings.get("batch_size")), finite(settings.get("world_size"))
    samples = per_process * world if per_process and world else (finite(data.get("train.compute_ips")) or 0.0) * busy
    return StepRecord(
        epoch=epoch,
        step=number,
        seconds=wait + busy,
        wait_s=wait,
        samples=float(samples),
        loss=finite(data.get("train.loss")),
        lr=finite(data.get("lr", data.get("train.lr"))),
    )


def _eval(epoch: int, data: Mapping[str, Any]) -> EvalRecord | None:
    values = {k.removeprefix("val."): float(v) for k, v in data.items() if k in _EVAL_NAMES and finite(v) is not None}
    return EvalRecord(epoch=epoch, values=values) if values else None


# ------------------------------------------------------------------------------------------------------------- writing


def _parameters(run: RunLog) -> Tree:
    """The run's settings, with the names NVIDIA's readers look for."""
    if run.devices is None:
        return run.settings
    samples = run.steps[0].samples if run.steps else 0.0
    return {**run.settings, "batch_size": samples / run.devices, "world_size": run.devices}


def _rates(window: Window) -> dict[str, float]:
    """Throughput with and without the wait for data."""
    rates = {"train.total_ips": window.samples_per_s} if window.wall_s > 0 else {}
    if window.wall_s > window.data_wait_s:
        rates["train.compute_ips"] = window.compute_samples_per_s
    return rates


def _step_data(step: StepRecord) -> dict[str, float]:
    wait_s = step.window.data_wait_s
    times = {"train.data_time": wait_s, "train.compute_time": step.seconds - wait_s}
    optional = {"train.loss": step.loss, "lr": step.lr}
    return {**times, **_rates(step.window), **{k: v for k, v in optional.items() if v is not None}}


def _mean_data(steps: Sequence[StepRecord]) -> dict[str, float]:
    """One figure for several steps: images over time, mean loss."""
    losses = [s.loss for s in steps if s.loss is not None]
    mean = {"train.loss": statistics.fmean(losses)} if losses else {}
    return {**_rates(Window.total(s.window for s in steps)), **mean}


def write_dllogger(run: RunLog, start: dt.datetime) -> str:
    """DLLogger lines: parameters, units, every step, every epoch, the run."""
    lines: list[str] = []
    elapsed = 0.0

    def line(kind: str, **fields: Any) -> None:
        now = start + dt.timedelta(seconds=elapsed)
        head = {
            "timestamp": f"{now.timestamp():.6f}",
            "datetime": now.strftime("%Y-%m-%d %H:%M:%S.%f"),
            "elapsedtime": f"{elapsed:.6f}",
        }
        lines.append(PREFIX + json.dumps({**head, "type": kind, **fields}))

    line("LOG", step="PARAMETER", data=_parameters(run))
    for metric, metadata in _UNITS.items():
        line("METADATA", metric=metric, metadata=metadata)
    results = {e.epoch: {f"val.{k}": v for k, v in e.values.items()} for e in run.evals}
    for epoch in sorted({s.epoch for s in run.steps} | set(results)):
        steps = [s for s in run.steps if s.epoch == epoch]
        for step in steps:
            elapsed += step.seconds
            line("LOG", step=[epoch, step.step], data=_step_data(step))
        line("LOG", step=[epoch], data={**_mean_data(steps), **results.get(epoch, {})})
    line("LOG", step=[], data=_mean_data(run.steady_steps))
    return "\n".join(lines) + "\n"


def write_raport(run: RunLog) -> str:
    """The `raport.json` of a run. Step numbers are positions within an epoch, as NVIDIA counts."""
    epochs = [[s for s in run.steps if s.epoch == epoch] for epoch in sorted({s.epoch for s in run.steps})]
    rows = [[_step_data(s) for s in steps] for steps in epochs]
    names = sorted({k for row in rows for step in row for k in step} - {"lr"})
    iteration: Tree = {name: [[step[name] for step in row if name in step] for row in rows] for name in names}
    iteration["lr"] = [step["lr"] for row in rows for step in row if "lr" in step]
    means = [_mean_data(steps) for steps in epochs]
    per_epoch = {k: [m[k] for m in means if k in m] for k in sorted({k for m in means for k in m})}
    for name in sorted({k for e in run.evals for k in e.values}):
        per_epoch[f"val.{name}"] = [e.values[name] for e in run.evals if name in e.values]
    return json.dumps({"run": _parameters(run), "epoch": per_epoch, "iter": iteration, "event": {}}, indent=1) + "\n"
