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

_MOMENTUM = "momentum_buffer"
_Parameter = tuple[str, Tensor | None, Tensor | None]
"""A name, the momentum, and the fp32 master of a half-precision weight."""


@frozen
class _ForeignTraining:
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


def read_training(path: Path) -> _ForeignTraining:
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
            return _ForeignTraining(
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


def _nvidia(content: Mapping[str, Any], optimizer: Mapping[str, Any]) -> _ForeignTraining:
    best = float(content.get("best_prec1") or 0.0)
    # A placeholder for apex's class, with the attributes that were saved (`torch_file`).
    scale = getattr(optimizer.get("loss_scaler"), "cur_scale", None)
    return _ForeignTraining(
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


def resume_external(job: Job) -> Progress:
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
    parameters = _parameters(foreign, job.model)
    momentum, problem = 0, "its parameters are in no known order"
    if parameters is not None:
        own = dict(job.model.named_parameters())
        with torch.no_grad():
            for name, _, master in parameters:
                if master is not None:
                    own[name].copy_(master)
        momentum, problem = _load_momentum(job, parameters)
    if job.average is not None:
        # After the masters, which replace weights.
        job.average.load(job.model.state_dict())
    taken = [f"epoch {foreign.epochs}"]
    taken += [f"fp32 masters of {len(foreign.masters)} weights"] if parameters and foreign.masters else []
    taken += [f"momentum of {momentum} weights"] if momentum else []
    taken += [f"best top-1 {foreign.best:.2f} %"] if foreign.best is not None else []
    taken.append(describe_weights(path.name, report))
    job.notes = (
        *job.notes,
        f"resumed from {foreign.program}: {'; '.join(taken)}",
        *_left(foreign, job.config, problem),
    )
    return Progress(step=foreign.epochs * steps, last_eval_step=foreign.epochs * steps, best_value=foreign.best)


def _left(foreign: _ForeignTraining, config: Config, problem: str) -> Iterator[str]:
    """What was not taken over, and what decides instead."""
    if problem:
        yield f"momentum was not taken over ({problem}): it starts at zero"
    if foreign.loss_scale is not None:
        fp16 = config.machine.precision == "fp16"
        own = f"machine.loss_scale = {config.machine.loss_scale:g} is the first" if fp16 else "none is needed"
        yield f"their loss scale of {foreign.loss_scale:g} was not taken over: {own} ({config.machine.precision})"
    yield "learning rate, schedule, weight decay and the order of images are this recipe's, not the file's"


def _parameters(foreign: _ForeignTraining, model: nn.Module) -> list[_Parameter] | None:
    """The optimiser's parameters by our names, in its order; None where no order of these scripts agrees."""
    own, renamed = dict(model.named_parameters()), translate(foreign.state)[1].renamed
    # The file's names without wrappers, and ours, in the file's order.
    pairs = [(name, renamed.get(name, name)) for name in strip(foreign.state)]
    values = zip(pairs, foreign.state.values(), strict=True)
    half = {new for (_, new), value in values if value.dtype == torch.float16}
    listed = [(old, new) for old, new in pairs if new in own]
    # NVIDIA's groups: parameters with `bn` in their own name, then the others. Norms of projections are called
    # downsample.1 and belong to the others.
    norms, rest = ([new for old, new in listed if ("bn" in old) is norm] for norm in (True, False))
    groups = foreign.optimizer["param_groups"]
    sizes = [len(group["params"]) for group in groups]
    grouped = [norms, rest] if sizes == [len(norms), len(rest)] else [[new for _, new in listed]]
    if sizes != [len(names) for names in grouped]:
        return None
    # Positions count through all groups, not within one; a parameter that was never updated has no momentum.
    states = [foreign.optimizer["state"].get(index, {}) for group in groups for index in group["params"]]
    # apex of early 2019 put the masters of half-precision weights before the rest of a group.
    halves_first = [sorted(names, key=lambda n: n not in half) for names in grouped]
    for candidate in (grouped, halves_first):
        names = [name for group in candidate for name in group]
        halves = [name for name in names if name in half]
        masters = dict(zip(halves, foreign.masters, strict=False))
        parameters = [(name, s.get(_MOMENTUM), masters.get(name)) for name, s in zip(names, states, strict=True)]
        complete = len(foreign.masters) in (0, len(halves))
        if complete and all(_agrees(own[name], momentum, master) for name, momentum, master in parameters):
            return parameters
    return None


def _agrees(weight: Tensor, momentum: Tensor | None, master: Tensor | None) -> bool:
    """Whether momentum and master have the shape of the parameter, and the master its values."""
    if not all(tensor is None or tensor.shape == weight.shape for tensor in (momentum, master)):
        return False
    # The loaded weights are the masters rounded to half precision.
    return master is None or torch.allclose(master.half().float(), weight.detach().cpu(), atol=1e-3)


def _load_momentum(job: Job, parameters: Sequence[_Parameter]) -> tuple[int, str]:
    """Load momentum buffers; how many, and why none were."""
    if job.config.recipe.optim.name != "sgd":
        return 0, f"the recipe's optimiser is {job.config.recipe.optim.name}, the file's is SGD"
    buffers = {f"{name}/{_MOMENTUM}": buffer.float() for name, buffer, _ in parameters if buffer is not None}
    if not buffers:
        return 0, "the file has none"
    restore_optimizer(job.model, job.optimizer, buffers)
    return len(buffers), ""
