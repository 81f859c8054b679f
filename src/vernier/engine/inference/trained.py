"""A trained model, ready to be used: from a run directory, a bare checkpoint, or anybody's weights file."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vernier.clock import now_s
from vernier.config import Config, Data, Model, Recipe, from_dict
from vernier.devices import Device
from vernier.engine.execution import Execution
from vernier.engine.observe import Observer, Observers
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.engine.starting_weights import describe_weights, load_weights, photographs_for_check
from vernier.engine.training.checkpoint import weights_for_use
from vernier.engine.training.setup import build_evaluator, make_model, model_for, place_of, prepare_device
from vernier.errors import ConfigError
from vernier.models import info, weights
from vernier.records.codec import encode
from vernier.store import CheckpointDir, RunDir, open_checkpoint, read_json, write_json
from vernier.tasks import task_of
from vernier.tasks.base import Score


@dataclass
class Trained:
    """A model with its weights, what it was trained as, and where they came from."""

    model: nn.Module
    config: Config
    classes: tuple[str, ...]
    device: Device
    origin: str
    step: int | None
    averaged: bool
    channels: int
    notes: tuple[str, ...] = ()


def load_trained(
    path: Path,
    *,
    which: str = "latest",
    averaged: bool | None = None,
    changed: Callable[[Config], Config] | None = None,
) -> Trained:
    """The model of a run (its latest or best checkpoint, or the one of a given step) or of a checkpoint directory.

    `changed` may alter its settings, but for the model's.
    """
    found = find_checkpoint(path, which)
    state = read_json(found.path / "state.json")
    config = from_dict(Config, state["config"])
    config = replace(config, machine=replace(config.machine, procs=1))
    if changed is not None:
        before, config = config.recipe.model, changed(config)
        if config.recipe.model != before:
            raise ConfigError("A trained model cannot be changed by --set model.*; data, eval and machine can.")
    device, _ = prepare_device(config)
    model = make_model(
        config, task_of(config.recipe).outputs(len(state["classes"])), state["channels"], place_of(device)
    )
    tensors, used_average = weights_for_use(found, averaged=averaged)
    model.load_state_dict(tensors)
    return Trained(
        model, config, tuple(state["classes"]), device, str(found.path), found.step, used_average, state["channels"]
    )


def foreign_config(model: str) -> Config:
    """Settings under which anybody's weights of a catalogue model are evaluated unless told otherwise.

    The model's own resolution, and ImageNet's mean and deviation: what nearly all published weights were trained with.
    """
    px = info(model).input_px
    short_side = 256 * px // 224 if px >= 128 else px  # small images are not cropped
    data = Data(image_px=px, eval_px=px, eval_short_side_px=short_side)
    return Config(recipe=Recipe(name=f"{model}-weights", model=Model(name=model), data=data))


def load_foreign(path: Path, config: Config, *, averaged: bool | None = None) -> Trained:
    """A model of `config` with the weights of a file, its classes those of the data; ConfigError if they do not fit."""
    task = task_of(config.recipe)
    source = task.open("val")
    device, _ = prepare_device(config)
    place = place_of(device)
    model = model_for(config, task, source, place)
    if path.is_file():
        _check_classes(path, len(source.classes), config, bool(averaged))
    photographs = photographs_for_check(model, source, config.recipe.data, place)
    report = load_weights(model, str(path), ema=bool(averaged), photographs=photographs)
    notes = (describe_weights(str(path), report),)
    return Trained(model, config, source.classes, device, str(path), None, bool(averaged), source.channels, notes)


def _check_classes(path: Path, classes: int, config: Config, averaged: bool) -> None:
    state, _ = weights.translate(weights.read(path, ema=averaged))
    head, unused = state.get("fc.weight"), config.recipe.model.unused_outputs
    if head is not None and len(head) != classes + unused:
        extra = f" and model.unused_outputs = {unused}" if unused else ""
        raise ConfigError(
            f"The weights know {len(head)} classes, the data has {classes}{extra}. Use data with the same classes."
        )


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


def checkpoint_steps(path: Path) -> list[str]:
    """The steps at which a run has checkpoints, in order."""
    steps = [str(c.step) for c in RunDir.open(path).checkpoints()]
    if not steps:
        raise ConfigError(f"{path} has no checkpoint yet.")
    return steps


def evaluate_trained(
    trained: Trained, data: str | None, max_eval_steps: int | None, watchers: list[Observer], *,
    split: str = "val", out: Path | None = None, world: World | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Score a model on a split of its own or of other data, exactly; what it predicted goes to `out` as JSON files.

    With several processes the first one's answer is that of all.
    """
    world = world or World(Topology())
    config = trained.config
    if data is not None:
        config = replace(config, recipe=replace(config.recipe, data=replace(config.recipe.data, source=data)))
    config = replace(config, limits=replace(config.limits, max_eval_steps=max_eval_steps))
    task = task_of(config.recipe)
    source = task.open(split)
    if len(source.classes) != len(trained.classes):
        raise ConfigError(
            f"The model knows {len(trained.classes)} classes, the data has {len(source.classes)}. Use data with the same classes."
        )
    evaluator = build_evaluator(config, task, source, trained.device, world)
    machine = config.machine
    network = Execution(
        trained.model, machine, trained.device, lambda: trained.device.autocast(machine.precision), frozen=True
    )
    start = now_s()
    try:
        score = evaluator.score(network, None, Observers(*watchers), lambda: None)
    finally:
        evaluator.close()
    seconds = now_s() - start
    return {
        **encode(world.broadcast_from_first(score.result)),
        "split": split,
        "written": [] if out is None or not world.first else _write_documents(score, out),
        "seconds": seconds,
        "images_per_s_total": score.samples / seconds,
        "compilation": network.spent.facts(),
        "procs": world.size,
        "data": config.recipe.data.source,
        "exact": max_eval_steps is None,
        "flip_tta": config.recipe.eval.flip_tta,
        "notes": list(trained.notes),
        "bad_images": [bad.path for bad in evaluator.bad.samples()],
        "averaged": trained.averaged,
        "weights": trained.origin,
        "step": trained.step,
        "threads": torch.get_num_threads(),
    }


def _write_documents(score: Score, out: Path) -> list[str]:
    out.mkdir(parents=True, exist_ok=True)
    documents = score.documents()
    for name, document in documents.items():
        write_json(out / f"{name}.json", document)
    return [str(out / f"{name}.json") for name in documents]
