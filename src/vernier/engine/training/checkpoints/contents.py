"""What a checkpoint holds: tensors as safetensors, and state.json (`records.run`).

`writer` writes one beside training; that it appears on disk whole or not at all is decided in `store`.
"""

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from vernier import torch_private
from vernier.errors import ConfigError, RunFailed
from vernier.optim.ema import WeightAverage
from vernier.records.codec import DamagedRecord, decode
from vernier.records.run import CheckpointState
from vernier.references import given
from vernier.store import CheckpointDir

Tensors = dict[str, torch.Tensor]
TensorFiles = dict[str, Tensors]
"""The tensors of each .safetensors file of a checkpoint."""
_NUMBER = "#"
"""Ends the name of state that is a number of Python, not a tensor."""


# -------------------------------------------------------------------------------------------------------------- state


def read_state(checkpoint: CheckpointDir) -> CheckpointState:
    """A checkpoint's state.json. Raises ConfigError when it cannot be read."""
    try:
        return decode(CheckpointState, checkpoint.read_state())
    except (OSError, DamagedRecord) as error:
        path = checkpoint.path / "state.json"
        raise ConfigError(f"Cannot read {path}: {error}. Use another checkpoint of the same run.") from None


# ------------------------------------------------------------------------------------------------------------ tensors


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensors:
    """`parameter name/state name` -> tensor, so that the file does not depend on the order of groups."""
    names = {id(p): n for n, p in model.named_parameters()}
    tensors: Tensors = {}
    for p, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, int | float):  # optimizers of users count steps so
                kind = torch.float64 if isinstance(value, float) else None
                key, value = key + _NUMBER, torch.tensor(value, dtype=kind)
            if isinstance(value, torch.Tensor):
                tensors[f"{names[id(p)]}/{key}"] = value
            elif value is not None:
                raise RunFailed(
                    f"The optimizer keeps {type(value).__name__} as {key!r} in its state, which a checkpoint cannot "
                    "hold: it must keep tensors and numbers."
                )
    return tensors


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
        if key.endswith(_NUMBER):
            optimizer.state[p][key.removesuffix(_NUMBER)] = value.item()
        elif key != "step" and value.shape == p.shape:
            optimizer.state[p][key] = torch.empty_like(p, dtype=value.dtype).copy_(value)
        else:
            optimizer.state[p][key] = value.to("cpu" if key == "step" and id(p) not in fused else p.device, copy=True)


def tensor_files(model: nn.Module, optimizer: torch.optim.Optimizer, average: WeightAverage | None) -> TensorFiles:
    """The tensors of a checkpoint by file, as they are: training goes on changing them."""
    files = {"model.safetensors": model.state_dict(), "optimizer.safetensors": _optimizer_tensors(model, optimizer)}
    if average is not None:
        files["ema.safetensors"] = average.tensors
    return files


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
