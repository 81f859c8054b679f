"""Continues a finished run for more epochs: the settings of the extension, and its run directory.

The extension begins as a copy of the last checkpoint and of the history of the run that it extends, so resuming, the
report and every other reader see one run. It plugs into training as `vernier.extensions`; training is the engine's.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vernier.config import Changed, differences, override, to_dict
from vernier.engine.training.checkpoints.resume import run_config
from vernier.errors import ConfigError
from vernier.records.events import StepEvent
from vernier.records.run import Rollbacks
from vernier.references import command, given, use
from vernier.requests.training import Train
from vernier.store import CheckpointDir, RunDir
from vernier.store.durable import sync_to_disk

if TYPE_CHECKING:
    from vernier.engine.training.setup import Job

_HISTORY = ("*.jsonl", "train_images.json", "environment.*", "tensorboard")
"""What is taken over besides checkpoints: what only the run that is extended could write."""
_SAYS = ("recipe.name", "recipe.about", "recipe.source", "recipe.published")
"""Settings that describe a recipe and change nothing."""


def unextended(request: Train, parent: RunDir) -> Train:
    """The request with the length that `parent` had: options scale the schedule, and an extension keeps it."""
    own = request.recipe is not None or request.config is not None
    was = run_config(parent).recipe.schedule
    return replace(request, epochs=was.epochs if own else None, steps=was.steps)


def extend(changed: Changed, parent: RunDir, request: Train) -> Changed:
    """The settings of a run that goes on where `parent` ended, to `epochs` or `steps`. Raises ConfigError."""
    was, status = run_config(parent), parent.status()
    changes = differences(to_dict(was)["recipe"], to_dict(changed.config)["recipe"], "recipe")
    other = [
        f"{name.removeprefix('recipe.')} was {old!r}, now {new!r}"
        for name, (old, new) in changes.items()
        if not name.startswith(_SAYS)
    ]
    if other:
        raise ConfigError(
            f"{parent.path} was started with another recipe: {'; '.join(other[:5])}. An extension changes its length "
            f"alone. Omit the rest, or start a new run from its weights: {command('export', parent.path)}, then "
            f"{use('model.weights', slot='FILE')}."
        )
    summary, checkpoint = status.summary, parent.checkpoints.newest()
    if status.status != "finished" or summary is None:
        raise ConfigError(
            f"{parent.path} has not finished: it is {status.status}. Finish it first "
            f"({command('train', resume=str(parent.path))}), then extend it."
        )
    if checkpoint is None:
        raise ConfigError(
            f"{parent.path} has no usable checkpoint, so there is nothing to continue. Train again, with "
            f"{use('checkpoints', True)} and {use('checkpoint.at_end', True)}."
        )
    # Of both lengths the one that is given counts; the other one is what the recipe said.
    epochs, steps = request.epochs or was.recipe.schedule.epochs, request.steps
    if (steps if steps is not None else epochs) <= ((summary.step if steps is not None else summary.epoch) or 0):
        length = given("schedule.epochs", request.epochs) if steps is None else given("schedule.steps", steps)
        raise ConfigError(
            f"{length} is no more than {parent.path} has: {summary.epoch:g} epochs, {summary.step} steps. Give the "
            "length of both together."
        )
    tail, last_rate = request.schedule_tail or "cosine", _last_rate(parent, checkpoint)
    settings = {
        "recipe.name": was.recipe.name,  # options that repeat its settings would be named once more
        "schedule.epochs": epochs,
        "schedule.steps": steps,
        "schedule.extends": parent.path.resolve().name,
        "schedule.extends_step": checkpoint.step,
        "schedule.extends_weights": checkpoint.manifest().files["model.safetensors"].sha256,
        "schedule.extends_rate": last_rate,
        "schedule.tail": tail,
    }
    config = changed.config
    for name, value in settings.items():
        config = override(config, name, value)
    if request.max_steps is None:
        config = override(config, "limits.max_steps", None)  # that of the run that ended by it
    how = {
        "cosine": "follows a cosine over the whole new length",
        "constant": f"stays at {last_rate:g}",
        "restart": "restarts at its peak and follows a cosine",
    }[tail]
    note = f"extends {parent.path} from step {checkpoint.step:,}: the learning rate was {last_rate:g} and {how}"
    return Changed(config=config, notes=(*changed.notes, note), named=changed.named)


def _last_rate(parent: RunDir, checkpoint: CheckpointDir) -> float:
    """The schedule's rate at the checkpoint, without the factor of rollbacks, which the checkpoint has, too."""
    from vernier.engine.training.checkpoints.contents import read_state  # PyTorch, which refusals do without

    events = [event for event in parent.history() if isinstance(event, StepEvent) and event.step >= checkpoint.step]
    factor = (read_state(checkpoint).progress.rollbacks or Rollbacks()).lr_factor
    return events[-1].lr / factor if events else 0.0


def fork(parent: RunDir, checkpoint: CheckpointDir, job: "Job", out: Path) -> RunDir:
    """A run directory that is ready to be resumed: under its name only once it is whole."""
    # The lock: two extensions of one run share the folder in which they are prepared.
    with parent.locked():
        staging = out / f".extending-{parent.path.resolve().name}"
        shutil.rmtree(staging, ignore_errors=True)  # what a kill left
        run = RunDir.create(staging, f"{job.config.recipe.name}-extended")
        for pattern in _HISTORY:
            for path in parent.path.glob(pattern):
                (shutil.copytree if path.is_dir() else shutil.copy2)(path, run.path / path.name)
        best = parent.checkpoints.best()
        for each in {checkpoint, *([best] if best is not None else [])}:
            copied = run.checkpoints.folder / each.path.name
            shutil.copytree(each.path, copied)
            run.checkpoints.point("best" if each == best else "latest", CheckpointDir(each.step, copied))
        for path in run.path.rglob("*"):
            if path.is_file():
                sync_to_disk(path)
        run.write_config(to_dict(job.config))
        run.path.rename(out / run.path.name)
        staging.rmdir()
        return RunDir(out / run.path.name)
