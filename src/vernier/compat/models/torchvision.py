"""Classifiers of torchvision: `torchvision:efficientnet_b0`, `torchvision:resnet18.IMAGENET1K_V1`.

Images are prepared as for the weights of the name, without one as for torchvision's default weights. The weights
themselves are a weights file by name, `--weights torchvision:efficientnet_b0.IMAGENET1K_V1`, fetched as those of
Vernier's own models are: `data.downloads`.
"""

from functools import cache, partial
from typing import Any

from torch import nn

from vernier.errors import ConfigError, did_you_mean
from vernier.models.contract import Entry, Family, Options
from vernier.references import given

from .adapting import OUTSIDE, build_outside, import_library, split_name


@cache
def find(name: str) -> tuple[Entry, Family]:
    """The model of a name. Raises ConfigError if torchvision has none, or cannot be imported."""
    own_name, arguments = split_name(name)
    own_name, _, tag = own_name.partition(".")
    weights = _weights("model.name", name, own_name, tag)
    preset: Any = weights.transforms()

    def build(options: Options) -> nn.Module:
        if options.in_channels != 3:
            raise ConfigError(f"{given('model.name', name)} takes images of 3 channels, not {options.in_channels}.")
        models = import_library("torchvision.models", name)
        sized = {"image_size": options.image_px} if own_name.startswith("vit_") and options.image_px else {}
        make = partial(models.get_model, own_name, num_classes=options.num_classes, **sized, **arguments)
        return build_outside(name, options.num_classes, make)

    return Entry(
        name=name,
        family="torchvision",
        summary=f"{own_name} of torchvision",
        input_px=preset.crop_size[0],
        classes=len(weights.meta["categories"]),
        width=0,
        preparation=(
            ("eval_short_side_px", preset.resize_size[0]),
            ("mean", tuple(preset.mean)),
            ("std", tuple(preset.std)),
            ("interpolation", preset.interpolation.value),
        ),
        build=build,
    ), OUTSIDE


def weights_file(key: str) -> str:
    """The name of the published file of weights such as `efficientnet_b0.IMAGENET1K_V1`. Raises ConfigError."""
    own_name, _, tag = key.partition(".")
    url: str = _weights("model.weights", f"torchvision:{key}", own_name, tag).url
    return url.rpartition("/")[2]


def _weights(setting: str, name: str, own_name: str, tag: str) -> Any:
    """The weights of a model, which say how images are prepared; without a tag, the default ones."""
    models = import_library("torchvision.models", name)
    known = models.list_models(module=models)
    if own_name not in known:
        raise ConfigError(f"{given(setting, name)}: torchvision has no such model. {did_you_mean(own_name, known)}")
    of_model = models.get_model_weights(own_name)
    tag = tag or "DEFAULT"
    if tag not in of_model.__members__:
        raise ConfigError(f"{given(setting, name)}: no such weights. {did_you_mean(tag, list(of_model.__members__))}")
    return of_model[tag]
