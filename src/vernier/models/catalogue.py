"""The catalogue of networks: their names, what they cost, and `build`, the one way to build them.

Importing this module does not import torch, so that commands can list the catalogue quickly; `build` does. The networks
are in `resnet` and `ssd`, their cost is measured in `cost`, weights files of others are read in `weights`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal

from vernier.config import Model
from vernier.errors import ConfigError, did_you_mean
from vernier.frozen import frozen

from .architecture import Arch, Options, SsdSpec

if TYPE_CHECKING:
    from .airbench import AirbenchNet
    from .resnet import ResNet
    from .ssd import Ssd


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


def layer_groups(name: str) -> tuple[str, ...]:
    """What the names of the network's layers start with."""
    if (ssd := info(name).ssd) is not None:
        return ("backbone", *(("pyramid",) if ssd.pyramid else ()), "extras", "loc", "conf")
    arch = info(name).arch
    stem = ("conv1",) if arch.stem == "whitening" else ("conv1", "bn1")
    return (*stem, *(f"layer{stage}" for stage in range(1, len(arch.blocks) + 1)), "fc")


def shown_name(spec: Model) -> str:
    """The network's name with everything about it that is not as published: `resnet50, width 32`."""
    entry = info(spec.name)
    parts = [spec.name]
    if spec.width not in (None, entry.arch.width):
        parts.append(f"width {spec.width}")
    if spec.stem not in ("default", entry.arch.stem):
        parts.append(f"{spec.stem} stem")
    if spec.blurpool:
        parts.append("blur pooling")
    if spec.box_sizes:
        parts.append(f"box sizes {', '.join(f'{size:g}' for size in spec.box_sizes)}")
    return ", ".join(parts)


def build(name: str, **options: Any) -> ResNet | AirbenchNet | Ssd:
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
        from .ssd import Ssd

        return Ssd(entry.arch, ssd_spec(name, chosen.box_sizes), chosen, chosen.image_px or entry.input_px)
    if chosen.image_px is not None or chosen.box_sizes:
        raise ConfigError(f"Model options image_px and box_sizes are for detectors, and {name} is a classifier.")
    if entry.arch.block == "pooled":
        _refuse_residual_options(name, chosen)
        from .airbench import AirbenchNet

        return AirbenchNet(entry.arch, chosen)
    from .resnet import ResNet

    return ResNet(entry.arch, chosen)


def _refuse_residual_options(name: str, options: Options) -> None:
    """Options that a network without residual blocks does not have. Raises ConfigError."""
    for option in ("init", "zero_gamma", "stem", "drop_path", "blurpool"):
        if getattr(options, option) != next(f.default for f in fields(Options) if f.name == option):
            raise ConfigError(
                f"model.{option} = {getattr(options, option)} has no effect on {name}, which is no residual network. "
                f"Leave model.{option} out."
            )


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


def _basic(*blocks: int, **shape: Any) -> Arch:
    return Arch(block="basic", blocks=blocks, **shape)


def _bottleneck(*blocks: int, **shape: Any) -> Arch:
    return Arch(block="bottleneck", blocks=blocks, **shape)


def _small(blocks: int, shortcut: Literal["projection", "pad"] = "projection") -> Arch:
    return _basic(blocks, blocks, blocks, width=16, shortcut=shortcut, stem="small")


_EXTRAS = ((256, 512), (256, 512), (128, 256), (128, 256), (128, 256))
_MLPERF_SSD = SsdSpec(extras=_EXTRAS)
_NVIDIA_SSD = SsdSpec(extras=_EXTRAS, extra_norm=True)
_NVIDIA_SSD_18 = SsdSpec(extras=(*_EXTRAS[:4], (128, 128)), extra_norm=True)
_PYRAMID_SSD = SsdSpec(
    extras=((128, 128),), pyramid=128, extra_norm=True, sizes=(0.06, 0.15, 0.6), inner_ratios=(2,), max_levels=4
)
_SMALL_SSD = SsdSpec(extras=((32, 64),), extra_norm=True, sizes=(0.15, 0.24, 0.38), inner_ratios=(2,), max_levels=3)


_V15 = "bottlenecks, stride in the 3x3 (v1.5: torchvision, NVIDIA, Habana)"
_V1 = "bottlenecks, stride in the first 1x1 (He et al. 2015)"
_SAME = "the same network as {}: basic blocks have only one form"
_PYRAMID = "four levels on a light feature pyramid, for fine-tuning on few photographs (Vernier's own)"
_CIFAR = "He et al. 2015 section 4.2: 16/32/64 channels, parameter-free shortcuts"
_AIRBENCH = "eight plain layers behind a whitening one (Jordan 2024, airbench94): 64/256/256 channels"
_SMALL = "basic blocks in three stages for small images, projection shortcuts"


def _family(
    family: str, input_px: int, classes: int, *rows: tuple[str, Arch, int, int, str], ssd: SsdSpec | None = None
) -> list[ModelInfo]:
    """Entries from rows of name, architecture, parameters, multiply-accumulates at this size, and summary."""
    return [
        ModelInfo(
            name=name,
            family=family,
            summary=summary,
            arch=arch,
            ssd=ssd,
            params=params,
            macs=macs,
            input_px=input_px,
            classes=classes,
        )
        for name, arch, params, macs, summary in rows
    ]


# The counts are facts about the networks; a test builds every one and compares.
_CATALOGUE: dict[str, ModelInfo] = {
    entry.name: entry
    for entry in (
        *_family(
            "resnet",
            224,
            1000,
            ("resnet18", _basic(2, 2, 2, 2), 11_689_512, 1_814_073_344, "basic blocks"),
            ("resnet34", _basic(3, 4, 6, 3), 21_797_672, 3_663_761_408, "basic blocks"),
            ("resnet50", _bottleneck(3, 4, 6, 3), 25_557_032, 4_089_184_256, _V15),
            ("resnet101", _bottleneck(3, 4, 23, 3), 44_549_160, 7_801_405_440, _V15),
            ("resnet152", _bottleneck(3, 8, 36, 3), 60_192_808, 11_513_626_624, _V15),
        ),
        *_family(
            "resnet-v1",
            224,
            1000,
            ("resnet18-v1", _basic(2, 2, 2, 2), 11_689_512, 1_814_073_344, _SAME.format("resnet18")),
            ("resnet34-v1", _basic(3, 4, 6, 3), 21_797_672, 3_663_761_408, _SAME.format("resnet34")),
            ("resnet50-v1", _bottleneck(3, 4, 6, 3, stride_in="1x1"), 25_557_032, 3_857_973_248, _V1),
            ("resnet101-v1", _bottleneck(3, 4, 23, 3, stride_in="1x1"), 44_549_160, 7_570_194_432, _V1),
            ("resnet152-v1", _bottleneck(3, 8, 36, 3, stride_in="1x1"), 60_192_808, 11_282_415_616, _V1),
        ),
        *_family(
            "resnext",
            224,
            1000,
            (
                "resnext50-32x4d",
                _bottleneck(3, 4, 6, 3, groups=32, group_width=4),
                25_028_904,
                4_230_479_872,
                "grouped 3x3, 32 groups of 4",
            ),
            (
                "resnext101-32x4d",
                _bottleneck(3, 4, 23, 3, groups=32, group_width=4),
                44_177_704,
                7_969_996_800,
                "grouped 3x3, 32 groups of 4 (NVIDIA's and Habana's ResNeXt-101)",
            ),
            (
                "resnext101-32x8d",
                _bottleneck(3, 4, 23, 3, groups=32, group_width=8),
                88_791_336,
                16_414_015_488,
                "grouped 3x3, 32 groups of 8",
            ),
            (
                "resnext101-64x4d",
                _bottleneck(3, 4, 23, 3, groups=64, group_width=4),
                83_455_272,
                15_460_270_080,
                "grouped 3x3, 64 groups of 4",
            ),
            (
                "se-resnext101-32x4d",
                _bottleneck(3, 4, 23, 3, groups=32, group_width=4, squeeze=16),
                45_251_128,
                7_971_037_184,
                "resnext101-32x4d with NVIDIA's squeeze-and-excitation, 16 wide in every block",
            ),
        ),
        *_family(
            "resnet-cifar",
            32,
            10,
            ("resnet20-cifar", _small(3, "pad"), 269_722, 40_551_040, _CIFAR),
            ("resnet32-cifar", _small(5, "pad"), 464_154, 68_862_592, _CIFAR),
            ("resnet44-cifar", _small(7, "pad"), 658_586, 97_174_144, _CIFAR),
            ("resnet56-cifar", _small(9, "pad"), 853_018, 125_485_696, _CIFAR),
            ("resnet110-cifar", _small(18, "pad"), 1_727_962, 252_887_680, _CIFAR),
        ),
        *_family(
            "resnet-small",
            32,
            10,
            ("resnet8-small", _small(1), 78_042, 12_501_632, _SMALL),
            ("resnet14-small", _small(2), 175_258, 26_657_408, _SMALL),
            ("resnet20-small", _small(3), 272_474, 40_813_184, _SMALL),
        ),
        *_family(
            "airbench",
            32,
            10,
            (
                "airbench94",
                Arch(block="pooled", blocks=(1, 1, 1), multiples=(1, 4, 4), stem="whitening"),
                1_972_792,
                118_147_360,
                _AIRBENCH,
            ),
        ),
        *_family(
            "ssd",
            300,
            81,
            (
                "ssd300-resnet34",
                _basic(3, 4, 6, last_stride=1),
                19_972_534,
                15_862_078_720,
                "8732 default boxes (MLPerf, Google, Habana)",
            ),
            ssd=_MLPERF_SSD,
        ),
        *_family(
            "ssd",
            300,
            81,
            (
                "ssd300-resnet18",
                _basic(2, 2, 2, last_stride=1),
                14_048_310,
                7_781_466_880,
                "8732 default boxes, batch norm in the extra levels (NVIDIA's SSD300 v1.1)",
            ),
            ssd=_NVIDIA_SSD_18,
        ),
        *_family(
            "ssd",
            300,
            81,
            (
                "ssd300-resnet50",
                _bottleneck(3, 4, 6, last_stride=1),
                22_894_902,
                20_150_906_112,
                "8732 default boxes, batch norm in the extra levels (NVIDIA's SSD300 v1.1)",
            ),
            (
                "ssd300-resnet50-v1",
                _bottleneck(3, 4, 6, stride_in="1x1", last_stride=1),
                22_894_902,
                20_013_903_104,
                "the same on a v1 backbone, for weights of that kind",
            ),
            ssd=_NVIDIA_SSD,
        ),
        *_family(
            "ssd",
            320,
            81,
            ("ssd-fpn-resnet18", _basic(2, 2, 2), 5_024_400, 4_055_462_400, _PYRAMID),
            ("ssd-fpn-resnet34", _basic(3, 4, 6), 10_411_920, 7_358_476_800, _PYRAMID),
            ("ssd-fpn-resnet50", _bottleneck(3, 4, 6), 10_932_368, 8_000_729_600, _PYRAMID),
            (
                "ssd-fpn-resnet50-v1",
                _bottleneck(3, 4, 6, stride_in="1x1"),
                10_932_368,
                7_686_156_800,
                "the same on a v1 backbone, for weights of that kind",
            ),
            ssd=_PYRAMID_SSD,
        ),
        *_family(
            "ssd",
            128,
            11,
            (
                "ssd-small",
                _basic(1, 1, 1, width=16, last_stride=1),
                224_516,
                46_444_544,
                "three levels on a narrow backbone for the built-in shapes",
            ),
            ssd=_SMALL_SSD,
        ),
    )
}
