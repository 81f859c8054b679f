"""How images are prepared for a network: as published where a weights file names itself, else by a stated default.

The sizes are facts of the publishers' own evaluation. torchvision: `models/resnet.py` and `transforms/_presets.py` at
commit e6f0400 (the file names carry a hash). timm: `default_cfgs` of `models/resnet.py` at aa4b585, at the test size
that its `validate.py` uses; the short side is the size divided by the crop share, rounded down. akamaster: `trainer.py`
of pytorch_resnet_cifar10, which resizes nothing. What an exported file of Vernier says is read by `model_file`.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from vernier.config import Augment, Config, Data, Model, Recipe
from vernier.data.preparing.pretrained import TORCHVISION
from vernier.frozen import frozen
from vernier.models import info, names
from vernier.references import use
from vernier.store import DamagedFile, read_json

NO_AUGMENTATION = Augment(crop="none")
"""Of a model that is not trained any more; the default crop is not for detectors."""
IMAGENET_MEAN, IMAGENET_STD = Data().mean, Data().std
DEFAULT = (
    "Vernier's default; the file does not contain how it was evaluated. "
    f"{use('data.eval_px', slot='PIXELS')} changes it"
)


@frozen
class Published:
    """The evaluation that a file was published with: of which network, by whom, how its images were prepared."""

    network: str
    by: str
    eval_px: int
    short_side_px: int
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    classes: tuple[str, ...] = ()

    def of(self, data: Data) -> Data:
        """The settings with this preparation."""
        return replace(
            data,
            eval_px=self.eval_px,
            eval_short_side_px=self.short_side_px,
            interpolation=self.interpolation,
            mean=self.mean,
            std=self.std,
        )


_V1, _V2 = "torchvision IMAGENET1K_V1", "torchvision IMAGENET1K_V2"
_SHORT_SIDE_232 = "resnext101_64x4d"
"""The one network of torchvision's first training that was evaluated as those of the second."""
_FILES: tuple[tuple[str, int, int, Literal["bilinear", "bicubic"], str], ...] = (
    *(
        (
            _V2 if name.endswith("-v2") else _V1,
            224,
            232 if name.endswith("-v2") or file.startswith(_SHORT_SIDE_232) else 256,
            "bilinear",
            file.removesuffix(".pth"),
        )
        for name, file in TORCHVISION.items()
    ),
    (
        "timm",
        288,
        288,
        "bicubic",
        "resnet18_a1_0-d63eafa0 resnet18_a2_0-b61bd467 resnet34_a1_0-46f8f793 resnet34_a2_0-82d47d71 "
        "resnet50_a1_0-14fe96d1 resnet50_a2_0-a2746f79 resnet50_b1k-532a802a resnet50_b2k-1ba180c1 "
        "resnet50_c1-5ba5e060 resnet50_c2-d01e05b2 resnet50_d-f39db8af resnet101_a1h-36d3f2aa "
        "resnet101_a1_0-cdcb52a9 resnet101_a2_0-6edb36c7 resnet152_a1h-dc400468 resnet152_a1_0-2eee8a7a "
        "resnet152_a2_0-b4c6978f resnext50_32x4d_a1h-0146ab0a resnext50_32x4d_a1_0-b5a91a1d "
        "resnext50_32x4d_a2_0-efc76add resnext101_64x4d_c-0d0e0cc0 "
        "resnet18.a1_in1k resnet18.a2_in1k resnet34.a1_in1k resnet34.a2_in1k resnet50.a1_in1k resnet50.a2_in1k "
        "resnet50.b1k_in1k resnet50.b2k_in1k resnet50.c1_in1k resnet50.c2_in1k resnet50.d_in1k resnet101.a1h_in1k "
        "resnet101.a1_in1k resnet101.a2_in1k resnet152.a1h_in1k resnet152.a1_in1k resnet152.a2_in1k "
        "resnext50_32x4d.a1h_in1k resnext50_32x4d.a1_in1k resnext50_32x4d.a2_in1k resnext101_64x4d.c1_in1k",
    ),
    (
        "timm",
        288,
        303,
        "bicubic",
        "resnet34-43635321 resnet50_ram-a26f946b resnet50_ra-85ebb6e5 rw_resnet50-86acaeed resnext50_32x4d_ra-d733960d "
        "resnet34.bt_in1k resnet50.ram_in1k resnet50.ra_in1k resnet50.bt_in1k resnext50_32x4d.ra_in1k",
    ),
    (
        "timm",
        224,
        235,
        "bicubic",
        "resnet18_a3_0-40c531c8 resnet34_a3_0-a20cabb6 resnet50_a3_0-59cae1ef resnet101_a3_0-1db14157 "
        "resnet152_a3_0-134d4688 resnext50_32x4d_a3_0-3e450271 "
        "resnet18.a3_in1k resnet34.a3_in1k resnet50.a3_in1k resnet101.a3_in1k resnet152.a3_in1k "
        "resnext50_32x4d.a3_in1k",
    ),
    ("timm", 224, 224, "bicubic", "resnet50_a1h2_176-001a1197 resnet50.a1h_in1k"),
    (
        "timm",
        224,
        256,
        "bicubic",
        "resnet50_am-6c502b37 gluon_resnet18_v1b-0757602b gluon_resnet34_v1b-c6d82d59 gluon_resnet50_v1b-0ebe02e2 "
        "gluon_resnet101_v1b-3b017079 gluon_resnet152_v1b-c1edb0dd gluon_resnext50_32x4d-e6a097c1 "
        "gluon_resnext101_32x4d-b253c8c4 gluon_resnext101_64x4d-f9a8e184 "
        "resnet50.am_in1k resnet18.gluon_in1k resnet34.gluon_in1k resnet50.gluon_in1k resnet101.gluon_in1k "
        "resnet152.gluon_in1k resnext50_32x4d.gluon_in1k resnext101_32x4d.gluon_in1k resnext101_64x4d.gluon_in1k",
    ),
    (
        "timm",
        224,
        256,
        "bilinear",
        "ig_resnext101_32x8-c38310e5 semi_supervised_resnet18-d92f0530 semi_supervised_resnet50-08389792 "
        "semi_supervised_resnext50_32x4-ddb3e555 semi_supervised_resnext101_32x4-dc43570a "
        "semi_supervised_resnext101_32x8-2cfe2f8b semi_weakly_supervised_resnet18-118f1556 "
        "semi_weakly_supervised_resnet50-16a12f1b semi_weakly_supervised_resnext50_32x4-72679e44 "
        "semi_weakly_supervised_resnext101_32x4-3f87e46b semi_weakly_supervised_resnext101_32x8-b4712904",
    ),
    ("akamaster pytorch_resnet_cifar10", 32, 32, "bilinear", "resnet20-12fca82f resnet44-014dd654"),
)
_LARGE = re.compile(r"(resnet|resnext)(\d+)(?:_(\d+x\d+)d?)?")


def published_as(path: Path) -> Published | None:
    """The publication a file belongs to: by its own name, or by timm's config.json beside it."""
    return _of_name(path.name) or _of_timm_config(path)


def _of_name(file: str) -> Published | None:
    stem = file.removesuffix(".safetensors").partition(".pth")[0].partition(".th")[0].removesuffix(".pt")
    for by, px, short_side, interpolation, files in _FILES:
        if stem in files.split():
            network = _network(stem, small=px == 32)
            label = f"timm {stem}" if by == "timm" else by
            return Published(
                network=network, by=label, eval_px=px, short_side_px=short_side, interpolation=interpolation
            )
    return None


def _network(text: str, *, small: bool = False) -> str:
    """The catalogue's name of a network that a file is named after."""
    match = _LARGE.search(text)
    assert match is not None
    family, depth, groups = match.groups()
    if small:
        return f"{family}{depth}-cifar"
    return f"{family}{depth}-{groups}d" if groups else f"{family}{depth}"


def _of_timm_config(path: Path) -> Published | None:
    """timm's models on the Hugging Face hub: `model.safetensors` with `config.json` beside it."""
    try:
        tree: Any = read_json(path.with_name("config.json"))
        published = tree["pretrained_cfg"]
        network = str(tree["architecture"]).replace("_", "-")
        px = int((published.get("test_input_size") or published["input_size"])[1])
        short_side_px = int(px / float(published.get("test_crop_pct") or published.get("crop_pct") or 0.875))
        mean, std = (tuple(float(v) for v in published[key]) for key in ("mean", "std"))
    except (OSError, DamagedFile, ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        return None  # another program's config.json
    if network not in names():
        return None
    labels = tree.get("label_names") or published.get("label_names") or ()
    return Published(
        network=network,
        by=f"timm {tree['architecture']}.{published.get('tag') or 'untagged'}, config.json",
        eval_px=px,
        short_side_px=short_side_px,
        interpolation="bicubic" if published.get("interpolation") == "bicubic" else "bilinear",
        mean=mean,
        std=std,
        classes=tuple(map(str, labels)) if isinstance(labels, list) else (),
    )


def foreign_config(model: str, published: Published | None = None) -> Config:
    """The settings to use anybody's weights of a catalogue model with: as published, or the default.

    The default is the model's own resolution, and ImageNet's mean and standard deviation, as for nearly all weights.
    """
    data = Data(image_px=info(model).input_px)
    if published is not None:
        data = published.of(data)
    recipe = Recipe(name=f"{model}-weights", model=Model(name=model), data=data, augment=NO_AUGMENTATION)
    return Config(recipe=recipe)
