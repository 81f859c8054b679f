"""The catalogue of networks: their names, what they cost, and `build`, the one way to build them.

Importing this module does not import torch, so that commands can list the catalogue quickly; `build` does. The networks
are in `resnet` and `ssd`, their cost is measured in `cost`, weights files of others are read in `weights`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal

from vernier.errors import ConfigError, did_you_mean
from vernier.frozen import frozen
from vernier.models.architecture import Arch, Options, SsdSpec

if TYPE_CHECKING:
    from vernier.models.resnet import ResNet
    from vernier.models.ssd import Ssd


@frozen
class ModelInfo:
    """One catalogue entry, with its cost for images of `input_px` squared, three channels and `classes` classes."""

    name: str
    family: str
    summary: str
    arch: Arch
    """For a detector: its backbone."""
    input_px: int
    classes: int
    params: int
    macs: int
    """Multiply-accumulates of one image's forward pass, in convolutions and linear layers."""
    ssd: SsdSpec | None = None
    """Levels and default boxes of a detector; None for a classifier."""

    @property
    def depth(self) -> int:
        return self.arch.depth

    @property
    def gmac(self) -> float:
        return self.macs / 1e9


def names() -> list[str]:
    """List the names that `build` accepts, in catalogue order."""
    return list(_CATALOGUE)


def describe() -> list[ModelInfo]:
    """List all entries of the catalogue, in order."""
    return list(_CATALOGUE.values())


def info(name: str) -> ModelInfo:
    """Look up the entry called `name`. Raises ConfigError with similar names if there is none."""
    if name not in _CATALOGUE:
        raise ConfigError(f"Unknown model {name!r}. {did_you_mean(name, _CATALOGUE)} `vernier models` lists all.")
    return _CATALOGUE[name]


def is_detector(name: str) -> bool:
    """Whether the network called `name` finds objects; otherwise it tells classes."""
    return info(name).ssd is not None


def build(name: str, **options: Any) -> ResNet | Ssd:
    """Build a network with new weights; `options` are the fields of `Options`, of which `num_classes` is required.

    Initial weights come from torch's default generator. Raises ConfigError for an unknown name or option.
    """
    entry = info(name)
    option_names = [field.name for field in fields(Options)]
    for option in options:
        if option not in option_names:
            raise ConfigError(f"Unknown model option {option!r}. {did_you_mean(option, option_names)}")
    if options.get("num_classes") is None:
        raise ConfigError(f"Model {name!r} needs num_classes: set model.num_classes, or give data that has labels.")
    chosen = Options(**options)
    if entry.ssd is not None:
        from vernier.models.ssd import Ssd

        return Ssd(entry.arch, ssd_spec(name, chosen.box_sizes), chosen, chosen.image_px or entry.input_px)
    if chosen.image_px is not None or chosen.box_sizes:
        raise ConfigError(f"Model options image_px and box_sizes are for detectors, and {name} is a classifier.")
    from vernier.models.resnet import ResNet

    return ResNet(entry.arch, chosen)


def ssd_spec(name: str, box_sizes: tuple[float, ...] = ()) -> SsdSpec:
    """Give the detector part of the entry `name`, with default boxes of other sizes if there are any."""
    spec = info(name).ssd
    if spec is None:
        raise ConfigError(f"{name} is no detector. `vernier models` lists detectors under the family ssd.")
    if not box_sizes:
        return spec
    if len(box_sizes) != 3 or not 0 < box_sizes[0] < box_sizes[1] < box_sizes[2] <= 1:
        raise ConfigError(
            f"model.box_sizes is {list(box_sizes)}; it must be three rising shares of the image, such as "
            "[0.07, 0.15, 0.87]."
        )
    return replace(spec, sizes=(box_sizes[0], box_sizes[1], box_sizes[2]))


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
    name: str,
    family: str,
    arch: Arch,
    params: int,
    macs: int,
    summary: str,
    ssd: SsdSpec | None = None,
    at: tuple[int, int] | None = None,
) -> ModelInfo:
    px, classes = at or _FAMILIES[family]
    cost = {"input_px": px, "classes": classes, "params": params, "macs": macs}
    return ModelInfo(name=name, family=family, summary=summary, arch=arch, ssd=ssd, **cost)


def _backbone(arch: Arch) -> Arch:
    """The first three stages of a ResNet, the last without its stride: SSD's backbone."""
    return replace(arch, blocks=arch.blocks[:3], last_stride=1)


_EXTRAS = ((256, 512), (256, 512), (128, 256), (128, 256), (128, 256))
_MLPERF_SSD = SsdSpec(extras=_EXTRAS)
_NVIDIA_SSD = SsdSpec(extras=_EXTRAS, extra_norm=True)
_NVIDIA_SSD_18 = SsdSpec(extras=(*_EXTRAS[:4], (128, 128)), extra_norm=True)
_SMALL_SSD = SsdSpec(extras=((32, 64),), extra_norm=True, sizes=(0.15, 0.24, 0.38), inner_ratios=(2,), max_levels=3)


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
