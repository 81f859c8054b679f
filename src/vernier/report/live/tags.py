"""The names under which trackers keep a run's figures: one table for what is written live and what is converted later.

`train/loss`, `train/lr`, `val/top1`, `val/AP`: as most training code names them. The x axis is the optimiser step.
"""

import json
from collections.abc import Mapping
from typing import Any

from vernier.measure.throughput import Window
from vernier.records.events import EpochEvent, EvalEvent, Event, StartEvent, StepEvent

_AP = ("AP", "AP50", "AP75", "APs", "APm", "APl")
_AR = ("AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
EVAL_FIGURES = ("top1", "top5", "loss", *_AP, *_AR)


def training(
    *,
    loss: float | None,
    lr: float | None,
    step_s: float,
    wait_s: float,
    samples: float,
    epoch: float | None = None,
    top1: float | None = None,
    top5: float | None = None,
) -> dict[str, float]:
    """The figures of a step or of a window of steps: `step_s` and `wait_s` are means, `samples` is the global batch."""
    figures = {
        "train/loss": loss,
        "train/top1": top1,
        "train/top5": top5,
        "train/lr": lr,
        "train/step_s": step_s,
        "train/data_wait_s": wait_s,
        "train/images_per_s_total": Window(samples=samples, wall_s=step_s).samples_per_s if step_s > 0 else None,
        "train/epoch": epoch,
    }
    return {tag: float(value) for tag, value in figures.items() if value is not None}


def evaluation(figures: Mapping[str, float | None], split: str = "val") -> dict[str, float]:
    """The figures of an evaluation under Vernier's names, `val/` or another split in front."""
    return {f"{split}/{name}": float(value) for name in EVAL_FIGURES if (value := figures.get(name)) is not None}


def _epoch(event: EpochEvent) -> dict[str, float]:
    """The figures of a whole epoch of training, `train/epoch_` in front."""
    names = ("loss", "top1", "top5", "images_per_s_total")
    figures = {"seconds": event.seconds} | {name: getattr(event, name) for name in names}
    return {f"train/epoch_{name}": float(value) for name, value in figures.items() if value is not None}


def of_event(event: Event) -> dict[str, float]:
    """The figures of an event by tag; empty for events without figures."""
    if isinstance(event, EvalEvent):
        return evaluation(event.figures)
    if isinstance(event, EpochEvent):
        return _epoch(event)
    if not isinstance(event, StepEvent):
        return {}
    steps = len(event.step_s)
    figures = training(
        loss=event.loss,
        lr=event.lr,
        step_s=sum(event.step_s) / steps,
        wait_s=sum(event.wait_s) / steps,
        samples=event.samples / steps,
        epoch=event.epoch,
        top1=event.top1,
        top5=event.top5,
    )
    return figures if event.loss_scale is None else figures | {"train/loss_scale": event.loss_scale}


def what_ran(start: StartEvent) -> dict[str, str]:
    """What ran, for people who search a tracker: the line, its main parts, and whether it is a smoke run."""
    if start.ran is None:
        return {}
    parts = start.ran.parts()
    named = {f"ran.{name.replace(' ', '_')}": parts[name] for name in ("network", "image size", "batch", "data")}
    return {"ran": start.ran.line(), **named, "ran.smoke": "yes" if start.ran.smoke else "no"}


def hyperparameters(config: Mapping[str, Any], prefix: str = "") -> dict[str, str | float | bool]:
    """A configuration as dotted names and plain values: lists as JSON, unset values left out."""
    flat: dict[str, str | float | bool] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat |= hyperparameters(value, f"{prefix}{name}.")
        elif isinstance(value, str | int | float):
            flat[prefix + name] = value
        elif value is not None:
            flat[prefix + name] = json.dumps(value)
    return flat
