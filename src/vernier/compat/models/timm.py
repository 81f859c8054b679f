"""Models of timm: `timm:convnext_atto`, `timm:resnet18.a1_in1k`, `timm:vit_tiny_patch16_224(drop_path_rate=0.1)`.

Size, mean, standard deviation, crop and interpolation are those that timm publishes for the weights of the name. The
weights themselves are a weights file by name: `--weights timm:resnet18.a1_in1k`, which timm fetches and caches.
"""

from functools import cache, partial
from pathlib import Path
from typing import Any

from torch import nn

from vernier.errors import ConfigError, RunFailed, did_you_mean
from vernier.models.contract import Entry, Family, Options
from vernier.models.naming import State
from vernier.models.weights import WeightFormat
from vernier.references import given, use

from .adapting import OUTSIDE, build_outside, import_library, split_name

_PREFIX = "timm:"


@cache
def find(name: str) -> tuple[Entry, Family]:
    """The model of a name. Raises ConfigError if timm has none, or cannot be imported."""
    own_name, arguments = split_name(name)
    timm = import_library("timm", name)
    if not timm.is_model(own_name.partition(".")[0]):
        hint = did_you_mean(own_name.partition(".")[0], timm.list_models())
        raise ConfigError(f"{given('model.name', name)}: timm {timm.__version__} has no such model. {hint}")
    if loading := [key for key in arguments if key.startswith(("pretrained", "checkpoint"))]:
        raise ConfigError(f"{given('model.name', name)}: omit {loading[0]}. Use {use('model.weights', slot='NAME')}.")
    tags = timm.list_pretrained(f"{own_name.partition('.')[0]}.*")
    if "." in own_name and own_name not in tags:
        raise ConfigError(f"{given('model.name', name)}: timm has no such weights. {did_you_mean(own_name, tags)}")
    published = timm.get_pretrained_cfg(own_name) or timm.models.PretrainedCfg()

    def build(options: Options) -> nn.Module:
        fixed = {"img_size": options.image_px} if published.fixed_input_size and options.image_px else {}
        keywords = {"num_classes": options.num_classes, "in_chans": options.in_channels, **fixed, **arguments}
        classifier = published.classifier if isinstance(published.classifier, str) else ""
        return build_outside(name, options.num_classes, partial(timm.create_model, own_name, **keywords), classifier)

    return Entry(
        name=name,
        family="timm",
        summary=f"{own_name} of timm {timm.__version__}",
        input_px=published.input_size[1],
        classes=published.num_classes,
        width=0,
        preparation=_preparation(published),
        build=build,
    ), OUTSIDE


def _preparation(published: Any) -> tuple[tuple[str, Any], ...]:
    """The settings of `data` that evaluate as timm's own validation does."""
    px = (published.test_input_size or published.input_size)[1]
    crop = published.test_crop_pct or published.crop_pct
    return (
        ("eval_px", px),
        ("eval_short_side_px", int(px / crop)),
        ("mean", tuple(published.mean)),
        ("std", tuple(published.std)),
        ("interpolation", "bilinear" if published.interpolation == "bilinear" else "bicubic"),
    )


def _find_weights(path: Path) -> Path | None:
    return path if str(path).startswith(_PREFIX) else None


def _read_weights(path: Path) -> State:
    timm, name = import_library("timm", str(path)), str(path).removeprefix(_PREFIX)
    if not timm.is_model_pretrained(name):
        base = name.partition(".")[0]
        near = did_you_mean(name, timm.list_pretrained(f"{base}.*")) or did_you_mean(base, timm.list_models())
        raise ConfigError(f"{given('model.weights', path)}: timm publishes no such weights. {near}")
    try:
        state: State = timm.create_model(name, pretrained=True).state_dict()
    except Exception as error:  # of a library that fetches files in several ways
        raise RunFailed(
            f"timm cannot fetch {name}: {next(iter(str(error).splitlines()), type(error).__name__)}"
        ) from None
    return state


WEIGHTS = WeightFormat(about="timm's weights", find=_find_weights, read=_read_weights)
