"""Writes NVIDIA's logs: `raport.json` of 2019 and DLLogger's JSON lines, at iteration, epoch and run level.

Rates are images over time, never means of rates. Steps of training are `train.*`, evaluations and inference `val.*`.
Lists of one epoch have one value per iteration; what was not recorded for one is null. Iterations count from 1.
"""

import datetime as dt
import json
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from vernier.errors import ConfigError
from vernier.measure.throughput import Window
from vernier.report.logs.formats import LogFormat
from vernier.report.logs.model import EvalRecord, RunLog, StepRecord, Tree

from .reading import PREFIX, is_dllogger, is_raport, read_dllogger, read_raport

_RATE, _TIME, _PERCENT = ({"unit": u, "format": f} for u, f in (("images/s", ":.2f"), ("s", ":.5f"), ("%", ":.2f")))
_LOSS = {"unit": None, "format": ":.5f"}
_UNITS: dict[str, dict[str, Any]] = {
    "total_ips": _RATE,
    "compute_ips": _RATE,
    "top1": _PERCENT,
    "top5": _PERCENT,
    "loss": _LOSS,
    "lr": {},
    **dict.fromkeys(("data_time", "compute_time", "compute_latency"), _TIME),
    **dict.fromkeys((f"compute_latency_at{q}" for q in (95, 99, 100)), _TIME),
}
_OF_TRAINING = ("loss", "top1", "top5", "compute_ips", "total_ips", "data_time", "compute_time")
_OF_VALIDATION = ("compute_ips", "total_ips", "data_time", "compute_time", "compute_latency")
Values = dict[str, float]


# ------------------------------------------------------------------------------------------------------------ settings


def _parameters(run: RunLog) -> Tree:
    """The run's settings under the names of NVIDIA's command line; Vernier's own stay under `vernier`."""
    # Settings of another program's log are written back as they were.
    named: Tree = {} if "recipe" not in run.settings else {**_named(run), "vernier": run.settings}
    tree = named or dict(run.settings)
    if run.devices is not None:
        samples = run.steps[0].samples / run.steps[0].steps if run.steps else 0.0
        batch = samples / run.devices
        tree |= {"batch_size": int(batch) if batch == int(batch) else batch, "world_size": run.devices}
    if named:
        tree |= {"evaluate": run.kind == "infer", "training_only": not run.evals and run.kind == "train"}
        # `reading` needs both to take times as they are: every step is listed, and a benchmark has no warm-up in it.
        tree |= {"print_freq": 1, "warmup_left_out": run.format == "bench"}
    return tree


def _named(run: RunLog) -> Tree:
    recipe, machine = run.settings.get("recipe") or {}, run.settings.get("machine") or {}
    model, data, optim, schedule, loss, augment = (
        recipe.get(part) or {} for part in ("model", "data", "optim", "schedule", "loss", "augment")
    )
    return {
        "arch": run.ran.network if run.ran else model.get("name"),
        # NVIDIA writes `fanin` for `fan-in`.
        "model_config": str(model.get("init") or "").replace("-", ""),
        "data": data.get("source"),
        "data_backend": machine.get("backend"),
        # With progressive resizing there is no single size.
        "image_size": None if augment.get("start_px") else data.get("eval_px" if run.kind == "infer" else "image_px"),
        "num_classes": (run.ran.classes or None) if run.ran else model.get("num_classes"),
        "workers": machine.get("workers"),
        "epochs": schedule.get("epochs"),
        "optimizer_batch_size": recipe.get("global_batch"),
        "lr": _scaled_rate(recipe, optim),
        "lr_schedule": schedule.get("kind"),
        "warmup": schedule.get("warmup_epochs"),
        "label_smoothing": loss.get("label_smoothing"),
        "mixup": augment.get("mixup"),
        "momentum": optim.get("momentum"),
        "weight_decay": optim.get("weight_decay"),
        "nesterov": optim.get("nesterov"),
        "amp": machine.get("precision") in ("fp16", "bf16"),
        "fp16": False,
        "precision": machine.get("precision"),
        "dynamic_loss_scale": machine.get("precision") == "fp16" and machine.get("loss_scaling") == "dynamic",
        "seed": recipe.get("seed"),
    }


def _scaled_rate(recipe: Tree, optim: Tree) -> float | None:
    """The peak learning rate at this run's global batch."""
    rate, per, batch = optim.get("lr"), optim.get("lr_batch"), recipe.get("global_batch")
    return rate * batch / per if rate and per and batch else rate


# -------------------------------------------------------------------------------------------------------------- values


def _rates(window: Window) -> Values:
    """Throughput with and without the wait for data."""
    rates = {"total_ips": window.samples_per_s} if window.wall_s > 0 else {}
    if window.wall_s > window.data_wait_s:
        rates["compute_ips"] = window.compute_samples_per_s
    return rates


def _times(steps: Sequence[StepRecord]) -> Values:
    """Mean seconds per step."""
    # A record can hold several steps (`steps` > 1) with the sums of their times.
    window, count = Window.total(s.window for s in steps), sum(s.steps for s in steps)
    busy_s = (window.wall_s - window.data_wait_s) / count
    return {"data_time": window.data_wait_s / count, "compute_time": busy_s, **_rates(window)}


def _training(steps: Sequence[StepRecord]) -> Values:
    """One figure for one or several steps: images over time, and means of what was recorded."""
    if not steps:
        return {}
    means = {name: _mean(getattr(s, name) for s in steps) for name in ("loss", "top1", "top5")}
    rates = [s.lr for s in steps if s.lr is not None]
    known = {k: v for k, v in means.items() if v is not None} | ({"lr": rates[-1]} if rates else {})
    return {f"train.{k}": v for k, v in (_times(steps) | known).items()}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.fmean(known) if known else None


def _inference(steps: Sequence[StepRecord], *, percentiles: bool) -> Values:
    """The speed of one or several batches; percentiles are nearest values, as NVIDIA's."""
    if not steps:
        return {}
    times = _times(steps)
    values = {**times, "compute_latency": times["compute_time"]}
    if percentiles:
        busy = sorted((s.seconds - s.window.data_wait_s) / s.steps for s in steps)
        values |= {f"compute_latency_at{q}": busy[round((len(busy) - 1) * q / 100)] for q in (95, 99, 100)}
    return {f"val.{k}": v for k, v in values.items()}


def _evaluation(result: EvalRecord) -> Values:
    """Accuracy and speed of an evaluation; without timed batches only its rate is known."""
    values = {f"val.{k}": v for k, v in (result.values | result.speed).items()}
    # Figures that a log already had are kept, so that reading and writing again changes nothing.
    if result.speed:
        return values
    if result.batches:
        return values | _inference(result.batches, percentiles=True)
    rate = {"val.total_ips": result.samples / result.seconds} if result.samples and result.seconds > 0 else {}
    return values | rate


class _Levels:
    """A run by level: its epochs with their numbered steps and batches, their figures, and those of the run."""

    def __init__(self, run: RunLog) -> None:
        self._run, self._infers = run, run.kind == "infer"
        self._results = {e.epoch: e for e in run.evals}
        self.epochs = sorted({s.epoch for s in run.steps} | set(self._results))

    def training(self, epoch: int) -> list[tuple[int, Values]]:
        """Iterations of training, numbered within the epoch."""
        return [] if self._infers else [(n, _training([s])) for n, s in _numbered(self._run, self._steps(epoch))]

    def validation(self, epoch: int) -> list[tuple[int, Values]]:
        """Batches of the evaluation, or of inference."""
        result = self._results.get(epoch)
        batches = self._steps(epoch) if self._infers else list(result.batches) if result else []
        return [(n, _inference([s], percentiles=False)) for n, s in _numbered(self._run, batches)]

    def summary(self, epoch: int) -> Values:
        result = self._results.get(epoch)
        return self._figures(self._steps(epoch)) | (_evaluation(result) if result else {})

    def total(self) -> Values:
        """Steady steps, and the best of all evaluations: highest accuracy, lowest loss."""
        figures = self._figures(self._run.steady_steps)
        evals = [_evaluation(e) for e in self._run.evals]
        if not self._infers and (batches := [b for e in self._run.evals for b in e.batches]):
            figures |= _inference(batches, percentiles=True)
        # What is left is per evaluation only: speed is averaged, and of accuracies and losses the best is taken.
        for name in dict.fromkeys(k for e in evals for k in e if k not in figures):
            values = [e[name] for e in evals if name in e]
            speed = name.removeprefix("val.") in _UNITS and not name.endswith(("top1", "top5", "loss"))
            figures[name] = statistics.fmean(values) if speed else (min if name.endswith("loss") else max)(values)
        return figures

    def _steps(self, epoch: int) -> list[StepRecord]:
        return [s for s in self._run.steps if s.epoch == epoch]

    def _figures(self, steps: Sequence[StepRecord]) -> Values:
        return _inference(steps, percentiles=True) if self._infers else _training(steps)


def _numbered(run: RunLog, steps: Sequence[StepRecord]) -> list[tuple[int, StepRecord]]:
    """Steps with their numbers within the epoch; a log of printed iterations keeps its own."""
    # Vernier's own logs count steps from the start of the run, DLLogger from the start of the epoch.
    own = run.format in ("vernier", "bench")
    return [(position if own else s.step, s) for position, s in enumerate(steps, start=1)]


# ------------------------------------------------------------------------------------------------------------ DLLogger


def write_dllogger(run: RunLog, start: dt.datetime) -> str:
    """DLLogger lines: parameters, units, every step and validation batch, every epoch, the run."""
    lines: list[str] = []
    elapsed, levels = 0.0, _Levels(run)

    def line(kind: str, **fields: Any) -> None:
        try:
            now = start + dt.timedelta(seconds=elapsed)
        except OverflowError:
            raise ConfigError(f"The steps of this run take {elapsed:g} s: there is no date for its end.") from None
        head = {
            # Texts, not numbers, as in DLLogger's files.
            "timestamp": f"{now.timestamp():.6f}",
            "datetime": now.strftime("%Y-%m-%d %H:%M:%S.%f"),
            "elapsedtime": f"{elapsed:.6f}",
        }
        lines.append(PREFIX + json.dumps({**head, "type": kind, **fields}))

    total = levels.total()
    line("LOG", step="PARAMETER", data=_parameters(run))
    for metric in dict.fromkeys([*total, *(k for e in levels.epochs for k in levels.summary(e))]):
        line("METADATA", metric=metric, metadata=_UNITS.get(metric.partition(".")[2], {}))
    for epoch in levels.epochs:
        # A validation batch is listed under the last training iteration before it.
        last = 0
        for number, values in levels.training(epoch):
            elapsed += values["train.data_time"] + values["train.compute_time"]
            last = number
            line("LOG", step=[epoch, number], data=values)
        for number, values in levels.validation(epoch):
            elapsed += values["val.data_time"] + values["val.compute_time"]
            line("LOG", step=[epoch, last, number], data=values)
        line("LOG", step=[epoch], data=levels.summary(epoch))
    line("LOG", step=[], data=total)
    return "\n".join(lines) + "\n"


# -------------------------------------------------------------------------------------------------------------- raport


def write_raport(run: RunLog) -> str:
    """The `raport.json` of a run; `summary` has the figures of the whole run, which NVIDIA's does not have."""
    levels = _Levels(run)
    tree = {
        "run": _parameters(run),
        "epoch": {"ep": levels.epochs, **_aligned([levels.summary(epoch) for epoch in levels.epochs])},
        "iter": {
            **_iterations("it", [levels.training(epoch) for epoch in levels.epochs], _OF_TRAINING),
            **_iterations("val.it", [levels.validation(epoch) for epoch in levels.epochs], _OF_VALIDATION),
        },
        "event": {},
        "summary": levels.total(),
    }
    return json.dumps(tree, indent=1) + "\n"


def _aligned(rows: Sequence[Values]) -> dict[str, list[float | None]]:
    """One list per metric, with one value or null per row; `lr` goes without its prefix, as in 2019."""
    names = dict.fromkeys(k for row in rows for k in row)
    return {name: [row.get(name) for row in rows] for name in names if name != "train.lr"}


def _iterations(counter: str, epochs: list[list[tuple[int, Values]]], names: Sequence[str]) -> Tree:
    """Lists of lists: one inner list per epoch, one value per iteration. Every name is there, if only with nulls."""
    if not any(epochs):
        return {}
    prefix = "val" if counter == "val.it" else "train"
    tree: Tree = {counter: [[number for number, _ in epoch] for epoch in epochs]}
    for name in names:
        tree[f"{prefix}.{name}"] = [[values.get(f"{prefix}.{name}") for _, values in epoch] for epoch in epochs]
    # The one metric that NVIDIA lists without a prefix.
    if prefix == "train":
        tree["lr"] = [[values.get("train.lr") for _, values in epoch] for epoch in epochs]
    return tree


RAPORT = LogFormat(
    reads="NVIDIA's raport.json",
    recognizes=is_raport,
    read=read_raport,
    write=write_raport,
    one_document=True,
    each_step=True,
)
DLLOGGER = LogFormat(
    reads="DLLogger lines (JSON or text)",
    recognizes=is_dllogger,
    read=read_dllogger,
    write=lambda run: write_dllogger(run, run.began()),
    each_step=True,
    order=2,
)
