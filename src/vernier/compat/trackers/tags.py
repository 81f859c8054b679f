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
_EVAL_FIGURES = ("top1", "top5", "loss", *_AP, *_AR)


def training(step_s: float, samples: float, **figures: float | None) -> dict[str, float]:
    """The figures of a step or of a window of steps: times are means, `samples` is the global batch."""
    rate = Window(samples=samples, wall_s=step_s).samples_per_s if step_s > 0 else None
    named = {**figures, "step_s": step_s, "images_per_s_total": rate}
    return {f"train/{name}": float(value) for name, value in named.items() if value is not None}


def evaluation(figures: Mapping[str, float | None], split: str = "val") -> dict[str, float]:
    """The figures of an evaluation under Vernier's names, `val/` or another split in front."""
    return {f"{split}/{name}": float(value) for name in _EVAL_FIGURES if (value := figures.get(name)) is not None}


def of_event(event: Event) -> dict[str, float]:
    """The figures of an event by tag; empty for events without figures."""
    if isinstance(event, EvalEvent):
        return evaluation(event.figures)
    if isinstance(event, EpochEvent):
        # Of a whole epoch of training: another tag than that of a step, whose x axis it shares.
        values = [(name, getattr(event, name)) for name in ("seconds", "loss", "top1", "top5", "images_per_s_total")]
        return {f"train/epoch_{name}": float(value) for name, value in values if value is not None}
    if not isinstance(event, StepEvent):
        return {}
    steps = len(event.step_s)
    return training(
        sum(event.step_s) / steps,
        event.samples / steps,
        loss=event.loss,
        top1=event.top1,
        top5=event.top5,
        lr=event.lr,
        data_wait_s=sum(event.wait_s) / steps,
        epoch=event.epoch,
        loss_scale=event.loss_scale,
    )


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
