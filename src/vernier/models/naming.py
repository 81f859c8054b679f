"""Names of layers in other code bases, and Vernier's own, which are torchvision's.

`translate` turns any known names into a classifier's, `translate_detector` into a detector's, and `identify` finds the
network of the catalogue they belong to. Files and fitting are in `weights`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from torch import Tensor, nn

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import use

from .airbench import AirbenchNet
from .architecture import Arch, inner_channels
from .catalogue import describe
from .resnet import ResNet, Trunk
from .ssd import Ssd

State = dict[str, Tensor]

_FIRST_LAYER = re.compile(r"^(backbone\.|layer0\.)?conv1\.(conv\.)?weight$")
# Wrappers nest, so any sequence of them is removed. MLPerf's SSD keeps its backbone in `model`.
_WRAPPERS = re.compile(r"^(?:module\.|_orig_mod\.|model\.)+")


def strip(state: Mapping[str, Tensor]) -> State:
    """Remove the prefixes that DataParallel, torch.compile, averaging and wrapper modules add to every name.

    Any other prefix (`net.`, `resnet.`, `encoder.`) is removed where every name has it and a network is left.
    """
    stripped = {_WRAPPERS.sub("", name): tensor for name, tensor in state.items()}
    # Two names became one (`conv1.weight`, `module.conv1.weight`): one tensor would silently replace the other.
    if len(stripped) != len(state):
        raise ConfigError(f"The weights hold two models: {join_some(state)}. Save one of them on its own.")
    # Each turn removes one part of all names, such as `1.`, which apex's network_to_half adds (`module.1.conv1`).
    inner = stripped
    while not any(_FIRST_LAYER.match(name) for name in inner):
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
    """How weights were made to fit a network."""

    source: str
    """The code base recognised by its names: torchvision, nvidia-dle, mlperf-ssd, ...; or `unknown`."""
    renamed: dict[str, str]
    """Old names to new ones, where they differ."""
    dropped: tuple[str, ...] = ()
    """In the file and not in the network."""
    missing: tuple[str, ...] = ()
    """In the network and not in the file: these keep their initial values."""
    notes: tuple[str, ...] = ()


@frozen
class _Naming:
    """The names of one code base: how to recognise them, what to replace (all rules, in order), what to drop."""

    source: str
    marker: str
    renames: tuple[tuple[str, str], ...] = ()
    dropped: str | None = None

    @property
    def of_detector(self) -> bool:
        return self.dropped == _SSD_HEADS


_SSD_HEADS = r"^(pyramid|extras|additional_blocks|loc|conf)\."
_BACKBONE = "backbone."

# MLPerf's backbone is Sequential(children[:6]) and Sequential(children[6:7]) of torchvision's ResNet-34; NVIDIA's
# Deep Learning Examples put the first seven in one. Stages come after the stem, hence the order of the rules.
_NAMINGS = (
    _Naming(
        # The first whose marker occurs is used. torchvision's marker occurs in several others, so it is last.
        source="mlperf-ssd",
        marker=r"^layer1\.4\.0\.conv1\.weight$",
        renames=(
            (r"^layer2\.0\.", "layer3."),
            (r"^layer1\.5\.", "layer2."),
            (r"^layer1\.0\.", "conv1."),
            (r"^layer1\.1\.", "bn1."),
            (r"^layer1\.4\.", "layer1."),
        ),
        dropped=_SSD_HEADS,
    ),
    _Naming(
        source="nvidia-ssd",
        marker=r"^feature_extractor\.feature_extractor\.4\.0\.conv1\.weight$",
        renames=(
            (r"^feature_extractor\.feature_extractor\.", ""),
            (r"^0\.", "conv1."),
            (r"^1\.", "bn1."),
            *((rf"^{index + 3}\.", f"layer{index}.") for index in (1, 2, 3)),
        ),
        dropped=_SSD_HEADS,
    ),
    _Naming(
        source="vernier-ssd",
        marker=rf"^{_BACKBONE}conv1\.weight$",
        renames=((rf"^{_BACKBONE}", ""),),
        dropped=_SSD_HEADS,
    ),
    _Naming(
        source="nvidia-dle",
        marker=r"^layers\.0\.0\.|\.squeeze\.squeeze\.",
        renames=(
            *((rf"^layers\.{index}\.", f"layer{index + 1}.") for index in range(4)),
            (r"\.squeeze\.squeeze\.", ".se.fc1."),
            (r"\.squeeze\.expand\.", ".se.fc2."),
        ),
    ),
    _Naming(
        source="timm-legacy",
        marker=r"^layer0\.conv1\.|^last_linear\.|\.se_module\.",
        renames=((r"^layer0\.", ""), (r"^last_linear\.", "fc."), (r"\.se_module\.", ".se.")),
    ),
    _Naming(source="timm", marker=r"\.se\.fc1\."),
    _Naming(
        source="ffcv-blurpool",
        marker=r"\.blur_filter$",
        renames=((r"\.conv\.weight$", ".weight"),),
        dropped=r"\.blur_filter$",
    ),
    _Naming(
        source="akamaster-cifar",
        marker=r"^linear\.weight$",
        renames=((r"^linear\.", "fc."), (r"\.shortcut\.", ".downsample.")),
    ),
    _Naming(source="torchvision", marker=r"^layer1\.0\.conv1\.weight$"),
)
_UNKNOWN = _Naming(source="unknown", marker="")
_NO_WEIGHT = r"^n_averaged$"  # the step counter of torch's AveragedModel


def translate(state: Mapping[str, Tensor]) -> tuple[State, Report]:
    """Rename tensors to our names and report what was renamed or dropped. Shapes are not looked at."""
    state = strip(state)
    naming = _recognise(state)
    dropped = re.compile("|".join(filter(None, (naming.dropped, _NO_WEIGHT))))
    return _rename_all(state, {name: _rename(name, naming) for name in state if not dropped.search(name)}, naming)


def translate_detector(state: Mapping[str, Tensor]) -> tuple[State, Report]:
    """Do the same for a whole detector: backbone, extra levels and heads, whose channels all code bases order alike.

    Raises ConfigError for weights of a classifier, which can only be a detector's backbone.
    """
    state = strip(state)
    naming = _recognise(state)
    # Unknown names go on: `weights.adapt` reports which of them do not fit.
    if naming is not _UNKNOWN and not naming.of_detector:
        raise ConfigError(
            f"These are weights of a classifier ({naming.source} names), not of a detector: they can start its "
            f"backbone. Give them as {use('model.backbone_weights')}."
        )
    new_names = {name: _rename_detector(name, naming) for name in state if not re.search(_NO_WEIGHT, name)}
    return _rename_all(state, new_names, naming)


def _rename_all(state: State, new_names: Mapping[str, str], naming: _Naming) -> tuple[State, Report]:
    report = Report(
        source=naming.source,
        renamed={old: new for old, new in new_names.items() if old != new},
        dropped=tuple(name for name in state if name not in new_names),
    )
    return {new: state[old] for old, new in new_names.items()}, report


def _recognise(state: Mapping[str, Tensor]) -> _Naming:
    return next((n for n in _NAMINGS if any(re.search(n.marker, name) for name in state)), _UNKNOWN)


def _rename_detector(name: str, naming: _Naming) -> str:
    if re.match(_SSD_HEADS, name):
        return name.replace("additional_blocks.", "extras.", 1)
    return _BACKBONE + _rename(name, naming) if naming.of_detector else name


def to_torchvision(state: Mapping[str, Tensor]) -> State:
    """Prepare weights for torchvision's `load_state_dict`. Raises ConfigError for a network it does not have."""
    plain, _ = translate(state)
    if any(".se." in name for name in plain):
        raise ConfigError("torchvision has no ResNeXt with squeeze-and-excitation; export to safetensors instead.")
    return {name: tensor.detach().cpu().contiguous() for name, tensor in plain.items()}


def identify(state: Mapping[str, Tensor]) -> str | None:
    """Find the catalogue model of these weights, for any naming, class count or width; None if there is none.

    A backbone without its last stages is recognised too. v1 and v1.5 look the same here: the name is v1.5's.
    """
    renamed, report = translate(state)
    features = _Features.of_state(renamed)
    if features is None:
        return None
    entries = [entry for entry in describe() if entry.ssd is None]
    # The backbone of a detector also matches a classifier, so detectors come first if the file has their levels.
    if any(name.startswith(("extras.", "additional_blocks.")) for name in report.dropped):
        # extras.0.1 is a batch norm, or a ReLU, which has no tensors.
        norm = any(name.endswith(".0.1.running_mean") for name in report.dropped)
        pyramid = any(name.startswith("pyramid.") for name in report.dropped)
        detectors = [(entry, entry.ssd) for entry in describe() if entry.ssd is not None]
        entries = [e for e, s in detectors if (s.extra_norm, s.pyramid > 0) == (norm, pyramid)] + entries
    candidates = [(entry.name, _Features.of_arch(entry.arch)) for entry in entries]
    whole = (name for name, other in candidates if other == features)
    # A backbone has only the first stages of its classifier. A whole match is preferred.
    part = (
        name for name, other in candidates if replace(other, blocks=other.blocks[: len(features.blocks)]) == features
    )
    return next(whole, None) or next(part, None)


def name_of(model: nn.Module) -> str:
    """Name a built network for a message: its catalogue name, if it has one."""
    if not isinstance(model, Trunk | AirbenchNet | Ssd):
        return type(model).__name__
    spec = model.spec if isinstance(model, Ssd) else None
    same = (e for e in describe() if e.arch == model.arch and spec in (None, e.ssd))
    name = next((entry.name for entry in same), f"this {type(model).__name__}")
    return name if isinstance(model, ResNet | AirbenchNet | Ssd) else f"the backbone of {name}"


@frozen
class _Features:
    """What distinguishes the architectures of the catalogue and can be read from names and shapes."""

    blocks: tuple[int, ...]
    bottleneck: bool
    inner: float
    """Channels of the first 3x3 in a residual block, in stem widths."""
    groups: int
    projection: bool
    squeeze: int
    whitening: bool
    """A stem with a bias, as airbench's has."""

    @staticmethod
    def of_arch(arch: Arch) -> _Features:
        inner = inner_channels(arch, arch.width) if arch.block == "bottleneck" else arch.width
        return _Features(
            blocks=arch.blocks,
            bottleneck=arch.block == "bottleneck",
            # The width of a whitening stem follows from the image channels and says nothing about the stages.
            inner=0 if arch.stem == "whitening" else inner / arch.width,
            groups=arch.groups,
            projection=arch.shortcut == "projection" and arch.block != "pooled",
            squeeze=arch.squeeze,
            whitening=arch.stem == "whitening",
        )

    @staticmethod
    def of_state(state: Mapping[str, Tensor]) -> _Features | None:
        stem, middle = state.get("conv1.weight"), state.get("layer1.0.conv2.weight")
        if stem is None or middle is None or stem.dim() != 4 or middle.dim() != 4:
            return None
        blocks = {(int(m[1]), int(m[2])) for name in state if (m := re.match(r"layer(\d+)\.(\d+)\.", name))}
        per_stage = Counter(stage for stage, _ in blocks)
        squeeze = state.get("layer1.0.se.fc1.weight")
        return _Features(
            blocks=tuple(per_stage[stage] for stage in range(1, max(per_stage) + 1)),
            bottleneck="layer1.0.conv3.weight" in state,
            inner=0 if "conv1.bias" in state else middle.shape[0] / stem.shape[0],
            # The 3x3 has as many inputs as outputs; its weight is [outputs, inputs / groups, 3, 3].
            groups=middle.shape[0] // middle.shape[1],
            projection="layer2.0.downsample.0.weight" in state,
            squeeze=0 if squeeze is None else squeeze.shape[0],
            whitening="conv1.bias" in state,
        )


def _rename(name: str, naming: _Naming) -> str:
    for pattern, replacement in naming.renames:
        name = re.sub(pattern, replacement, name)
    return name
