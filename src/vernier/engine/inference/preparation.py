"""How images are prepared for a network: as published where a weights file names itself, else by a stated default.

Publications are listed in preparation.toml. What an exported file of Vernier says is read by `model_file`.
"""

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from vernier.config import Augment, Config, Data, Model, Recipe
from vernier.frozen import frozen
from vernier.models import info, names
from vernier.references import use
from vernier.store import DamagedFile, read_json

IMAGENET_MEAN, IMAGENET_STD = Data().mean, Data().std
DEFAULT = (
    "Vernier's default; the file does not contain how it was evaluated. "
    f"{use('data.eval_px', slot='PIXELS')} changes it"
)


@frozen
class _Published:
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


_FILES = {
    file: _Published(network="", **{key: value for key, value in group.items() if key != "files"})
    for group in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["published"]
    for file in group["files"]
}
"""How the weights of a file, by its name without the ending, were evaluated; the file is named after its network."""
_LARGE = re.compile(r"(resnet|resnext)(\d+)(?:_(\d+x\d+)d?)?")


def published_as(path: Path) -> _Published | None:
    """The publication a file belongs to: by its own name, or by timm's config.json beside it."""
    return _of_name(path.name) or _of_timm_config(path)


def _of_name(file: str) -> _Published | None:
    stem = file.removesuffix(".safetensors").partition(".pth")[0].partition(".th")[0].removesuffix(".pt")
    if (published := _FILES.get(stem)) is None:
        return None
    by = f"timm {stem}" if published.by == "timm" else published.by
    return replace(published, network=_network(stem, small=published.eval_px == 32), by=by)


def _network(text: str, *, small: bool = False) -> str:
    """The catalogue's name of a network that a file is named after."""
    match = _LARGE.search(text)
    assert match is not None
    family, depth, groups = match.groups()
    if small:
        return f"{family}{depth}-cifar"
    return f"{family}{depth}-{groups}d" if groups else f"{family}{depth}"


def _of_timm_config(path: Path) -> _Published | None:
    """timm's models on the Hugging Face hub: `model.safetensors` with `config.json` beside it."""
    try:
        tree: Any = read_json(path.with_name("config.json"))
        published = tree["pretrained_cfg"]
        network = str(tree["architecture"]).replace("_", "-")
        px = int((published.get("test_input_size") or published["input_size"])[1])
        # 0.875 is what timm assumes.
        short_side_px = int(px / float(published.get("test_crop_pct") or published.get("crop_pct") or 0.875))
        mean, std = (tuple(float(v) for v in published[key]) for key in ("mean", "std"))
    except (OSError, DamagedFile, ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        return None  # another program's config.json
    if network not in names():
        return None
    labels = tree.get("label_names") or published.get("label_names") or ()
    return _Published(
        network=network,
        by=f"timm {tree['architecture']}.{published.get('tag') or 'untagged'}, config.json",
        eval_px=px,
        short_side_px=short_side_px,
        interpolation="bicubic" if published.get("interpolation") == "bicubic" else "bilinear",
        mean=mean,
        std=std,
        classes=tuple(map(str, labels)) if isinstance(labels, list) else (),
    )


def foreign_config(model: str, published: _Published | None = None) -> Config:
    """The settings to use anybody's weights of a catalogue model with: as published, or the default.

    The default is the model's own resolution, and ImageNet's mean and standard deviation, as for nearly all weights.
    """
    entry = info(model)
    data = entry.prepare(Data(image_px=entry.input_px))
    if published is not None:
        data = published.of(data)
    augment = Augment(crop="none")  # the default crop is not for detectors
    return Config(recipe=Recipe(name=f"{model}-weights", model=Model(name=model), data=data, augment=augment))
