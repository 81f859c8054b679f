"""Resume from training checkpoints of NVIDIA's or Habana's code: their weights, momentum, epoch and best accuracy.

Their `checkpoint.pth.tar` or `checkpoint.pth` lists momentum by the position of a parameter, which depends on how the
script grouped parameters; every order that these scripts use is tried, and the one whose shapes agree is taken. What
the file has and Vernier does not take over is said. A run's own checkpoints are in `contents`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vernier.config import Config
from vernier.engine.starting_weights import describe_weights, weights_file
from vernier.engine.training.checkpoints.contents import restore_optimizer
from vernier.engine.training.setup import Job
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.models import weights
from vernier.models.naming import strip, translate
from vernier.models.torch_file import load_torch
from vernier.records.run import Progress
from vernier.references import command, given, use

MOMENTUM = "momentum_buffer"


@frozen
class ForeignTraining:
    """The training checkpoint of another program."""

    program: str
    state: Mapping[str, Tensor]
    epochs: int
    """Epochs completed."""
    optimizer: Mapping[str, Any]
    best: float | None = None
    loss_scale: float | None = None
    masters: tuple[Tensor, ...] = ()
    """FP16 only: the fp32 copies of the half-precision weights, in the optimiser's order."""


def read_training(path: Path) -> ForeignTraining:
    """A checkpoint of NVIDIA's main.py or of torchvision's or Habana's train.py. Raises ConfigError for other files."""
    if weights.is_safetensors(path):
        raise ConfigError(
            f"{given('resume', path)}: a safetensors file has weights and no optimizer or epoch. Start a new run with "
            f"{use('model.weights', path)}, or give the run directory."
        )
    content = load_torch(path).content
    if isinstance(content, Mapping) and isinstance(content.get("epoch"), int):
        optimizer = content.get("optimizer")
        # apex's FP16_Optimizer wraps the state of SGD, next to its loss scaler and fp32 masters.
        sgd = optimizer.get("optimizer_state_dict", optimizer) if isinstance(optimizer, Mapping) else None
        if "optimizer" in content and not _is_optimizer_state(sgd):
            raise ConfigError(
                f"{given('resume', path)}: its `optimizer` is not the state of a PyTorch optimizer (state, "
                f"param_groups). Start a new run with its weights: {use('model.weights', path)}."
            )
        if isinstance(optimizer, Mapping) and isinstance(content.get("state_dict"), Mapping):
            return _nvidia(content, optimizer)
        if isinstance(optimizer, Mapping) and isinstance(content.get("model"), Mapping):
            return ForeignTraining(
                program="Habana's or torchvision's train.py",
                state=content["model"],
                epochs=content["epoch"] + 1,  # the number of the epoch that has just been trained
                optimizer=optimizer,
            )
    keys = ", ".join(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
    raise ConfigError(
        f"{given('resume', path)}: not a checkpoint of NVIDIA's (epoch, state_dict, optimizer) or Habana's code "
        f"(epoch, model, optimizer); it has {keys[:200]}. Start a new run with its weights: "
        f"{use('model.weights', path)}."
    )


def _nvidia(content: Mapping[str, Any], optimizer: Mapping[str, Any]) -> ForeignTraining:
    best = float(content.get("best_prec1") or 0.0)
    # A placeholder for apex's class, with the attributes that were saved (`torch_file`).
    scale = getattr(optimizer.get("loss_scaler"), "cur_scale", None)
    return ForeignTraining(
        program="NVIDIA's main.py" + (" in fp16" if "optimizer_state_dict" in optimizer else ""),
        state=content["state_dict"],
        epochs=content["epoch"],  # NVIDIA's code counts the epochs that are done
        optimizer=optimizer.get("optimizer_state_dict", optimizer),
        best=best if best > 0 else None,
        loss_scale=float(scale) if isinstance(scale, int | float) else None,
        masters=tuple(tensor for group in optimizer.get("fp32_from_fp16", ()) for tensor in group),
    )


def _is_optimizer_state(tree: Any) -> bool:
    """Whether this is what an optimiser's `state_dict` returns."""
    if not isinstance(tree, Mapping) or not isinstance(tree.get("state"), Mapping):
        return False
    groups = tree.get("param_groups")
    return (
        isinstance(groups, list)
        and all(isinstance(group, Mapping) and isinstance(group.get("params"), list) for group in groups)
        and all(isinstance(values, Mapping) for values in tree["state"].values())
    )


def take_over(job: Job) -> Progress:
    """Load `model.checkpoint` into the job, and say in its notes what was taken over; how far the training is."""
    path = weights_file(job.config.recipe.model.checkpoint)
    foreign = read_training(path)
    steps = job.derived.steps_per_epoch
    if foreign.epochs * steps >= job.derived.stop_step:
        raise ConfigError(
            f"{given('resume', path)}: {foreign.epochs} epochs are done, and this run ends after "
            f"{job.derived.stop_step / steps:g}. Train for more ({use('schedule.epochs', slot='N')}), or evaluate the "
            f"file: {command('eval', 'FILE', model='NAME', data='PATH')}."
        )
    weights.refuse_not_finite(foreign.state, str(path))
    file = weights.FileWeights(state=dict(foreign.state), metadata={})
    report = weights.load_read(file, job.model)
    # After the weights are loaded: the order is recognized by masters that agree with them.
    order = _parameter_order(foreign, job.model)
    masters = 0 if order is None else _load_masters(foreign, order, job.model)
    momentum, problem = (
        (0, "its parameters are in no known order") if order is None else _load_momentum(job, foreign, order)
    )
    if job.average is not None:
        # After the masters, which replace weights.
        job.average.load(job.model.state_dict())
    taken = [f"epoch {foreign.epochs}"]
    taken += [f"fp32 masters of {masters} weights"] if masters else []
    taken += [f"momentum of {momentum} weights"] if momentum else []
    taken += [f"best top-1 {foreign.best:.2f} %"] if foreign.best is not None else []
    taken.append(describe_weights(path.name, report))
    job.notes = (
        *job.notes,
        f"resumed from {foreign.program}: {'; '.join(taken)}",
        *_left(foreign, job.config, problem),
    )
    return Progress(step=foreign.epochs * steps, last_eval_step=foreign.epochs * steps, best_value=foreign.best)


def _left(foreign: ForeignTraining, config: Config, problem: str) -> Iterator[str]:
    """What was not taken over, and what decides instead."""
    if problem:
        yield f"momentum was not taken over ({problem}): it starts at zero"
    if foreign.loss_scale is not None:
        fp16 = config.machine.precision == "fp16"
        own = f"machine.loss_scale = {config.machine.loss_scale:g} is the first" if fp16 else "none is needed"
        yield f"their loss scale of {foreign.loss_scale:g} was not taken over: {own} ({config.machine.precision})"
    yield "learning rate, schedule, weight decay and the order of images are this recipe's, not the file's"


def _parameter_order(foreign: ForeignTraining, model: nn.Module) -> list[str] | None:
    """Our names of the optimiser's parameters, in its order; None where no order of these scripts agrees."""
    own, half = dict(model.named_parameters()), _half_names(foreign)
    listed = [(old, new) for old, new in _names(foreign) if new in own]
    sizes = [len(group["params"]) for group in foreign.optimizer["param_groups"]]
    # NVIDIA's groups: parameters with `bn` in their own name, then the others. Norms of projections are called
    # downsample.1 and belong to the others.
    norms = [new for old, new in listed if "bn" in old]
    rest = [new for old, new in listed if "bn" not in old]
    grouped = [norms, rest] if sizes == [len(norms), len(rest)] else [[new for _, new in listed]]
    if sizes != [len(names) for names in grouped]:
        return None
    # apex of early 2019 put the masters of half-precision weights before the rest of a group.
    halves_first = [name for names in grouped for name in sorted(names, key=lambda n: n not in half)]
    candidates = ([name for names in grouped for name in names], halves_first)
    return next((names for names in candidates if _agrees(foreign, names, half, own)), None)


def _agrees(foreign: ForeignTraining, names: Sequence[str], half: set[str], own: Mapping[str, Tensor]) -> bool:
    """Whether momentum and masters have the shapes of the parameters, and masters their values."""
    buffers = _buffers(foreign)
    masters = [name for name in names if name in half]
    if foreign.masters and len(masters) != len(foreign.masters):
        return False
    return all(
        buffer is None or buffer.shape == own[name].shape for name, buffer in zip(names, buffers, strict=True)
    ) and all(
        # The loaded weights are the masters rounded to half precision.
        master.shape == own[name].shape and torch.allclose(master.half().float(), own[name].detach().cpu(), atol=1e-3)
        for name, master in zip(masters, foreign.masters, strict=False)
    )


def _buffers(foreign: ForeignTraining) -> list[Tensor | None]:
    """The momentum of each parameter in the optimiser's order; None for one that was never updated."""
    state = foreign.optimizer["state"]
    # Positions count through all groups, not within one.
    ids = [index for group in foreign.optimizer["param_groups"] for index in group["params"]]
    return [state.get(index, {}).get(MOMENTUM) for index in ids]


def _load_masters(foreign: ForeignTraining, order: Sequence[str], model: nn.Module) -> int:
    """Put the fp32 values in place of the half-precision ones."""
    own, half = dict(model.named_parameters()), _half_names(foreign)
    names = [name for name in order if name in half]
    with torch.no_grad():
        for name, master in zip(names, foreign.masters, strict=False):
            own[name].copy_(master)
    return len(foreign.masters)


def _names(foreign: ForeignTraining) -> list[tuple[str, str]]:
    """The file's names without wrappers, and ours, in the file's order."""
    renamed = translate(foreign.state)[1].renamed
    return [(name, renamed.get(name, name)) for name in strip(foreign.state)]


def _half_names(foreign: ForeignTraining) -> set[str]:
    """Our names of the weights that are in half precision."""
    values = zip(_names(foreign), foreign.state.values(), strict=True)
    return {new for (_, new), value in values if value.dtype == torch.float16}


def _load_momentum(job: Job, foreign: ForeignTraining, order: Sequence[str]) -> tuple[int, str]:
    """Load momentum buffers; how many, and why none were."""
    if job.config.recipe.optim.name != "sgd":
        return 0, f"the recipe's optimiser is {job.config.recipe.optim.name}, the file's is SGD"
    buffers = {
        f"{name}/{MOMENTUM}": b.float() for name, b in zip(order, _buffers(foreign), strict=True) if b is not None
    }
    if not buffers:
        return 0, "the file has none"
    restore_optimizer(job.model, job.optimizer, buffers)
    return len(buffers), ""
