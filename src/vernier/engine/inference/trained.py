"""A trained model, ready to be used: from a run directory, a bare checkpoint, or anybody's weights file.

Which files a checkpoint has is `training.checkpoint`'s business, which names a weights file uses `models.weights`'.
"""

from collections.abc import Callable
from pathlib import Path

from torch import nn

from vernier.config import Config, Data, Model, Recipe, override
from vernier.devices import Device
from vernier.engine.build import build_model, build_model_for_data, local_torch_device, prepare_device
from vernier.engine.starting_weights import describe_weights, load_weights, photographs_for_check
from vernier.engine.training.checkpoint import config_of, read_state, weights_for_use
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.models import info, weights
from vernier.store import CheckpointDir, RunDir, open_checkpoint
from vernier.tasks import task_of


@frozen
class Trained:
    """A model with its weights, the configuration and classes it was trained with, and where the weights are from."""

    model: nn.Module
    config: Config
    classes: tuple[str, ...]
    device: Device
    origin: str
    step: int | None
    averaged: bool
    channels: int
    notes: tuple[str, ...] = ()
    named: bool = True
    """False: `classes` are only the numbers of the outputs, because the weights came without names."""
    prepared: str = ""
    """How images are prepared for the network, and who says so, in words."""
    takes_pixels: bool = False
    """The network takes uint8 pixels and normalises them itself."""
    own_data: str = ""
    """The data it was trained on, as `--data` named it; empty where that is not known."""


Change = Callable[[Config], Config]


def load_trained(
    path: Path, *, which: str = "latest", averaged: bool | None = None, changed: Change | None = None
) -> Trained:
    """The model of a run (its latest or best checkpoint, or the one of a given step) or of a checkpoint directory.

    `changed` may alter its settings, except the model's.
    """
    return load_checkpoint(find_checkpoint(path, which), averaged=averaged, changed=changed)


def load_checkpoint(checkpoint: CheckpointDir, *, averaged: bool | None, changed: Change | None) -> Trained:
    """The model of a checkpoint whose hashes were checked."""
    state = read_state(checkpoint)
    config = override(config_of(state), "machine.procs", 1)
    own_data = config.recipe.data.source
    if changed is not None:
        before, config = config.recipe.model, changed(config)
        if config.recipe.model != before:
            raise ConfigError("A trained model cannot be changed by --set model.*; data, eval and machine can.")
    device, _ = prepare_device(config)
    outputs = task_of(config.recipe).outputs(len(state.classes))
    model = build_model(config, outputs, state.channels, local_torch_device(device))
    tensors, used_average = weights_for_use(checkpoint, averaged=averaged)
    model.load_state_dict(tensors)
    return Trained(
        model=model,
        config=config,
        classes=state.classes,
        device=device,
        origin=str(checkpoint.path),
        step=checkpoint.step,
        averaged=used_average,
        channels=state.channels,
        own_data=own_data,
    )


def foreign_config(model: str) -> Config:
    """The default settings to evaluate anybody's weights of a catalogue model with.

    The model's own resolution, and ImageNet's mean and standard deviation, as for nearly all published weights.
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
    torch_device = local_torch_device(device)
    model = build_model_for_data(config, task, source, torch_device)
    if path.is_file():
        _check_classes(path, len(source.classes), config, bool(averaged))
    photographs = photographs_for_check(model, source, config.recipe.data, torch_device)
    report = load_weights(model, str(path), ema=bool(averaged), photographs=photographs)
    return Trained(
        model=model,
        config=config,
        classes=source.classes,
        device=device,
        origin=str(path),
        step=None,
        averaged=bool(averaged),
        channels=source.channels,
        notes=(describe_weights(str(path), report),),
    )


def _check_classes(path: Path, classes: int, config: Config, averaged: bool) -> None:
    state, _ = weights.translate(weights.read(path, ema=averaged))
    head, unused = state.get("fc.weight"), config.recipe.model.unused_outputs
    if head is not None and len(head) != classes + unused:
        extra = f" and model.unused_outputs = {unused}" if unused else ""
        raise ConfigError(
            f"The weights have {len(head)} classes, the data has {classes}{extra}. Use data with the same classes."
        )


def find_checkpoint(path: Path, which: str) -> CheckpointDir:
    """A checkpoint directory, or the `which` checkpoint of a run; its hashes are checked."""
    if (path / "state.json").is_file():
        return open_checkpoint(path)
    run = RunDir.open(path)
    if which == "latest":
        checkpoint = run.checkpoints.newest()  # checks the hashes itself
    elif which == "best":
        checkpoint = run.checkpoints.best()
    else:
        checkpoint = next((c for c in run.checkpoints.committed() if str(c.step) == which), None)
    if checkpoint is None:
        steps = ", ".join(str(c.step) for c in run.checkpoints.committed()) or "none"
        raise ConfigError(f"{path} has no {which} checkpoint. Checkpoints by step: {steps}.")
    return checkpoint if which == "latest" else open_checkpoint(checkpoint.path)


def checkpoint_steps(path: Path) -> list[str]:
    """The steps at which a run has checkpoints, in order."""
    steps = [str(c.step) for c in RunDir.open(path).checkpoints.committed()]
    if not steps:
        raise ConfigError(f"{path} has no checkpoint yet.")
    return steps
