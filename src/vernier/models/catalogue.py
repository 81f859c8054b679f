"""The catalogue of networks: which there are, what they cost, and `build`, the one way to make one.

Importing this module does not import torch, so a command can list the catalogue at once; `build` does.
The networks themselves are in `resnet` and `ssd`, their cost is measured in `cost`, other people's weights are in
`weights`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from vernier.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from vernier.models.resnet import ResNet
    from vernier.models.ssd import Ssd

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
    last_stride: Literal[1, 2] = 2
    """Of the last stage. A detector's backbone takes 1, to keep the resolution."""

    @property
    def expansion(self) -> int:
        return 4 if self.block == "bottleneck" else 1

    @property
    def depth(self) -> int:
        """Weight layers on the longest path: the number in the network's name."""
        return sum(self.blocks) * (3 if self.block == "bottleneck" else 2) + 2


@dataclass(frozen=True, kw_only=True)
class SsdSpec:
    """The shape of a single-shot detector, at any image size; `ssd.levels` works it out for one.

    Levels after the backbone's halve the grid while it has more than five cells a side, then take two cells off, while
    there are three: at 300 pixels 38, 19, 10, 5, 3, 1. Default boxes are shares of the image and so grow with it.
    """

    extras: tuple[tuple[int, int], ...]
    """(1x1 channels, 3x3 channels) of each level after the backbone's, at the backbone's own width; the last repeats."""
    extra_norm: bool = False
    """Batch norm after the convolutions of those levels, which then have no bias (NVIDIA's SSD300 v1.1)."""
    sizes: tuple[float, float, float] = (21 / 300, 45 / 300, 261 / 300)
    """Default boxes of the first, the second and the last level; those between are spaced evenly."""
    outer_ratios: tuple[int, ...] = (2,)
    """Aspect ratios, each also lying, of the first and the last two levels."""
    inner_ratios: tuple[int, ...] = (2, 3)
    """The same of all levels between."""
    most_levels: int = 8


@dataclass(frozen=True, kw_only=True)
class Options:
    """What may be chosen about any network of the catalogue; checked when made."""

    num_classes: int
    """A detector counts the background, its class 0, as one."""
    in_channels: int = 3
    image_px: int | None = None
    """Detectors: side of an image, which decides their levels and default boxes; None for the catalogue's."""
    box_sizes: tuple[float, ...] = ()
    """Detectors: default boxes of the first, second and last level, as shares of the image; none for the catalogue's."""
    init: Init = "fan-out"
    """Convolutions: He normal by fan-out (torchvision's, the same thing by its other name) or fan-in (NVIDIA's),
    or TensorFlow's variance scaling (truncated normal, variance 1/fan-in). Linear layers keep PyTorch's default.
    A detector's own layers are Xavier uniform, whatever is said here of its backbone."""
    zero_gamma: bool = False
    """Start the last batch norm of every block at zero, so that a fresh block is the identity."""
    stem: Stem = "default"
    """`imagenet`: 7x7 stride 2 and max pool. `small`: 3x3 stride 1, no pool. `small-pool`: the same and a 2x2 pool.
    `default`: the architecture's own."""
    width: int | None = None
    """Channels of the stem and first stage; None for the architecture's own (64, or 16 for the small families).
    A detector's extra levels follow in proportion."""
    drop_path: float = 0.0
    """Stochastic depth: probability that a sample skips the last block; earlier blocks linearly less."""
    blurpool: bool = False
    """Blur (3x3 binomial) before every strided convolution with at least 16 input channels, as FFCV's rn50 does."""
    bn_momentum: float = 0.1
    bn_eps: float = 1e-5

    def __post_init__(self) -> None:
        _require(self.num_classes >= 1, "num_classes", self.num_classes, "at least 1")
        _require(self.image_px is None or self.image_px >= 1, "image_px", self.image_px, "at least 1 pixel, or None")
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
    """Of a detector: its backbone."""
    input_px: int
    classes: int
    params: int
    macs: int
    """Multiply-accumulates of one image's forward pass, convolutions and linear layers."""
    ssd: SsdSpec | None = None
    """What makes it a detector; None for a classifier."""

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


def build(name: str, **options: Any) -> ResNet | Ssd:
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
    chosen = Options(**options)
    if entry.ssd is not None:
        from vernier.models.ssd import Ssd

        return Ssd(entry.arch, ssd_spec(name, chosen.box_sizes), chosen, chosen.image_px or entry.input_px)
    if chosen.image_px is not None:
        raise ConfigError(f"Model option image_px is for detectors; {name} takes images of any size.")
    _require(not chosen.box_sizes, "box_sizes", chosen.box_sizes, f"left out: {name} is no detector")
    from vernier.models.resnet import ResNet

    return ResNet(entry.arch, chosen)


def ssd_spec(name: str, box_sizes: tuple[float, ...] = ()) -> SsdSpec:
    """What makes the entry `name` a detector, with default boxes of other sizes if wanted."""
    spec = info(name).ssd
    if spec is None:
        raise ConfigError(f"{name} is no detector.")
    if not box_sizes:
        return spec
    rising = len(box_sizes) == 3 and 0 < box_sizes[0] < box_sizes[1] < box_sizes[2] <= 1
    _require(rising, "box_sizes", list(box_sizes), "three rising shares of the image, such as [0.07, 0.15, 0.87]")
    return replace(spec, sizes=(box_sizes[0], box_sizes[1], box_sizes[2]))


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
    "ssd": (300, 81),
}


def _entry(
    name: str, family: str, arch: Arch, params: int, macs: int, summary: str,
    ssd: SsdSpec | None = None, at: tuple[int, int] | None = None,
) -> ModelInfo:  # fmt: skip
    px, classes = at or _FAMILIES[family]
    return ModelInfo(
        name=name, family=family, summary=summary, arch=arch, input_px=px, classes=classes, params=params, macs=macs,
        ssd=ssd,
    )  # fmt: skip


def _backbone(arch: Arch) -> Arch:
    """Three stages, of which the last keeps the resolution: SSD's cut through a ResNet."""
    return replace(arch, blocks=arch.blocks[:3], last_stride=1)


_EXTRAS = ((256, 512), (256, 512), (128, 256), (128, 256), (128, 256))
_MLPERF_SSD = SsdSpec(extras=_EXTRAS)
_NVIDIA_SSD = SsdSpec(extras=_EXTRAS, extra_norm=True)
_NVIDIA_SSD_18 = SsdSpec(extras=(*_EXTRAS[:4], (128, 128)), extra_norm=True)
_SMALL_SSD = SsdSpec(
    extras=((32, 64),), extra_norm=True, sizes=(0.15, 0.24, 0.38), inner_ratios=(2,), most_levels=3
)  # fmt: skip


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
        _entry(
            "ssd300-resnet34",
            "ssd",
            _backbone(_basic(3, 4, 6)),
            19_972_534,
            15_862_078_720,
            "8732 default boxes (MLPerf, Google, Habana)",
            _MLPERF_SSD,
        ),
        _entry(
            "ssd300-resnet18",
            "ssd",
            _backbone(_basic(2, 2, 2)),
            14_048_310,
            7_781_466_880,
            "8732 default boxes, batch norm in the extra levels (NVIDIA's SSD300 v1.1)",
            _NVIDIA_SSD_18,
        ),
        _entry(
            "ssd300-resnet50",
            "ssd",
            _backbone(_bottleneck(3, 4, 6)),
            22_894_902,
            20_150_906_112,
            "8732 default boxes, batch norm in the extra levels (NVIDIA's SSD300 v1.1)",
            _NVIDIA_SSD,
        ),
        _entry(
            "ssd300-resnet50-v1",
            "ssd",
            _backbone(_bottleneck(3, 4, 6, stride_in="1x1")),
            22_894_902,
            20_013_903_104,
            "the same on a v1 backbone, for weights of that kind",
            _NVIDIA_SSD,
        ),
        _entry(
            "ssd-small",
            "ssd",
            _backbone(replace(_basic(1, 1, 1), width=16)),
            224_516,
            46_444_544,
            "three levels on a narrow backbone for the embedded shapes",
            _SMALL_SSD,
            at=(128, 11),
        ),
    )
}
