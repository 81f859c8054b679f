"""What a checkpoint holds: tensors as safetensors, and state.json (`records.run`); which ones a run keeps.

That a checkpoint appears on disk whole or not at all is decided in `store`; `writer` writes one beside training.
"""

import copy
import errno
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from vernier import torch_private
from vernier.config import Checkpoint, Config, config_from_tree, digest, to_dict
from vernier.config.migrations import SCHEMAS
from vernier.data.sources import Source
from vernier.errors import ConfigError
from vernier.optim.ema import WeightAverage
from vernier.records.codec import DamagedRecord, decode, encode
from vernier.records.run import CheckpointState, Progress
from vernier.references import given
from vernier.store import CheckpointDir, read_checkpoint_state, usual_mode, write_json
from vernier.tasks.base import Task

Tensors = dict[str, torch.Tensor]
TensorFiles = dict[str, Tensors]
"""The tensors of each .safetensors file of a checkpoint."""


# -------------------------------------------------------------------------------------------------------------- state


def checkpoint_state(config: Config, task: Task, source: Source, progress: Progress) -> CheckpointState:
    """The state.json of a run on its training data."""
    return CheckpointState(
        step=progress.step,
        progress=copy.deepcopy(progress),  # it is written while training goes on
        classes=tuple(source.classes),
        channels=source.channels,
        data_fingerprint=source.fingerprint(),
        recipe_digest=digest(config.recipe),
        config=to_dict(config),
        category_ids=task.category_ids(source),
    )


def read_state(checkpoint: CheckpointDir) -> CheckpointState:
    """A checkpoint's state.json. Raises ConfigError when it cannot be read."""
    try:
        return decode(CheckpointState, read_checkpoint_state(checkpoint))
    except (OSError, DamagedRecord) as error:
        path = checkpoint.path / "state.json"
        raise ConfigError(f"Cannot read {path}: {error}. Use another checkpoint of the same run.") from None


def config_of(state: CheckpointState) -> Config:
    """The configuration a checkpoint was trained with."""
    return config_from_tree(state.config)


def steps_to_keep(steps: Sequence[int], policy: Checkpoint, steps_per_epoch: int) -> set[int]:
    """Which checkpoints stay when a new one was written: the last ones, and those at every so many epochs."""
    every = round(policy.keep_every_epochs * steps_per_epoch)
    return {*steps[-policy.keep_last :], *(step for step in steps if every > 0 and step % every == 0)}


# ------------------------------------------------------------------------------------------------------------ tensors


def _save(tensors: Tensors, path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors of the CPU. Raises OSError, also where safetensors has an error of its own."""
    try:
        with usual_mode(path):
            save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        number = int(code[1]) if code else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensors:
    """`parameter name/state name` -> tensor, so that the file does not depend on the order of groups."""
    names = {id(p): n for n, p in model.named_parameters()}
    return {
        f"{names[id(p)]}/{key}": value
        for p, state in optimizer.state.items()
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    """Load saved optimiser state, each tensor in its parameter's memory layout and on its device.

    Step counters are on the CPU, where reading one does not wait for the device, unless a fused kernel reads them.
    """
    parameters = dict(model.named_parameters())
    fused = {id(p) for group in optimizer.param_groups if group.get("fused") for p in group["params"]}
    optimizer.state.clear()
    for full_name, value in tensors.items():
        name, _, key = full_name.rpartition("/")
        p = parameters[name]
        if key != "step" and value.shape == p.shape:
            optimizer.state[p][key] = torch.empty_like(p, dtype=value.dtype).copy_(value)
        else:
            optimizer.state[p][key] = value.to("cpu" if key == "step" and id(p) not in fused else p.device, copy=True)


def tensor_files(model: nn.Module, optimizer: torch.optim.Optimizer, average: WeightAverage | None) -> TensorFiles:
    """The tensors of a checkpoint by file, as they are: training goes on changing them."""
    files = {"model.safetensors": model.state_dict(), "optimizer.safetensors": optimizer_tensors(model, optimizer)}
    if average is not None:
        files["ema.safetensors"] = average.tensors
    return files


def copy_to_host(files: Mapping[str, Tensors], buffers: TensorFiles | None = None) -> TensorFiles:
    """A copy on the CPU, contiguous whatever the layout; into the buffers of an earlier copy where they fit."""
    return {
        file: {name: _copied(tensor, ((buffers or {}).get(file) or {}).get(name)) for name, tensor in tensors.items()}
        for file, tensors in files.items()
    }


def _copied(tensor: torch.Tensor, buffer: torch.Tensor | None) -> torch.Tensor:
    if buffer is None or (buffer.shape, buffer.dtype) != (tensor.shape, tensor.dtype):
        buffer = torch.empty(tensor.shape, dtype=tensor.dtype)
    return buffer.copy_(tensor.detach())


def fill_checkpoint(folder: Path, files: TensorFiles, state: CheckpointState) -> None:
    """Write one checkpoint's files from tensors of the CPU."""
    for name, tensors in files.items():
        _save(tensors, folder / name, {"format": "vernier"} if name != "optimizer.safetensors" else None)
    write_state(folder, state)


def write_state(folder: Path, state: CheckpointState) -> None:
    """Write state.json, what a checkpoint holds beside tensors."""
    write_json(folder / "state.json", {"schema": SCHEMAS["checkpoint"], **encode(state)})


def restore(
    checkpoint: CheckpointDir, model: nn.Module, optimizer: torch.optim.Optimizer, average: WeightAverage | None
) -> None:
    """Load a checkpoint's tensors into live objects."""
    model.load_state_dict(load_file(checkpoint.path / "model.safetensors"))
    restore_optimizer(model, optimizer, load_file(checkpoint.path / "optimizer.safetensors"))
    if average is not None:
        average.load(load_file(checkpoint.path / "ema.safetensors"))


def weights_for_use(checkpoint: CheckpointDir, *, averaged: bool | None) -> tuple[Tensors, bool]:
    """The weights to evaluate or export, and whether they are the averaged ones. None: averaged where they exist."""
    averaged_file = checkpoint.path / "ema.safetensors"
    if averaged and not averaged_file.exists():
        raise ConfigError(
            f"{checkpoint.path} has no averaged weights: the run was trained without ema.decay. Omit "
            f"{given('ema', True)}."
        )
    use_average = averaged_file.exists() if averaged is None else averaged
    path = averaged_file if use_average else checkpoint.path / "model.safetensors"
    try:
        return load_file(path), use_average
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from None


def all_finite(model: nn.Module) -> bool:
    """Whether every weight and statistic is a finite number."""
    floats = [t for t in model.state_dict().values() if t.is_floating_point()]
    norms = torch_private.foreach_norm(floats)
    return bool(torch.stack([norm.float() for norm in norms]).isfinite().all())
