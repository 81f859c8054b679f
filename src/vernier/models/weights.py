"""Weights in and out: files of weights, and whether they fit a network.

Reads safetensors and torch files; no code in a file is ever run (torch's `weights_only` unpickler, always).
`adapt` fits anybody's weights to one network, or says in one error why it does not; `stride_variant` tells v1 from v1.5,
which have the same names and shapes, by what they do to photographs. Other people's names for the same layers are in
`naming`, the networks in `resnet` and `ssd`; run checkpoints belong to `engine`.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vernier.errors import ConfigError
from vernier.models.catalogue import Options, describe, info, names
from vernier.models.naming import Report, State, identify, listed, strip, to_torchvision, translate, translate_detector
from vernier.models.resnet import BlurConv2d, Bottleneck, ResNet, Trunk
from vernier.models.ssd import Ssd

__all__ = ["Report", "State", "identify", "to_torchvision", "translate"]  # of `naming`, for users of this module

_PLAIN_CONTAINERS = ("state_dict", "model_state_dict", "model")
_EMA_CONTAINERS = ("state_dict_ema", "ema_state_dict", "model_ema")
_UNNEEDED = ("num_batches_tracked",)  # read by no network here: batch norm has a fixed momentum
_HEAD, _DETECTOR_HEAD = "fc.", "conf."  # the layers that name classes
_NOT_IN_BACKBONE = ("layer4.", "fc.")


# ---- files ----------------------------------------------------------------------------------------------------------


def read(path: str | Path, *, ema: bool = False) -> State:
    """The tensors of a safetensors or torch file, on the CPU, without wrapper prefixes such as `module.`.

    Training checkpoints are opened up to their model's weights, or with `ema` to the averaged ones.
    ConfigError if the file is neither kind, holds code, or has no such weights.
    """
    path = Path(path)
    if not _is_safetensors(path):
        return strip(_unwrap(_load_torch(path), ema, path))
    if ema:
        raise ConfigError(f"{path} is a safetensors file with one set of weights; it has no averaged ones to choose.")
    try:
        return strip(load_file(path))
    except SafetensorError as error:
        raise ConfigError(f"{path} is not a readable safetensors file: {error}.") from error


def read_metadata(path: str | Path) -> dict[str, str]:
    """What a safetensors file says about itself; empty for any other file."""
    if not _is_safetensors(Path(path)):
        return {}
    with safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


def save_safetensors(state: Mapping[str, Tensor], path: str | Path, metadata: Mapping[str, str]) -> None:
    """Write `state` under its final name only when it is complete."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.partial")
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}, partial, dict(metadata))
    partial.replace(path)


def save_torch(state: Mapping[str, Tensor], path: str | Path) -> None:
    """A plain state dict as torch files have it, under its final name only when it is complete."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.partial")
    torch.save(dict(state), partial)
    partial.replace(path)


def _is_safetensors(path: Path) -> bool:
    """By content, since people rename files: an 8-byte length and then a JSON object."""
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


def _load_torch(path: Path) -> Any:
    # Training scripts keep their arguments beside the weights; a Namespace only holds values.
    with path.open("rb") as file, torch.serialization.safe_globals([argparse.Namespace]):
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except OSError:
            raise
        except Exception as error:  # a damaged pickle raises whatever its bytes happen to spell
            code = re.search(r"GLOBAL ([\w.]+)", str(error))
            raise ConfigError(_unreadable(path, code[1] if code else None)) from error


def _unreadable(path: Path, code: str | None) -> str:
    if code is None:
        return f"Cannot read weights from {path}: neither safetensors nor a torch file of plain tensors."
    return (
        f"Cannot read weights from {path}: it refers to {code}, and Vernier runs no code from a file. If you trust it, "
        "load it with the program that wrote it and save its state_dict alone, best as safetensors."
    )


def _unwrap(loaded: Any, ema: bool, path: Path) -> State:
    if not isinstance(loaded, Mapping):
        raise ConfigError(f"{path} holds a {type(loaded).__name__}, not named weights.")
    for container in _EMA_CONTAINERS if ema else _PLAIN_CONTAINERS:
        if isinstance(loaded.get(container), Mapping):
            return _unwrap(loaded[container], False, path)
    tensors = {str(name): value for name, value in loaded.items() if isinstance(value, Tensor)}
    if ema or not tensors:
        wanted = "averaged weights" if ema else "weights"
        raise ConfigError(f"{path} has no {wanted}; it has {listed(str(name) for name in loaded)}.")
    return tensors


# ---- fitting --------------------------------------------------------------------------------------------------------


def load(
    path: str | Path,
    model: nn.Module,
    *,
    ema: bool = False,
    reset_head: bool = False,
    optional: Sequence[str] = (),
    images: Tensor | None = None,
) -> Report:
    """Read a file, adapt it and load it into `model`; the arguments are those of `read` and `adapt`."""
    state, report = adapt(
        read(path, ema=ema),
        model,
        reset_head=reset_head,
        optional=optional,
        images=images,
        metadata=read_metadata(path),
    )
    model.load_state_dict(state)
    return report


def load_backbone(path: str | Path, model: Ssd, *, ema: bool = False, images: Tensor | None = None) -> Report:
    """Read a ResNet's weights, or a detector's, and load what belongs there into the backbone of `model`."""
    return load(path, model.backbone, ema=ema, optional=_NOT_IN_BACKBONE, images=images)


def adapt(
    state: Mapping[str, Tensor],
    model: nn.Module,
    *,
    reset_head: bool = False,
    optional: Sequence[str] = (),
    images: Tensor | None = None,
    metadata: Mapping[str, str] | None = None,
) -> tuple[State, Report]:
    """A complete state for `model`, in its dtypes, from anybody's weights; the model is not changed.

    With `reset_head` the layers that name classes keep the model's own values. Names that start with one of `optional`
    may be missing or left over (a detector's backbone passes `layer4.` and `fc.`). Where v1 and v1.5 can be confused, `images` (as
    `stride_variant` wants them) and a file's `metadata` are held against the model.
    ConfigError says what does not fit, and which catalogue model the weights look like.
    """
    theirs, report = (translate_detector if isinstance(model, Ssd) else translate)(state)
    ours = model.state_dict()
    _check_blur(report, model)
    notes = _check_stride(theirs, model, images, metadata or {})
    if not reset_head:
        _check_classes(theirs, ours, model)
    skipped = (_head_of(model),) if reset_head else ()
    free = (*optional, *skipped)
    fitted, missing, problems = _fit(theirs, ours, free, skipped)
    left_over = [name for name in theirs if name not in ours]
    problems += [f"{name} is not in the model" for name in left_over if not name.startswith(free)]
    if problems:
        raise ConfigError(_misfit(problems, theirs, model))
    reset = [name for name in theirs if name in ours and name.startswith(skipped)]
    report = dataclasses.replace(
        report, dropped=(*report.dropped, *left_over, *reset), missing=tuple(missing), notes=tuple(notes)
    )
    return fitted, report


def _fit(
    theirs: State, ours: State, free: tuple[str, ...], skipped: tuple[str, ...]
) -> tuple[State, list[str], list[str]]:
    """(state, names that kept our value, problems)."""
    fitted, missing, problems = {}, [], []
    for name, own in ours.items():
        given = None if name.startswith(skipped) else theirs.get(name)
        if given is None:
            fitted[name] = own
            if name.startswith(free):
                missing.append(name)
            elif not name.endswith(_UNNEEDED):
                problems.append(f"{name} is missing")
            continue
        if own.dim() == 2 and given.shape == (*own.shape, 1, 1):
            given = given.flatten(1)  # a 1x1 convolution on one pixel is a linear layer: both forms of SE are about
        if given.shape != own.shape:
            problems.append(f"{name} is {_shape(given)}, the model has {_shape(own)}")
        fitted[name] = given.to(own.dtype)
    return fitted, missing, problems


def _head_of(model: nn.Module) -> str:
    return _DETECTOR_HEAD if isinstance(model, Ssd) else _HEAD


def _check_classes(theirs: State, ours: State, model: nn.Module) -> None:
    detector = isinstance(model, Ssd)
    name, shapes = ("conf.0.weight", len(model.levels[0].shapes)) if isinstance(model, Ssd) else ("fc.weight", 1)
    given, own = theirs.get(name), ours.get(name)
    if given is None or own is None or given.shape[1:] != own.shape[1:] or len(given) == len(own):
        return
    classes, what = len(given) // shapes, "classes, the background among them," if detector else "classes"
    raise ConfigError(
        f"The weights have {classes} {what} and the model has {len(own) // shapes}. Give --reset-head to keep the rest "
        f"and start a new classifier, or set model.num_classes to {classes}."
    )


def _check_blur(report: Report, model: nn.Module) -> None:
    trained_with_blur = report.source == "ffcv-blurpool"
    if trained_with_blur and not any(isinstance(module, BlurConv2d) for module in model.modules()):
        raise ConfigError("The weights were trained with blurpool. Build the model with blurpool=True.")


def _misfit(problems: Sequence[str], theirs: State, model: nn.Module) -> str:
    guess = identify(theirs)
    looks = f" They look like {guess}." if guess else ""
    return f"The weights do not fit {_name_of(model)}: {listed(problems, '; ')}.{looks}"


def _name_of(model: nn.Module) -> str:
    if not isinstance(model, Trunk | Ssd):
        return type(model).__name__
    spec = model.spec if isinstance(model, Ssd) else None
    same = (e for e in describe() if e.arch == model.arch and spec in (None, e.ssd))
    name = next((entry.name for entry in same), f"this {type(model).__name__}")
    return name if isinstance(model, ResNet | Ssd) else f"the backbone of {name}"


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a single number"


# ---- v1 or v1.5 -----------------------------------------------------------------------------------------------------

MIN_PHOTOGRAPHS = 8
"""Fewer photographs than this do not average out what happens to be on them."""
# An ImageNet ResNet-50 v1 on 200 draws of 8 from 100 COCO photographs at 224 px: positions -0.22 to 0.29. The same
# weights with the statistics of a v1.5 pass over 150 other photographs, for want of a v1.5 file: 0.78 to 1.12.
# Strangeness over six draws 0.005 to 0.018; of white and 1/f noise 0.22 and more.
_UNCLEAR = (0.4, 0.6)
_STRANGE = 0.12


@dataclass(frozen=True, kw_only=True)
class StrideCheck:
    """Which stride placement the batch-norm statistics stored with the weights belong to."""

    variant: Literal["v1", "v1.5", "unclear"]
    position: float
    """Where the stored statistics lie between what v1 (0) and v1.5 (1) make of the photographs."""
    strangeness: float
    """How far the nearer variant still is from what is stored (nats a channel): large for pictures unlike the training
    data, or scaled otherwise, which decide nothing."""


def stride_variant(state: Mapping[str, Tensor], images: Tensor) -> StrideCheck:
    """Tell a bottleneck network's v1 weights from v1.5, given photographs prepared as for evaluation.

    `images` is [N >= 8, channels, H, W], normalised, near the training resolution. The first strided block is run
    both ways; its batch norms remember the means and variances of training, which only the right way reproduces.
    """
    if len(images) < MIN_PHOTOGRAPHS:
        raise ConfigError(f"Telling v1 from v1.5 takes at least {MIN_PHOTOGRAPHS} photographs, not {len(images)}.")
    state, _ = translate(state)
    net = _first_strided_block(state)
    block = net.get_submodule("layer2.0")
    assert isinstance(block, Bottleneck)
    with torch.no_grad():
        features = net.stages[0](net.maxpool(net.relu(net.bn1(net.conv1(images)))))
        v1 = _deviations(block, features, (2, 2), (1, 1))
        v15 = _deviations(block, features, (1, 1), (2, 2))
    return _verdict(v1, v15)


def _verdict(v1: Tensor, v15: Tensor) -> StrideCheck:
    """Project the stored statistics (the origin) on the line from one variant to the other.

    The two ways differ in a direction that has little to do with what the pictures show, so the projection is steadier
    than comparing distances.
    """
    step = v15 - v1
    position = float(-(v1 * step).sum() / (step * step).sum())
    strangeness = min(_divergence(v1), _divergence(v15))
    low, high = _UNCLEAR
    variant: Literal["v1", "v1.5", "unclear"] = "v1" if position < low else "v1.5" if position > high else "unclear"
    return StrideCheck(
        variant="unclear" if strangeness > _STRANGE else variant, position=position, strangeness=strangeness
    )


def _divergence(deviations: Tensor) -> float:
    """Median over channels of the Kullback-Leibler divergence between the stored normal distribution and this one."""
    mean, log_std = deviations
    return float((((2 * log_std).exp() + mean**2 - 1) / 2 - log_std).median())


def _first_strided_block(state: State) -> ResNet:
    """The stem, the first stage and the first block of the second, with these weights: all the check needs."""
    name = identify(state)
    arch = info(name).arch if name else None
    if arch is None or arch.block != "bottleneck":
        raise ConfigError(f"v1 and v1.5 are forms of bottleneck networks; these weights look like {name or 'neither'}.")
    stem = state["conv1.weight"]
    options = Options(
        num_classes=1,
        in_channels=stem.shape[1],
        width=stem.shape[0],
        stem="imagenet" if stem.shape[-1] == 7 else "small",
    )
    net = ResNet(dataclasses.replace(arch, blocks=(arch.blocks[0], 1)), options).eval()
    wanted = net.state_dict()
    net.load_state_dict({key: state[key] for key in wanted if key in state and not key.startswith(_HEAD)}, strict=False)
    return net


def _deviations(block: Bottleneck, x: Tensor, first: tuple[int, int], second: tuple[int, int]) -> Tensor:
    """[2, channels]: mean and log deviation of what reaches bn2 and bn3, relative to what they remember."""
    block.conv1.stride, block.conv2.stride = first, second
    at_bn2 = block.conv2(block.relu(block.bn1(block.conv1(x))))
    at_bn3 = block.conv3(block.relu(block.bn2(at_bn2)))
    return torch.cat([_relative(at_bn2, block.bn2), _relative(at_bn3, block.bn3)], dim=1)


def _relative(x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
    remembered = norm.running_var + norm.eps
    return torch.stack([(mean - norm.running_mean) / remembered.sqrt(), ((variance + norm.eps) / remembered).log() / 2])


def _check_stride(theirs: State, model: nn.Module, images: Tensor | None, metadata: Mapping[str, str]) -> list[str]:
    """Notes for the report; ConfigError if the photographs or the file itself contradict the model."""
    if not isinstance(model, Trunk | Ssd) or model.arch.block != "bottleneck" or model.arch.groups > 1:
        return []
    own = "v1.5" if model.arch.stride_in == "3x3" else "v1"
    declared = _declared(metadata)
    if declared not in (None, own):
        raise ConfigError(
            f"The file says its weights are {declared}, and {_name_of(model)} is {own}: the same shapes, another "
            f"stride. Use {_sibling(model)}."
        )
    if images is None:
        return [f"taken to be {own}: names and shapes do not tell v1 from v1.5"] if declared is None else []
    check = stride_variant(theirs, images)
    if check.variant not in ("unclear", own):
        raise ConfigError(
            f"The weights are {check.variant} and {_name_of(model)} is {own}: their batch-norm statistics fit the "
            f"other stride ({check.position:.2f} between v1 at 0 and v1.5 at 1). Use {_sibling(model)}."
        )
    return [f"photographs say {check.variant} ({check.position:.2f} between v1 at 0 and v1.5 at 1)"]


def _declared(metadata: Mapping[str, str]) -> str | None:
    """v1 or v1.5, where a file's metadata names a catalogue model or says so in words."""
    for key in ("model", "arch"):
        text = metadata.get(key, "")
        if text in names() and info(text).arch.block == "bottleneck":
            return "v1.5" if info(text).arch.stride_in == "3x3" else "v1"
        if said := re.search(r"\bv1(?:[._]5)?\b", text, re.IGNORECASE):
            return "v1" if len(said[0]) == 2 else "v1.5"
    return None


def _sibling(model: Trunk | Ssd) -> str:
    other: Literal["3x3", "1x1"] = "1x1" if model.arch.stride_in == "3x3" else "3x3"
    wanted = dataclasses.replace(model.arch, stride_in=other)
    return next((entry.name for entry in describe() if entry.arch == wanted), "the other variant")
