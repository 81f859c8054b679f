"""Names of layers in other code bases, and Vernier's own, which are torchvision's.

`translate` turns the names that a family lists (`contract.Naming`) into those of Vernier's models, and `identify` finds
the model of the catalogue they belong to. Files and fitting are in `weights`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import use

from .catalogue import build, describe, families
from .contract import BACKBONE, Layout, ModelInfo, Naming

State = dict[str, Tensor]

# Wrappers nest, so any sequence of them is removed. MLPerf's SSD keeps its backbone in `model`.
_WRAPPERS = re.compile(r"^(?:module\.|_orig_mod\.|model\.)+")
_NO_WEIGHT = r"^n_averaged$"  # the step counter of torch's AveragedModel
_UNKNOWN = Naming(source="unknown", marker="")
UNNEEDED = ("num_batches_tracked",)
"""Ends of names that no model here uses: batch norm has a fixed momentum."""


def strip(state: Mapping[str, Tensor]) -> State:
    """Remove the prefixes that DataParallel, torch.compile, averaging and wrapper modules add to every name.

    Any other prefix (`net.`, `resnet.`, `encoder.`) is removed if every name has it and a known model is left.
    """
    stripped = {_WRAPPERS.sub("", name): tensor for name, tensor in state.items()}
    # Two names became one (`conv1.weight`, `module.conv1.weight`): one tensor would silently replace the other.
    if len(stripped) != len(state):
        raise ConfigError(f"The weights hold two models: {join_some(state)}. Save one of them on its own.")
    # Each turn removes one part of all names, such as `1.`, which apex's network_to_half adds (`module.1.conv1`).
    inner = stripped
    while _new_names(inner)[0] is _UNKNOWN:
        prefix = common_prefix(inner, share=1.0)
        # Not a known model. Names stay as they are, for the error that lists them.
        if prefix is None:
            return stripped
        inner = {name.removeprefix(prefix): tensor for name, tensor in inner.items()}
    return inner


def common_prefix(names: Iterable[str], share: float = 0.8) -> str | None:
    """The first part, with its dot, that this share of the names has, such as `net.`; None if there is none."""
    names = [name for name in names if not re.search(_NO_WEIGHT, name)]
    counts = Counter(name.partition(".")[0] + "." for name in names if "." in name)
    prefix, count = counts.most_common(1)[0] if counts else ("", 0)
    return prefix if count >= share * len(names) > 0 else None


def join_some(items: Iterable[str], separator: str = ", ", limit: int = 5) -> str:
    """Join the first items for a message, and count the rest."""
    texts = list(items)
    rest = f"{separator}and {len(texts) - limit} more" if len(texts) > limit else ""
    return separator.join(texts[:limit]) + rest


@frozen
class Report:
    """Renamed, dropped and missing names of weights that were fitted to a model."""

    source: str
    """The code base recognized by its names: torchvision, nvidia-dle, mlperf-ssd, ...; or `unknown`."""
    renamed: dict[str, str]
    """Old names to new ones, where they differ."""
    dropped: tuple[str, ...] = ()
    """In the file and not in the model."""
    missing: tuple[str, ...] = ()
    """In the model and not in the file: these keep their initial values."""
    notes: tuple[str, ...] = ()
    needs: tuple[tuple[str, Any], ...] = ()
    """Options that the model must have for these weights."""


def translate(state: Mapping[str, Tensor], *, detector: bool = False) -> tuple[State, Report]:
    """Rename tensors to our names and report what was renamed or dropped. Shapes are not looked at.

    A detector's weights become those of its backbone, unless a `detector` is to take them. Raises ConfigError for a
    detector with weights of a classifier, which can only be its backbone.
    """
    state = strip(state)
    naming, new_names = _new_names(state)
    of_detector = _in_backbone(new_names)
    # Unknown names go on: `weights.adapt` reports which of them do not fit.
    if detector and not of_detector and naming is not _UNKNOWN:
        raise ConfigError(
            f"These are weights of a classifier ({naming.source} names), not of a detector: they can start its "
            f"backbone. Give them as {use('model.backbone_weights')}."
        )
    if not detector:
        new_names = of_detector or new_names
    report = Report(
        source=naming.source,
        renamed={old: new for old, new in new_names.items() if old != new},
        dropped=tuple(name for name in state if name not in new_names),
        needs=naming.needs,
    )
    return {new: state[old] for old, new in new_names.items()}, report


def keep_names(state: Mapping[str, Tensor], own: Iterable[str]) -> tuple[State, Report]:
    """Weights of an outside model, with its own names: a prefix that looks like a wrapper's can be a part of them."""
    wrapped = {_WRAPPERS.sub("", name): name for name in own}
    return {wrapped.get(n, n): tensor for n, tensor in strip(state).items()}, Report(source="its own", renamed={})


def _new_names(state: State) -> tuple[Naming, dict[str, str]]:
    """The code base whose names these are, and our names of its weights."""
    namings = (naming for family in families() for naming in family.namings)
    naming = next((n for n in namings if any(re.search(n.marker, name) for name in state)), _UNKNOWN)
    unused = re.compile("|".join(filter(None, (naming.dropped, _NO_WEIGHT))))
    new_names = {name: name for name in state if not unused.search(name)}
    for pattern, replacement in naming.renames:
        new_names = {old: re.sub(pattern, replacement, new) for old, new in new_names.items()}
    return naming, new_names


def _in_backbone(new_names: Mapping[str, str]) -> dict[str, str]:
    """The names of a detector's backbone, as a model of its own; empty for classifiers."""
    prefix = f"{BACKBONE}."
    return {old: new.removeprefix(prefix) for old, new in new_names.items() if new.startswith(prefix)}


# --------------------------------------------------------------------------------------------------------- recognition


def identify(state: Mapping[str, Tensor]) -> str | None:
    """Find the catalogue model of these weights, for any naming, class count or width; None if there is none.

    A backbone without its last stages is recognized too. v1 and v1.5 look the same here: the name is v1.5's.
    """
    state = strip(state)
    _, new_names = _new_names(state)
    backbone = _in_backbone(new_names)
    # A detector's backbone also fits a classifier, so detectors come first.
    kinds = [(True, new_names), (False, backbone)] if backbone else [(False, new_names)]
    candidates = [
        (entry, weights, parts)
        for detector, names in kinds
        for weights in [{new: state[old] for old, new in names.items() if not old.endswith(UNNEEDED)}]
        for entry in describe()
        if entry.detector == detector and (parts := _count_parts(weights, entry.layout))
    ]
    # A backbone has only the first stages of its classifier. A whole match is preferred.
    candidates.sort(key=lambda each: each[2] < each[0].layout.head_depth)
    return next((entry.name for entry, weights, parts in candidates if _fits(weights, entry, parts)), None)


def _count_parts(state: State, layout: Layout) -> int:
    """How many parts of a layout weights have, from the input to the end of a stage; 0 if their parts are others."""
    depths = {layout.depth_of(name) for name in state} - {layout.head_depth}
    ends = list(accumulate(layout.blocks, initial=1))[1:]
    return len(depths) if len(depths) in ends and max(depths) < len(depths) else 0


def _fits(state: State, entry: ModelInfo, parts: int) -> bool:
    """Whether weights have the names of a model and, at the width and channels that they show, its shapes."""
    layout, own = entry.layout, _shapes(entry, state, None)
    inner = {name for name in state if layout.in_backbone(name)}
    outer, own_outer = state.keys() - inner, {name for name in own if not layout.in_backbone(name)}
    heads_fit = outer <= own_outer  # a part of it may be missing
    if entry.detector:  # more levels for larger images, but the same groups of layers
        heads_fit = (heads_fit or own_outer <= outer) and {n.partition(".")[0] for n in state} == set(entry.groups)
    if not heads_fit or inner != {name for name in own if layout.depth_of(name) < parts}:
        return False
    reference = next(name for name in own if layout.depth_of(name) == 1)
    own = _shapes(entry, state, entry.width * next(iter(state[reference].shape), 0) // own[reference][0])
    # Filters of the stem can be larger or smaller: that is an option.
    axes = {name: 2 if layout.depth_of(name) == 0 else None for name in inner}
    return own != {} and all(same_values(own[name][:n], state[name].shape[:n]) for name, n in axes.items())


def _shapes(entry: ModelInfo, state: State, width: int | None) -> dict[str, torch.Size]:
    """The shapes of a model at a width, for images of as many channels as weights take; empty if there is none."""
    first = entry.layout.first_weight(state)
    try:
        with torch.device("meta"):
            channels = 3 if first is None else first.shape[1]
            own = build(entry.name, num_classes=entry.classes, in_channels=channels, width=width).state_dict()
    except (ValueError, ArithmeticError, RuntimeError):  # a width that divides into no groups, or is absurd
        return {}
    return {name: tensor.shape for name, tensor in own.items() if not name.endswith(UNNEEDED)}


def same_values(own: Sequence[int], other: Sequence[int]) -> bool:
    """Whether tensors of these shapes have the same values in the same order: axes of length 1 do not matter.

    A 1x1 convolution on one pixel is a linear layer, and a scale per channel is written with and without other axes.
    """
    return [size for size in own if size != 1] == [size for size in other if size != 1]
