"""The catalogue of networks: which there are, what they cost, and `build`, the one way to make one.

Importing this module does not import torch, so a command can list the catalogue at once; `build` does.
The networks themselves are in `resnet`, their cost is measured in `cost`, other people's weights are in `weights`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from vernier.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from vernier.models.resnet import ResNet

Init = Literal["fan-out", "fan-in", "torchvision", "tf"]
Stem = Literal["default", "imagenet", "small", "small-pool"]

_INITS: tuple[Init, ...] = ("fan-out", "fan-in", "torchvision", "tf")
_STEMS: tuple[Stem, ...] = ("default", "imagenet", "small", "small-pool")


@dataclass(frozen=True, kw_only=True)
class Arch:
    """The shape of a residual network: everything that distinguishes one catalogue entry from another."""

    block: Literal["basic", "bottleneck"]
    blocks: tuple[int, ...]
    """Residual blocks in each stage; every stage but the first halves the resolution and doubles the channels."""
    width: int = 64
    """Channels of the stem and of the first stage's blocks."""
    groups: int = 1
    """Groups of the 3x3 convolution in a bottleneck (ResNeXt's cardinality)."""
    group_width: int = 64
    """Channels per group in the first stage, at width 64: the 4 of 32x4d. A plain bottleneck is one group of 64."""
    stride_in: Literal["3x3", "1x1"] = "3x3"
    """Where a bottleneck subsamples: the 3x3 is v1.5, the first 1x1 is v1 (the paper's)."""
    squeeze: int = 0
    """Width of the squeeze-and-excitation layer, the same in every block; 0 for none."""
    shortcut: Literal["projection", "pad"] = "projection"
    """How a shortcut changes shape: 1x1 convolution, or the paper's option A (subsample, pad channels with zeros)."""
    stem: Literal["imagenet", "small"] = "imagenet"

    @property
    def expansion(self) -> int:
        return 4 if self.block == "bottleneck" else 1

    @property
    def depth(self) -> int:
        """Weight layers on the longest path: the number in the network's name."""
        return sum(self.blocks) * (3 if self.block == "bottleneck" else 2) + 2


@dataclass(frozen=True, kw_only=True)
class Options:
    """What may be chosen about any network of the catalogue; checked when made."""

    num_classes: int
    in_channels: int = 3
    init: Init = "fan-out"
    """Convolutions: He normal by fan-out (torchvision's, the same thing by its other name) or fan-in (NVIDIA's),
    or TensorFlow's variance scaling (truncated normal, variance 1/fan-in). Linear layers keep PyTorch's default."""
    zero_gamma: bool = False
    """Start the last batch norm of every block at zero, so that a fresh block is the identity."""
    stem: Stem = "default"
    """`imagenet`: 7x7 stride 2 and max pool. `small`: 3x3 stride 1, no pool. `small-pool`: the same and a 2x2 pool.
    `default`: the architecture's own."""
    width: int | None = None
    """Channels of the stem and first stage; None for the architecture's own (64, or 16 for the small families)."""
    drop_path: float = 0.0
    """Stochastic depth: probability that a sample skips the last block; earlier blocks linearly less."""
    blurpool: bool = False
    """Blur (3x3 binomial) before every strided convolution with at least 16 input channels, as FFCV's rn50 does."""
    bn_momentum: float = 0.1
    bn_eps: float = 1e-5

    def __post_init__(self) -> None:
        _require(self.num_classes >= 1, "num_classes", self.num_classes, "at least 1")
        _require(self.in_channels >= 1, "in_channels", self.in_channels, "at least 1")
        _require(self.init in _INITS, "init", self.init, "one of " + ", ".join(_INITS))
        _require(self.stem in _STEMS, "stem", self.stem, "one of " + ", ".join(_STEMS))
        _require(self.width is None or self.width >= 1, "width", self.width, "at least 1 channel, or None")
        _require(0.0 <= self.drop_path < 1.0, "drop_path", self.drop_path, "at least 0 and below 1")
        _require(0.0 < self.bn_momentum <= 1.0, "bn_momentum", self.bn_momentum, "above 0 and at most 1")
        _require(self.bn_eps > 0.0, "bn_eps", self.bn_eps, "above 0")


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """One catalogue entry, with its cost at `input_px` square, three channels and `classes` classes."""

    name: str
    family: str
    summary: str
    arch: Arch
    input_px: int
    classes: int
    params: int
    macs: int
    """Multiply-accumulates of one image's forward pass, convolutions and linear layers."""

    @property
    def depth(self) -> int:
        return self.arch.depth

    @property
    def gmac(self) -> float:
        return self.macs / 1e9


def names() -> list[str]:
    """Every name `build` knows, in catalogue order."""
    return list(_CATALOGUE)


def describe() -> list[ModelInfo]:
    """Every entry of the catalogue, in order."""
    return list(_CATALOGUE.values())


def info(name: str) -> ModelInfo:
    """The entry called `name`; ConfigError with the nearest names if there is none."""
    if name not in _CATALOGUE:
        raise ConfigError(f"Unknown model {name!r}. {did_you_mean(name, _CATALOGUE)} `vernier models` lists all.")
    return _CATALOGUE[name]


def build(name: str, **options: Any) -> ResNet:
    """A freshly initialised network; `options` are the fields of `Options`, of which `num_classes` is required.

    Initial weights come from torch's default generator. ConfigError for an unknown name, option or value.
    """
    entry = info(name)
    known = [field.name for field in fields(Options)]
    for option in options:
        if option not in known:
            raise ConfigError(f"Unknown model option {option!r}. {did_you_mean(option, known)}")
    if options.get("num_classes") is None:
        raise ConfigError(f"Model {name!r} needs num_classes: set model.num_classes, or give data that has labels.")
    from vernier.models.resnet import ResNet

    return ResNet(entry.arch, Options(**options))


def _require(holds: bool, option: str, given: object, wanted: str) -> None:
    if not holds:
        raise ConfigError(f"Model option {option} is {given!r}; it must be {wanted}.")


def _basic(*blocks: int) -> Arch:
    return Arch(block="basic", blocks=blocks)


def _bottleneck(*blocks: int, stride_in: Literal["3x3", "1x1"] = "3x3") -> Arch:
    return Arch(block="bottleneck", blocks=blocks, stride_in=stride_in)


def _resnext(*blocks: int, groups: int, group_width: int, squeeze: int = 0) -> Arch:
    return Arch(block="bottleneck", blocks=blocks, groups=groups, group_width=group_width, squeeze=squeeze)


def _cifar(blocks: int) -> Arch:
    return Arch(block="basic", blocks=(blocks,) * 3, width=16, shortcut="pad", stem="small")


def _small(blocks: int) -> Arch:
    return Arch(block="basic", blocks=(blocks,) * 3, width=16, stem="small")


_FAMILIES: dict[str, tuple[int, int]] = {  # family: (input_px, classes) at which its costs below were counted
    "resnet": (224, 1000),
    "resnet-v1": (224, 1000),
    "resnext": (224, 1000),
    "resnet-cifar": (32, 10),
    "resnet-small": (32, 10),
}


def _entry(name: str, family: str, arch: Arch, params: int, macs: int, summary: str) -> ModelInfo:
    px, classes = _FAMILIES[family]
    return ModelInfo(
        name=name, family=family, summary=summary, arch=arch, input_px=px, classes=classes, params=params, macs=macs
    )


_V15 = "bottlenecks, stride in the 3x3 (v1.5: torchvision, NVIDIA, Habana)"
_V1 = "bottlenecks, stride in the first 1x1 (He et al. 2015)"
_SAME = "the same network as {}: basic blocks have only one form"
_CIFAR = "He et al. 2015 section 4.2: 16/32/64 channels, parameter-free shortcuts"
_SMALL = "basic blocks in three stages for small images, projection shortcuts"

# The counts are facts about the networks; a test builds every one and compares.
_CATALOGUE: dict[str, ModelInfo] = {
    entry.name: entry
    for entry in (
        _entry("resnet18", "resnet", _basic(2, 2, 2, 2), 11_689_512, 1_814_073_344, "basic blocks"),
        _entry("resnet34", "resnet", _basic(3, 4, 6, 3), 21_797_672, 3_663_761_408, "basic blocks"),
        _entry("resnet50", "resnet", _bottleneck(3, 4, 6, 3), 25_557_032, 4_089_184_256, _V15),
        _entry("resnet101", "resnet", _bottleneck(3, 4, 23, 3), 44_549_160, 7_801_405_440, _V15),
        _entry("resnet152", "resnet", _bottleneck(3, 8, 36, 3), 60_192_808, 11_513_626_624, _V15),
        _entry("resnet18-v1", "resnet-v1", _basic(2, 2, 2, 2), 11_689_512, 1_814_073_344, _SAME.format("resnet18")),
        _entry("resnet34-v1", "resnet-v1", _basic(3, 4, 6, 3), 21_797_672, 3_663_761_408, _SAME.format("resnet34")),
        _entry("resnet50-v1", "resnet-v1", _bottleneck(3, 4, 6, 3, stride_in="1x1"), 25_557_032, 3_857_973_248, _V1),
        _entry("resnet101-v1", "resnet-v1", _bottleneck(3, 4, 23, 3, stride_in="1x1"), 44_549_160, 7_570_194_432, _V1),
        _entry("resnet152-v1", "resnet-v1", _bottleneck(3, 8, 36, 3, stride_in="1x1"), 60_192_808, 11_282_415_616, _V1),
        _entry(
            "resnext50-32x4d",
            "resnext",
            _resnext(3, 4, 6, 3, groups=32, group_width=4),
            25_028_904,
            4_230_479_872,
            "grouped 3x3, 32 groups of 4",
        ),
        _entry(
            "resnext101-32x4d",
            "resnext",
            _resnext(3, 4, 23, 3, groups=32, group_width=4),
            44_177_704,
            7_969_996_800,
            "grouped 3x3, 32 groups of 4 (NVIDIA's and Habana's ResNeXt-101)",
        ),
        _entry(
            "resnext101-32x8d",
            "resnext",
            _resnext(3, 4, 23, 3, groups=32, group_width=8),
            88_791_336,
            16_414_015_488,
            "grouped 3x3, 32 groups of 8",
        ),
        _entry(
            "resnext101-64x4d",
            "resnext",
            _resnext(3, 4, 23, 3, groups=64, group_width=4),
            83_455_272,
            15_460_270_080,
            "grouped 3x3, 64 groups of 4",
        ),
        _entry(
            "se-resnext101-32x4d",
            "resnext",
            _resnext(3, 4, 23, 3, groups=32, group_width=4, squeeze=16),
            45_251_128,
            7_971_037_184,
            "resnext101-32x4d with NVIDIA's squeeze-and-excitation, 16 wide in every block",
        ),
        _entry("resnet20-cifar", "resnet-cifar", _cifar(3), 269_722, 40_551_040, _CIFAR),
        _entry("resnet32-cifar", "resnet-cifar", _cifar(5), 464_154, 68_862_592, _CIFAR),
        _entry("resnet44-cifar", "resnet-cifar", _cifar(7), 658_586, 97_174_144, _CIFAR),
        _entry("resnet56-cifar", "resnet-cifar", _cifar(9), 853_018, 125_485_696, _CIFAR),
        _entry("resnet110-cifar", "resnet-cifar", _cifar(18), 1_727_962, 252_887_680, _CIFAR),
        _entry("resnet8-small", "resnet-small", _small(1), 78_042, 12_501_632, _SMALL),
        _entry("resnet14-small", "resnet-small", _small(2), 175_258, 26_657_408, _SMALL),
        _entry("resnet20-small", "resnet-small", _small(3), 272_474, 40_813_184, _SMALL),
    )
}
