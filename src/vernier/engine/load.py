"""A trained model, ready to be used: from a run directory, a bare checkpoint, or anybody's weights file."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vernier.config import Config, from_dict
from vernier.data.sources import open_split
from vernier.devices import Device
from vernier.engine.checkpoint import weights_for_use
from vernier.engine.observe import Observer, Observers
from vernier.engine.setup import build_evaluator, make_model, prepare_device
from vernier.errors import ConfigError
from vernier.measure.clock import now_s
from vernier.store import CheckpointDir, RunDir, open_checkpoint, read_json


@dataclass
class Trained:
    """A model with its weights, what it was trained as, and where they came from."""

    model: nn.Module
    config: Config
    classes: tuple[str, ...]
    device: Device
    origin: str
    step: int
    averaged: bool


def load_trained(
    path: Path, *, which: str = "latest", averaged: bool | None = None, machine: dict[str, Any] | None = None
) -> Trained:
    """The model of a run (its latest or best checkpoint, or the one of a given step) or of a checkpoint directory."""
    found = find_checkpoint(path, which)
    state = read_json(found.path / "state.json")
    config = from_dict(Config, state["config"])
    if machine:
        config = replace(config, machine=replace(config.machine, **machine))
    device, _ = prepare_device(config)
    model = make_model(config, len(state["classes"]), state["channels"], device.torch_device(0))
    tensors, used_average = weights_for_use(found, averaged=averaged)
    model.load_state_dict(tensors)
    return Trained(model, config, tuple(state["classes"]), device, str(found.path), found.step, used_average)


def find_checkpoint(path: Path, which: str) -> CheckpointDir:
    """A checkpoint directory given as such, or chosen from a run."""
    if (path / "state.json").is_file():
        return open_checkpoint(path)
    run = RunDir.open(path)
    if which == "latest":
        found = run.newest_checkpoint()
    elif which == "best":
        found = run.best_checkpoint()
    else:
        found = next((c for c in run.checkpoints() if str(c.step) == which), None)
    if found is None:
        steps = ", ".join(str(c.step) for c in run.checkpoints()) or "none"
        raise ConfigError(f"{path} has no {which} checkpoint. Checkpoints by step: {steps}.")
    return open_checkpoint(found.path)


def evaluate_trained(
    trained: Trained, data: str | None, max_eval_steps: int | None, watchers: list[Observer]
) -> dict[str, Any]:
    """Score a model on the validation split of its own or of other data, exactly."""
    config = trained.config
    if data is not None:
        config = replace(config, recipe=replace(config.recipe, data=replace(config.recipe.data, source=data)))
    config = replace(config, limits=replace(config.limits, max_eval_steps=max_eval_steps))
    source = open_split(config.recipe.data.source, "val", val_share=config.recipe.data.val_share)
    if len(source.classes) != len(trained.classes):
        raise ConfigError(
            f"The model knows {len(trained.classes)} classes, the data has {len(source.classes)}. Use data with the same classes."
        )
    evaluator = build_evaluator(config, source, trained.device)
    start = now_s()
    try:
        score = evaluator.score(trained.model, None, Observers(*watchers), lambda: None)
    finally:
        evaluator.close()
    seconds = now_s() - start
    return {
        **score.result(),
        "seconds": seconds,
        "images_per_s_total": score.samples / seconds,
        "data": config.recipe.data.source,
        "exact": max_eval_steps is None,
        "bad_images": [bad.path for bad in evaluator.bad.found()],
        "averaged": trained.averaged,
        "weights": trained.origin,
        "step": trained.step,
        "threads": torch.get_num_threads(),
    }
