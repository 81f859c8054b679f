"""Weights files: reading and writing them, and fitting weights to a model.

Reads safetensors, torch files (`torch_file`) and formats that plug in as entry points of `vernier.weight_formats`, such
as TensorFlow checkpoints; code in a file is never run.
`adapt` fits weights of any origin to one model, or raises one error with the reasons why they do not fit. Names of
layers in other code bases are in `naming`; run checkpoints belong to `engine.training`.
"""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.plugins import load_group
from vernier.references import given, use
from vernier.store import replaced_atomically, usual_mode

from .catalogue import info, names
from .contract import BACKBONE, Layout, layout_of, name_of
from .naming import (
    UNNEEDED,
    Report,
    State,
    common_prefix,
    identify,
    join_some,
    keep_names,
    same_values,
    strip,
    translate,
)
from .torch_file import load_torch

__all__ = ["Report", "State", "identify", "keep_names", "translate"]  # of `naming`, for users of this module

# Keys of training checkpoints that hold the weights, in order of preference.
_PLAIN_CONTAINERS = ("state_dict", "model_state_dict", "model", "net", "network", "weights", "params")
_AVERAGED_CONTAINERS = ("state_dict_ema", "ema_state_dict", "model_ema", "params_ema", "ema")
_METADATA = "vernier"  # attribute of the state dict in a torch file; `load_state_dict` ignores it

_FORMATS = "vernier.weight_formats"


# ---- files ----------------------------------------------------------------------------------------------------------


@frozen
class FileWeights:
    """The tensors of a weights file by name, the file's metadata, and whether they are averaged ones."""

    state: State
    metadata: dict[str, str]
    averaged: bool = False
    notes: tuple[str, ...] = ()


def read_file(path: str | Path, *, ema: bool | None = None) -> FileWeights:
    """Read a safetensors or torch file to the CPU; names come without wrapper prefixes such as `module.`.

    From training checkpoints it takes the averaged weights where there are any, the others with `ema=False`; the notes
    say so. Raises ConfigError if the file is neither kind, holds code, or has no such weights.
    """
    path = Path(path)
    averaged, metadata = False, dict[str, str]()
    notes: tuple[str, ...] = ()
    # First, since a TensorFlow checkpoint is named by the start of its file names, which is no file to open.
    if (plugged := find_format(path)) is not None:
        form, file_or_prefix = plugged
        state, notes = form.read(file_or_prefix), (f"{form.about} {file_or_prefix.name}",)
        metadata = {"padding": form.padding}
    elif not is_safetensors(path):
        file = load_torch(path)
        state, averaged, notes = _unwrap(file.content, ema, path)
        notes = (*notes, *file.notes)
        metadata = _texts(getattr(file.content, _METADATA, None))
    else:
        if ema:
            raise ConfigError(
                f"{path} is a safetensors file with one set of weights and no averaged ones. Omit {given('ema', True)}."
            )
        try:
            state, metadata = load_file(path), read_metadata(path)
        except SafetensorError as error:
            raise ConfigError(f"{path} is not a readable safetensors file: {error}.") from error
    _refuse_unusable(state, path)
    return FileWeights(state=strip(state), metadata=metadata, averaged=averaged, notes=notes)


@frozen
class WeightFormat:
    """A format that plugs in. `about` is the name of a file of this format in messages."""

    about: str
    find: Callable[[Path], Path | None]
    """What to read, if a path names something in this format: a file, the common start of several, or their folder."""
    read: Callable[[Path], State]
    """The tensors, with the names that Vernier knows. Raises ConfigError for a file that cannot be read."""
    padding: str = "torch"
    """The padding of the models whose weights are in this format."""


def find_format(path: Path) -> tuple[WeightFormat, Path] | None:
    """The format that reads a path, and what to read; None if no format that plugs in does."""
    for each in load_group(_FORMATS, WeightFormat).values():
        if (file := each.find(path)) is not None:
            return each, file
    return None


def read_metadata(path: Path) -> dict[str, str]:
    """Read the metadata of a safetensors file; empty for any other file."""
    if not is_safetensors(path):
        return {}
    with safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


def save_safetensors(state: Mapping[str, Tensor], path: str | Path, metadata: Mapping[str, str]) -> None:
    """Write a safetensors file; it gets its final name when it is complete."""
    with replaced_atomically(Path(path)) as partial, usual_mode(partial):
        save_file(_on_host(state), partial, dict(metadata))


def save_torch(state: Mapping[str, Tensor], path: str | Path, metadata: Mapping[str, str]) -> None:
    """Write a torch file with a state dict that `load_state_dict(strict=True)` of any program takes.

    The metadata is an attribute of the dict, as PyTorch's own `_metadata` is, so it is no key that would be unexpected.
    """
    ordered = OrderedDict(_on_host(state))
    setattr(ordered, _METADATA, dict(metadata))
    with replaced_atomically(Path(path)) as partial:
        torch.save(ordered, partial)


def _on_host(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # safetensors refuses tensors in channels-last layout: `contiguous` copies those.
    return {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}


def is_safetensors(path: Path) -> bool:
    """Decide by content, since people rename files: an 8-byte length, then a JSON object."""
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


def _texts(tree: Any) -> dict[str, str]:
    """Returns the metadata of a file; empty unless it consists of texts by name."""
    pairs = tree.items() if isinstance(tree, dict) else ()
    return {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}


def _unwrap(loaded: Any, ema: bool | None, path: Path) -> tuple[State, bool, tuple[str, ...]]:
    """The named tensors of a loaded object, whether they are averaged ones, and notes about the choice."""
    if not isinstance(loaded, Mapping):
        raise ConfigError(f"{path} holds a {type(loaded).__name__}, not named weights.")
    plain, averaged = (
        next((name for name in containers if isinstance(loaded.get(name), Mapping)), None)
        for containers in (_PLAIN_CONTAINERS, _AVERAGED_CONTAINERS)
    )
    if averaged is not None and ema is not False:
        other = f"; {use('ema', False)} takes the raw ones ({plain})" if plain else ", the only ones in the file"
        return _tensors(loaded[averaged], path), True, (f"averaged weights ({averaged}){other}",)
    if ema:
        raise ConfigError(f"{path} has no averaged weights; it has {join_some(str(name) for name in loaded)}.")
    notes = (f"raw weights ({plain}), not the averaged ones ({averaged})",) if averaged and plain else ()
    if plain is not None:
        return _tensors(loaded[plain], path), False, notes
    return _tensors(loaded, path), False, notes


def _tensors(loaded: Mapping[Any, Any], path: Path) -> State:
    # Containers can be nested. Counters and texts beside the tensors are ignored.
    inner = next((name for name in _PLAIN_CONTAINERS if isinstance(loaded.get(name), Mapping)), None)
    if inner is not None:
        return _tensors(loaded[inner], path)
    tensors = {str(name): value for name, value in loaded.items() if isinstance(value, Tensor)}
    if not tensors:
        raise ConfigError(f"{path} has no weights; it has {join_some(str(name) for name in loaded)}.")
    return tensors


def _refuse_unusable(state: State, path: Path) -> None:
    """Refuse tensors that no model here can take, and weights that are NaN or infinite."""
    for name, tensor in state.items():
        if tensor.layout != torch.strided or tensor.is_quantized:
            kind = "quantized" if tensor.is_quantized else f"sparse ({str(tensor.layout).removeprefix('torch.')})"
            raise ConfigError(
                f"{path}: {name} is a {kind} tensor. Vernier reads dense ones: save it again after "
                f"{'dequantize()' if tensor.is_quantized else 'to_dense()'}."
            )
    refuse_not_finite(state, str(path))


def refuse_not_finite(state: Mapping[str, Tensor], origin: str) -> None:
    """Raise RunFailed that names the first layer with a weight that is not a number, or infinite."""
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            wrong = int((~tensor.isfinite()).sum())
            raise RunFailed(
                f"{origin}: {wrong:,} of {tensor.numel():,} values of {name} are NaN or infinite. "
                "Use the weights of an earlier step, from before the training diverged."
            )


# ---- fitting --------------------------------------------------------------------------------------------------------


def load(path: str | Path, model: nn.Module, *, ema: bool | None = False, reset_head: bool = False) -> Report:
    """Read a file, adapt its weights and load them into `model`; the arguments are those of `read_file` and `adapt`."""
    return load_read(read_file(path, ema=ema), model, reset_head=reset_head)


def load_read(file: FileWeights, model: nn.Module, *, reset_head: bool = False, optional: Sequence[str] = ()) -> Report:
    """Do the same with weights that were read already."""
    state, report = adapt(file.state, model, reset_head=reset_head, optional=optional, metadata=file.metadata)
    model.load_state_dict(state)
    return dataclasses.replace(report, notes=(*file.notes, *report.notes))


def load_backbone(path: str | Path, model: nn.Module) -> Report:
    """Read the weights of a classifier or a detector and load them into the backbone of `model`."""
    backbone, file = model.get_submodule(BACKBONE), read_file(path, ema=False)
    layout = layout_of(backbone)
    # The backbone has no head, and not all stages of the classifier it is taken from.
    others = tuple(name for name in translate(file.state)[0] if not layout.in_backbone(name))
    return load_read(file, backbone, optional=others)


def adapt(
    state: Mapping[str, Tensor],
    model: nn.Module,
    *,
    reset_head: bool = False,
    optional: Sequence[str] = (),
    metadata: Mapping[str, str] | None = None,
) -> tuple[State, Report]:
    """Make a complete state for `model`, in its dtypes, from weights of any origin; the model is not changed.

    With `reset_head` the layers that name classes keep the model's own values. Names that start with one of `optional`
    may be missing or left over. If models of two variants have the same shapes, the file's `metadata` is compared with
    the model. Raises ConfigError with what does not fit, and which catalogue model the weights look like.
    """
    layout, own = layout_of(model), model.state_dict()
    loaded, report = keep_names(state, own) if layout.outside else translate(state, detector=layout.detector)
    for option, value in report.needs:
        if getattr(getattr(model, "options", None), option, None) != value:
            raise ConfigError(f"The weights were trained with {option}. Set model.{option} = {str(value).lower()}.")
    notes = [*_check_variant(layout, model, metadata or {}), *_check_padding(model, metadata or {})]
    # Before the shapes are compared: another number of classes has an error with a remedy, not a list of shapes.
    if not reset_head:
        _check_classes(loaded, own, layout)
    skipped = (f"{layout.classifier}.",) if reset_head else ()  # the layers that name classes
    free = (*optional, *skipped)
    fitted, missing, problems = _fit(loaded, own, free, skipped)
    left_over = [name for name in loaded if name not in own]
    problems += [f"{name} is not in the model" for name in left_over if not name.startswith(free)]
    if problems:
        raise ConfigError(
            f"The weights do not fit {name_of(model)}: {join_some(problems, '; ')}.{_advice(loaded, model)}"
        )
    # The file's classifier is in the model, too, and still not used: it is reported as dropped.
    reset = [name for name in loaded if name in own and name.startswith(skipped)]
    report = dataclasses.replace(
        report, dropped=(*report.dropped, *left_over, *reset), missing=tuple(missing), notes=tuple(notes)
    )
    return fitted, report


def _fit(
    loaded: State, own: State, free: tuple[str, ...], skipped: tuple[str, ...]
) -> tuple[State, list[str], list[str]]:
    """Give the fitted state, the names that keep the model's own value, and what does not fit."""
    fitted, missing, problems = {}, [], []
    for name, default in own.items():
        value = None if name.startswith(skipped) else loaded.get(name)
        if value is None:
            fitted[name] = default
            if name.startswith(free):
                missing.append(name)
            elif not name.endswith(UNNEEDED):
                problems.append(f"{name} is missing")
            continue
        if same_values(default.shape, value.shape):
            value = value.reshape(default.shape)
        else:
            problems.append(f"{name} is {_shape(value)}, the model has {_shape(default)}")
        fitted[name] = value.to(default.dtype)
    return fitted, missing, problems


def _check_variant(layout: Layout, model: nn.Module, metadata: Mapping[str, str]) -> list[str]:
    """Compare the variant that a file declares with the model's; notes for the report. Raises ConfigError."""
    if not layout.variant:
        return []
    declared = declared_variant(metadata)
    if not declared:
        return [f"assumed to be {layout.variant}: names and shapes do not tell v1 from v1.5"]
    if declared != layout.variant:
        name = name_of(model)
        published = name.rpartition(" ")[2]  # of a backbone: the name of its detector
        twin = published.removesuffix("-v1") if published.endswith("-v1") else f"{published}-v1"
        raise ConfigError(
            f"The file contains weights of {declared}, and {name} is {layout.variant}: the same shapes, another "
            f"stride. Use {twin}."
        )
    return []


def _check_padding(model: nn.Module, metadata: Mapping[str, str]) -> list[str]:
    """A note if the file was trained with another padding: the weights fit, and results are a little different."""
    settings = re.search(r'"padding": "([\w-]+)"', metadata.get("settings", ""))
    trained = settings[1] if settings else metadata.get("padding", "torch")
    own = getattr(getattr(model, "options", None), "padding", "torch")
    if trained == own or (not settings and trained[:2] == own[:2]):  # TensorFlow's files do not contain which
        return []
    return [f"trained with {trained} padding, used with {own}: for the same results, {use('model.padding', trained)}"]


def declared_variant(metadata: Mapping[str, str]) -> str:
    """Read v1 or v1.5 from a file's metadata, if it names a catalogue model or the variant."""
    for key in ("model", "arch"):
        text = metadata.get(key, "")
        if text in names() and info(text).layout.variant:
            return info(text).layout.variant
        if match := re.search(r"\bv1(?:[._]5)?\b", text, re.IGNORECASE):
            return "v1" if len(match[0]) == 2 else "v1.5"
    return ""


def _check_classes(loaded: State, own: State, layout: Layout) -> None:
    name = layout.classifier_weight(own)
    head, own_head = loaded.get(name or ""), own.get(name or "")
    # Only if nothing but the number of outputs differs; anything else is another model, whose problems are listed.
    if head is None or own_head is None or head.shape[1:] != own_head.shape[1:] or len(head) == len(own_head):
        return
    classes = len(head) // layout.boxes
    label = "classes, the background among them," if layout.detector else "classes"
    raise ConfigError(
        f"The weights have {classes} {label} and the model has {len(own_head) // layout.boxes}. Use "
        f"{use('model.reset_head', True)} to keep the rest and start with a new classifier, or "
        f"{use('model.num_classes', classes)}."
    )


def _advice(loaded: State, model: nn.Module) -> str:
    """Describe which model the weights belong to, and the settings that build it."""
    own, guess = name_of(model), identify(loaded)
    if guess is None:
        prefix = common_prefix(loaded)
        return f" Nearly all of their names start with {prefix!r}: save them without it." if prefix else ""
    # `identify` names v1.5 for weights of v1, which look the same.
    if guess not in (own, own.replace("-v1", "")):
        return f" They look like {guess}."
    settings, own_settings = (_stem_settings(state, guess) for state in (loaded, model.state_dict()))
    different = [use(f"model.{name}", value) for name, value in settings.items() if value != own_settings[name]]
    if different:
        return f" They are a {own} of other settings: use {' and '.join(different)}."
    return f" They look like a part of {own}, or a changed one."


def _stem_settings(state: State, name: str) -> dict[str, int | str]:
    """Width and kind of stem, as the first convolution shows them."""
    entry = info(name)
    first = entry.layout.first_weight(state)
    if first is None:
        return {}
    return {"width": len(first), **({"stem": "imagenet" if first.shape[-1] == 7 else "small"} if entry.stem else {})}


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a single number"
