"""Run directories with known step times: written through the store, as a training writes them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vernier.config import Config, Recipe, override, to_dict
from vernier.lab.records.telemetry import TelemetryRecord
from vernier.records.codec import encode
from vernier.records.events import EvalEvent, StartEvent, StepEvent
from vernier.records.run import StepTiming
from vernier.store import RunDir


def step_times(seed: int, *, mean: float = 0.1, n: int = 400) -> list[float]:
    """Correlated step times of CV 3 %."""
    noise = np.random.default_rng(seed).standard_normal(n)
    for i in range(1, n):
        noise[i] += 0.5 * noise[i - 1]
    return [float(x) for x in mean * (1 + 0.026 * noise)]


def write_run(
    out: Path,
    name: str,
    step_s: Sequence[float],
    *,
    batch: int = 32,
    status: str = "finished",
    host: str = "here",
    steps_per_epoch: int = 100,
    window: int = 10,
    timing: StepTiming = "host clock",
    **changes: Any,
) -> Path:
    """A run of `batch` images per step on one device; evaluated after each epoch."""
    config = Config(recipe=Recipe(name=name, global_batch=batch))
    for path, value in changes.items():
        config = override(config, path.replace("__", "."), value)
    run = RunDir.create(out, name)
    run.write_config(to_dict(config))
    run.write_environment(
        {
            "host": host,
            "cpu": {"load_average": [len(step_s)]},
            "versions": {"torch": "2.13.0"},
            "processes": [{"rank": 0, "host": "node", "device": "cpu", "pid": len(name) + len(step_s)}],
        }
    )
    log = run.events()
    log.emit(
        StartEvent(
            recipe=name,
            device="cpu",
            seed=1,
            global_batch=batch,
            steps_per_epoch=steps_per_epoch,
            train_samples=batch * steps_per_epoch,
            val_samples=50,
        )
    )
    for first in range(0, len(step_s), window):
        part = tuple(step_s[first : first + window])
        done = first + len(part)
        log.emit(
            StepEvent(
                step=done,
                epoch=done / steps_per_epoch,
                loss=5 / (1 + done),
                lr=0.1,
                samples=batch * len(part),
                step_s=part,
                wait_s=tuple(s / 20 for s in part),
                step_times=timing,
            )
        )
        if done % steps_per_epoch == 0:
            epoch = done // steps_per_epoch
            figures = {"top1": 50.0 + epoch, "top5": 80.0 + epoch, "loss": 1.0 / epoch}
            log.emit(EvalEvent(step=done, epoch=float(epoch), samples=50, seconds=1.0, best=True, figures=figures))
    log.close()
    run.write_status(status, summary={"reached_target": True, "spent_s": {"total": sum(step_s)}, "result": None})
    return run.path


def encode_telemetry(record: TelemetryRecord) -> dict[str, Any]:
    """The record as a line of telemetry.jsonl."""
    return {"kind": record.record, **encode(record)}
