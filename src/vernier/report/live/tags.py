"""The names under which trackers keep a run's figures: one table for what is written live and what is converted later.

`train/loss`, `train/lr`, `val/top1`, `val/AP`: as most training code names them. The x axis is the optimiser step.
"""

import json
from typing import Any

EVAL_FIGURES = ("top1", "top5", "loss", "AP", "AP50", "AP75", "APs", "APm", "APl")
IMAGES = "train/images"


def training(
    *, loss: float | None, lr: float | None, step_s: float, wait_s: float, samples: float, epoch: float | None = None
) -> dict[str, float]:
    """The figures of a step, or of a window of them: `step_s` and `wait_s` are means, `samples` is per step, all processes."""
    found = {
        "train/loss": loss,
        "train/lr": lr,
        "train/step_s": step_s,
        "train/data_wait_s": wait_s,
        "train/images_per_s_total": samples / step_s if step_s > 0 else None,
        "train/epoch": epoch,
    }
    return {tag: float(value) for tag, value in found.items() if value is not None}


def evaluation(values: dict[str, Any]) -> dict[str, float]:
    """The figures of an evaluation, by Vernier's names: `val/` in front."""
    return {f"val/{name}": float(values[name]) for name in EVAL_FIGURES if values.get(name) is not None}


def of_event(event: dict[str, Any]) -> dict[str, float]:
    """The figures of an event of a run; empty where it has none to draw."""
    if event["kind"] == "eval":
        return evaluation(event)
    if event["kind"] != "step":
        return {}
    steps = len(event["step_s"])
    found = training(
        loss=event["loss"], lr=event["lr"], step_s=sum(event["step_s"]) / steps, wait_s=sum(event["wait_s"]) / steps,
        samples=event["samples"] / steps, epoch=event["epoch"],
    )  # fmt: skip
    return found | ({"train/loss_scale": float(event["loss_scale"])} if "loss_scale" in event else {})


def hyperparameters(config: dict[str, Any], within: str = "") -> dict[str, str | float | bool]:
    """A configuration as names with dots and plain values; lists as JSON, what is not set left out."""
    found: dict[str, str | float | bool] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= hyperparameters(value, f"{within}{name}.")
        elif isinstance(value, str | int | float):
            found[within + name] = value
        elif value is not None:
            found[within + name] = json.dumps(value)
    return found
