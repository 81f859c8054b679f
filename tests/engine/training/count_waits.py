"""Counts how often a training on rgpu waits for the device: run as a process of its own by test_step.

    python count_waits.py SHAPES BOXES

Prints, per training, [steps, waits] of each report after the first, for windows of 1 and of 3 steps.
"""

import json
import sys
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import rgpu.session

from tests.tiny_training import tiny_config
from vernier.config import Augment, Checkpoint, Config, Ema, Eval, Limits, Machine, Schedule, override
from vernier.engine.training.session import train
from vernier.models import is_detector
from vernier.optim.kinds.sgd import Sgd
from vernier.recipes import get
from vernier.records.events import Event, StepEvent


class WaitCounter:
    """Notes the waits for the device up to each report."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.waits: list[int] = []

    def emit(self, event: Event) -> None:
        if isinstance(event, StepEvent):
            self.steps.append(len(event.step_s))
            self.waits.append(rgpu.session.get().stats["waits"])

    def progress(self, phase: str, done: int, total: int) -> None:
        pass


def classifier(shapes: Path) -> Config:
    config = tiny_config(
        shapes,
        augment=Augment(crop="pad", mixup=0.2),
        ema=Ema(decay=0.99),
        optim=Sgd(lr=0.05, clip_norm=1.0),
        eval=Eval(every_epochs=0),
        schedule=Schedule(epochs=10.0),
    )
    return replace(config, machine=Machine(device="rgpu", threads=1, accumulation=2, telemetry_hz=0))


def detector(boxes: Path) -> Config:
    machine = Machine(device="rgpu", threads=1, telemetry_hz=0)
    config = Config(recipe=get("ssd-shapes-quick"), machine=machine)
    small = {"data.source": str(boxes), "global_batch": 2, "eval.every_epochs": 0.0, "model.width": 16}
    for name, value in small.items():
        config = override(config, name, value)
    return config


def waits_per_report(config: Config, steps: int) -> list[tuple[int, int]]:
    """Steps and waits of each report after the first; epochs end some windows early."""
    counter = WaitCounter()
    limits = Limits(
        max_steps=2 * steps, log_every_steps=steps, train_accuracy=not is_detector(config.recipe.model.name)
    )
    never = Checkpoint(every_epochs=0)
    with tempfile.TemporaryDirectory() as out:
        train(replace(config, limits=limits, checkpoint=never), Path(out), observers=[counter])
    waits = [after - before for before, after in pairwise(counter.waits)]
    return list(zip(counter.steps[1:], waits, strict=True))


if __name__ == "__main__":
    shapes, boxes = map(Path, sys.argv[1:])
    classify = classifier(shapes)
    fp16: Any = override(override(classify, "machine.precision", "fp16"), "machine.allow_slow", True)
    trainings = {"classifier": classify, "detector": detector(boxes), "fp16": fp16}
    print(json.dumps({name: [*waits_per_report(c, 1), *waits_per_report(c, 3)] for name, c in trainings.items()}))
