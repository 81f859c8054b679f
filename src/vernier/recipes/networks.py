"""A network where a recipe is expected: plain settings to train it, and recipes with another network than their own.

A network's name means the network as published: its own width, stem and image size.
"""

from dataclasses import replace

from vernier.config import Augment, Config, Data, Model, Recipe, Schedule
from vernier.errors import ConfigError
from vernier.models import info, is_detector
from vernier.optim.kinds.sgd import Sgd
from vernier.references import given

from .detection import mlperf_ssd
from .small_sets import cifar10, ssd_shapes_quick


def plain_recipe(name: str) -> Recipe:
    """Plain settings for a network of the catalogue as published; the data is the person's to name.

    Classifiers: SGD, 0.1 per 256 images, cosine over 90 epochs after five of warm-up; small ones as ResNet-20 on
    CIFAR-10. Detectors: as MLPerf's SSD, or as the built-in small one.
    """
    entry = info(name)
    if is_detector(name):
        base = mlperf_ssd() if entry.input_px >= 300 else ssd_shapes_quick()
    elif entry.input_px <= 32:
        base = cifar10()
    else:
        base = Recipe(
            global_batch=256,
            augment=Augment(crop="random-resized"),
            optim=Sgd(lr=0.1, lr_batch=256, momentum=0.9, weight_decay=1e-4),
            schedule=Schedule(kind="cosine", epochs=90.0, warmup_epochs=5.0),
        )
    return replace(
        base,
        name=name,
        about=f"{name} as published, with plain settings",
        source="Vernier",
        published=(),
        model=Model(name=name),
        data=replace(_sized(base.data, entry.input_px), source=""),
    )


def with_network(config: Config, name: str) -> Config:
    """The recipe with another network as published; its image size is the network's own unless both have the same.

    The recipe gets the network's name too, and loses its published results.
    """
    recipe, entry = config.recipe, info(name)
    if is_detector(name) != is_detector(recipe.model.name):
        kinds = ("classifiers", "detectors")
        raise ConfigError(
            f"{name} is one of the {kinds[is_detector(name)]}, and {recipe.name} is a recipe for "
            f"{kinds[is_detector(recipe.model.name)]}. Give {name} as the recipe, and omit {given('model.name', name)}."
        )
    data = recipe.data
    if entry.input_px != info(recipe.model.name).input_px:
        data = _sized(data, entry.input_px)
    model = replace(recipe.model, name=name, width=None, stem="default", blurpool=False, box_sizes=(), unused_outputs=0)
    if model == recipe.model:
        return config
    changed = replace(
        recipe,
        name=f"{recipe.name}-{name}",
        published=(),
        model=model,
        data=data,
        augment=recipe.augment
        if data is recipe.data
        else replace(recipe.augment, start_px=None, phase_px=(), phase_epochs=()),
    )
    return replace(config, recipe=changed)


def _sized(data: Data, px: int) -> Data:
    """The same data at another image size, evaluated at that size."""
    return replace(data, image_px=px, eval_px=0, eval_short_side_px=0)


def named_after_changes(config: Config, base: Config) -> Config:
    """The recipe's name with what a person changed about the network and the image size, for a run's directory."""
    recipe, own = config.recipe, base.recipe
    parts = [recipe.name]
    if recipe.name == own.name:
        if recipe.model.width != own.model.width:
            parts.append(f"width{recipe.model.width or info(recipe.model.name).width}")
        if recipe.model.stem != own.model.stem:
            parts.append(f"{recipe.model.stem}-stem")
        if recipe.data.image_px != own.data.image_px:
            parts.append(f"{recipe.data.image_px}px")
    return replace(config, recipe=replace(recipe, name="-".join(parts)))
