"""Writes NVIDIA's logs: `raport.json` of 2019 and DLLogger's JSON lines, at iteration, epoch and run level.

Rates are images over time, never means of rates. Steps of training are `train.*`, evaluations and inference `val.*`.
Lists of one epoch have one value per iteration; what was not recorded for one is null. Iterations count from 1.
"""

import datetime as dt
import json
import statistics
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.logs.formats import LogFormat
from vernier.lab.logs.model import EvalRecord, RunLog, StepRecord, Tree
from vernier.measure.throughput import Window

from .reading import PREFIX, SPEEDS, is_dllogger, is_raport, read_dllogger, read_raport

_UNITS: Tree = {
    **{name: {"unit": "s", "format": ":.5f"} for name in SPEEDS},
    **{name: {"unit": "images/s", "format": ":.2f"} for name in SPEEDS if name.endswith("_ips")},
    **{name: {"unit": "%", "format": ":.2f"} for name in ("top1", "top5")},
    "loss": {"unit": None, "format": ":.5f"},
    "lr": {},
}
_PARAMETERS = tomllib.loads(Path(__file__).with_name("parameters.toml").read_text(encoding="utf-8"))
_OF_TRAINING = ("loss", "top1", "top5", "compute_ips", "total_ips", "data_time", "compute_time")
_OF_VALIDATION = ("compute_ips", "total_ips", "data_time", "compute_time", "compute_latency")
Values = dict[str, float]


# ------------------------------------------------------------------------------------------------------------ settings


def _parameters(run: RunLog) -> Tree:
    """The run's settings under the names of NVIDIA's command line; Vernier's own stay under `vernier`."""
    # Settings of another program's log are written back as they were.
    samples = run.steps[0].samples / run.steps[0].steps if run.steps else 0.0
    named: Tree = {}
    if "recipe" in run.settings:
        named = {**_named(run, int(samples)), "vernier": run.settings}
    tree = named or dict(run.settings)
    if run.devices is not None:
        batch = samples / run.devices
        # Theirs is the batch of a device that is computed at once: a step can accumulate several.
        micro = (run.settings.get("machine") or {}).get("process_batch") if named and run.kind == "train" else None
        tree |= {"batch_size": micro or (int(batch) if batch == int(batch) else batch), "world_size": run.devices}
    if named:
        tree |= {"evaluate": run.kind == "infer", "training_only": not run.evals and run.kind == "train"}
        printed = (run.settings.get("limits") or {}).get("log_every_steps")
        # `reading` takes times as they are if there is the last one: every step is listed, of benchmarks no warm-up.
        tree |= {"print_freq": printed or 1, "warmup_left_out": run.format == "bench"}
    return tree


def _named(run: RunLog, global_batch: int) -> Tree:
    """`global_batch` is that of the measured steps: a benchmark has another one than its recipe, and no epochs."""
    recipe, machine = dict(run.settings.get("recipe") or {}), run.settings.get("machine") or {}
    if run.format == "bench" and global_batch:
        recipe |= {"global_batch": global_batch, "schedule": {}}

    def setting(path: str) -> Any:
        value: Any = {"recipe": recipe, "machine": machine}
        for name in path.split("."):
            value = (value or {}).get(name)
        return value

    init, precision, scaling = setting("recipe.model.init"), machine.get("precision"), machine.get("loss_scaling")
    scaling = scaling if precision == "fp16" else None
    computed = {
        "arch": run.ran.network if run.ran else setting("recipe.model.name"),
        "model_config": {"fan-in": "fanin", "fan-out": "classic"}.get(str(init), init),
        # With progressive resizing there is no single size.
        "image_size": None
        if setting("recipe.augment.start_px")
        else setting("recipe.data.eval_px" if run.kind == "infer" else "recipe.data.image_px"),
        "num_classes": (run.ran.classes or None) if run.ran else setting("recipe.model.num_classes"),
        "lr": _scaled_rate(recipe, setting("recipe.optim") or {}),
        "amp": precision in ("fp16", "bf16"),
        "fp16": False,
        "dynamic_loss_scale": scaling == "dynamic",
        "static_loss_scale": machine.get("loss_scale") if scaling == "static" else 1,
        "bn_weight_decay": setting("recipe.optim.decay_rule") == "all",
        "prof": -1,  # NVIDIA's value for no profile
        "workspace": str(run.path.parent),
    }
    return {name: setting(path) if path else computed[name] for name, path in _PARAMETERS.items()}


def _scaled_rate(recipe: Tree, optim: Tree) -> float | None:
    """The peak learning rate at this run's global batch. Raises ConfigError where the run's config.json is damaged."""
    rate, per, batch = factors = optim.get("lr"), optim.get("lr_batch"), recipe.get("global_batch")
    if not all(isinstance(factor, int | float | None) for factor in factors):
        raise ConfigError(f"config.json is damaged: learning rate, its batch and the global batch are {factors}.")
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


def _inference(steps: Sequence[StepRecord]) -> Values:
    """The speed of one or several batches."""
    times = _times(steps)
    return {f"val.{k}": v for k, v in {**times, "compute_latency": times["compute_time"]}.items()}


def _percentiles(batches: Sequence[StepRecord]) -> Values:
    """Their speed with percentiles of the latency, which are nearest values, as NVIDIA's."""
    if not batches:
        return {}
    busy = sorted((s.seconds - s.window.data_wait_s) / s.steps for s in batches)
    at = {f"val.compute_latency_at{q}": busy[round((len(busy) - 1) * q / 100)] for q in (95, 99, 100)}
    return _inference(batches) | at


def _evaluation(result: EvalRecord) -> Values:
    """Accuracy and speed of an evaluation; without timed batches only its rate is known."""
    values = {f"val.{k}": v for k, v in (result.values | result.speed).items()}
    # Figures that a log already had are kept, so that reading and writing again changes nothing.
    if result.speed:
        return values
    if result.batches:
        return values | _percentiles(result.batches)
    rate = {"val.total_ips": result.samples / result.seconds} if result.samples and result.seconds > 0 else {}
    return values | rate


@frozen
class _Epoch:
    """An epoch: its figures by iteration of training, by batch of its evaluation or of inference, and as a whole."""

    number: int
    training: list[tuple[int, Values]]
    validation: list[tuple[int, Values]]
    summary: Values


def _epochs(run: RunLog) -> list[_Epoch]:
    results, infers = {e.epoch: e for e in run.evals}, run.kind == "infer"
    # Vernier's own logs count steps from the start of the run, DLLogger from the start of the epoch.
    own = run.format in ("vernier", "bench")
    epochs = []
    for number in sorted({s.epoch for s in run.steps} | set(results)):
        steps, result = [s for s in run.steps if s.epoch == number], results.get(number)
        batches = steps if infers else result.batches if result else ()
        epochs.append(
            _Epoch(
                number=number,
                training=[(i if own else s.step, _training([s])) for i, s in enumerate(steps, 1) if not infers],
                validation=[(i if own else s.step, _inference([s])) for i, s in enumerate(batches, 1)],
                summary=_figures(run, steps) | (_evaluation(result) if result else {}),
            )
        )
    return epochs


def _figures(run: RunLog, steps: Sequence[StepRecord]) -> Values:
    return _percentiles(steps) if run.kind == "infer" else _training(steps)


def _total(run: RunLog) -> Values:
    """Steady steps, and the best of all evaluations: highest accuracy, lowest loss."""
    figures = _figures(run, run.steady_steps)
    if run.kind == "train":
        figures |= _percentiles([batch for e in run.evals for batch in e.batches])
    evals = [_evaluation(e) for e in run.evals]
    # What is left is per evaluation only: speed is averaged, and of accuracies and losses the best is taken.
    for name in dict.fromkeys(k for e in evals for k in e if k not in figures):
        values = [e[name] for e in evals if name in e]
        speed = name.removeprefix("val.") in SPEEDS
        figures[name] = statistics.fmean(values) if speed else (min if name.endswith("loss") else max)(values)
    return figures


# ------------------------------------------------------------------------------------------------------------ DLLogger


def _write_dllogger(run: RunLog, start: dt.datetime) -> str:
    """DLLogger lines: parameters, units, every step and validation batch, every epoch, the run."""
    lines: list[str] = []
    elapsed, epochs, total = 0.0, _epochs(run), _total(run)

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

    line("LOG", step="PARAMETER", data=_parameters(run))
    for metric in dict.fromkeys([*total, *(k for epoch in epochs for k in epoch.summary)]):
        line("METADATA", metric=metric, metadata=_UNITS.get(metric.partition(".")[2], {}))
    for epoch in epochs:
        # A validation batch is listed under the last training iteration before it.
        last = 0
        for number, values in epoch.training:
            elapsed += values["train.data_time"] + values["train.compute_time"]
            last = number
            line("LOG", step=[epoch.number, number], data=values)
        for number, values in epoch.validation:
            elapsed += values["val.data_time"] + values["val.compute_time"]
            line("LOG", step=[epoch.number, last, number], data=values)
        line("LOG", step=[epoch.number], data=epoch.summary)
    line("LOG", step=[], data=total)
    return "\n".join(lines) + "\n"


# -------------------------------------------------------------------------------------------------------------- raport


def _write_raport(run: RunLog) -> str:
    """The `raport.json` of a run; `summary` has the figures of the whole run, which NVIDIA's does not have."""
    epochs = _epochs(run)
    tree = {
        "run": _parameters(run),
        "epoch": {"ep": [epoch.number for epoch in epochs], **_aligned([epoch.summary for epoch in epochs])},
        "iter": {
            **_iterations("train", [epoch.training for epoch in epochs], _OF_TRAINING),
            **_iterations("val", [epoch.validation for epoch in epochs], _OF_VALIDATION),
        },
        "event": {},
        "summary": _total(run),
    }
    return json.dumps(tree, indent=1) + "\n"


def _aligned(rows: Sequence[Values]) -> dict[str, list[float | None]]:
    """One list per metric, with one value or null per row; `lr` goes without its prefix, as in 2019."""
    names = dict.fromkeys(k for row in rows for k in row)
    return {name: [row.get(name) for row in rows] for name in names if name != "train.lr"}


def _iterations(prefix: str, epochs: list[list[tuple[int, Values]]], names: Sequence[str]) -> Tree:
    """Lists of lists: one inner list per epoch, one value per iteration. Every name is there, if only with nulls."""
    if not any(epochs):
        return {}
    # The counter and the rate are what NVIDIA lists without `train.`.
    listed = {"val.it" if prefix == "val" else "it": None, **{f"{prefix}.{name}": f"{prefix}.{name}" for name in names}}
    listed |= {"lr": "train.lr"} if prefix == "train" else {}
    return {
        name: [[number if key is None else values.get(key) for number, values in epoch] for epoch in epochs]
        for name, key in listed.items()
    }


RAPORT = LogFormat(
    reads="NVIDIA's raport.json",
    recognizes=is_raport,
    read=read_raport,
    write=_write_raport,
    one_document=True,
    each_step=True,
)
DLLOGGER = LogFormat(
    reads="DLLogger lines (JSON or text)",
    recognizes=is_dllogger,
    read=read_dllogger,
    write=lambda run: _write_dllogger(run, run.began()),
    each_step=True,
    order=2,
)
