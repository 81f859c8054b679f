"""What a checkpoint holds: tensors as safetensors, everything else as JSON. How it reaches the disk is the store's business."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from vernier.errors import ConfigError
from vernier.optim.ema import WeightAverage
from vernier.store import CheckpointDir, read_json, write_json

Tensors = dict[str, torch.Tensor]


@dataclass
class Progress:
    """Where a run stands. Together with the tensors, all there is to a run's state: every random choice is a function of it."""

    step: int = 0
    last_eval_step: int = 0
    best_step: int | None = None
    best_value: float | None = None
    result: dict[str, Any] | None = None
    reached_target: bool = False
    scaler: dict[str, Any] | None = None
    spent_s: dict[str, float] = field(default_factory=dict)


def _portable(tensors: Tensors) -> Tensors:
    return {name: t.detach().cpu().contiguous() for name, t in tensors.items()}


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
    """Put saved state back, in each parameter's own memory layout."""
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for full_name, value in tensors.items():
        name, _, key = full_name.rpartition("/")
        p = parameters[name]
        home = (
            torch.empty_like(p, dtype=value.dtype)
            if value.shape == p.shape
            else torch.empty_like(value, device=p.device)
        )
        optimizer.state[p][key] = home.copy_(value)


def fill_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage | None,
    state: dict[str, Any],
) -> None:
    """Write one checkpoint's files."""
    save_file(_portable(model.state_dict()), folder / "model.safetensors", metadata={"format": "vernier"})
    save_file(_portable(optimizer_tensors(model, optimizer)), folder / "optimizer.safetensors")
    if average is not None:
        save_file(_portable(average.tensors), folder / "ema.safetensors", metadata={"format": "vernier"})
    write_json(folder / "state.json", state)


def restore(
    found: CheckpointDir, model: nn.Module, optimizer: torch.optim.Optimizer, average: WeightAverage | None
) -> Progress:
    """Load a checkpoint into live objects."""
    model.load_state_dict(load_file(found.path / "model.safetensors"))
    restore_optimizer(model, optimizer, load_file(found.path / "optimizer.safetensors"))
    if average is not None:
        average.load(load_file(found.path / "ema.safetensors"))
    return Progress(**read_json(found.path / "state.json")["progress"])


def weights_for_use(found: CheckpointDir, *, averaged: bool | None) -> tuple[Tensors, bool]:
    """The weights to evaluate or export, and whether they are the averaged ones. None: averaged where they exist."""
    averaged_file = found.path / "ema.safetensors"
    if averaged and not averaged_file.exists():
        raise ConfigError(f"{found.path} has no averaged weights: the run was trained without ema.decay. Drop --ema.")
    use_average = averaged_file.exists() if averaged is None else averaged
    path = averaged_file if use_average else found.path / "model.safetensors"
    try:
        return load_file(path), use_average
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from None


def all_finite(model: nn.Module) -> bool:
    """Whether every weight and statistic is a finite number."""
    floats = [t for t in model.state_dict().values() if t.is_floating_point()]
    norms = torch.stack([n.float() for n in torch._foreach_norm(floats)])
    return bool(torch.isfinite(norms).all())
