"""The built-in recipes: functions that return a Recipe, whose docstring gives its source, expected result and cost.

One file per source. A recipe does not fix hardware or precision; where a published result depends on them, its
`published` says so. May import `config`, `models`, `records` and `errors`. `python -m vernier.recipes` prints
docs/recipes.md.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vernier.config import Config, Recipe, load_file
from vernier.errors import ConfigError, did_you_mean
from vernier.frozen import frozen
from vernier.models import is_detector
from vernier.recipes import detection, habana, modern, nvidia, small_sets, study
from vernier.records.codec import omitted

DEFAULT = "shapes-quick"

SOURCES: dict[str, tuple[Callable[[], Recipe], ...]] = {
    "Small sets": small_sets.RECIPES,
    "NVIDIA": nvidia.RECIPES,
    "Habana": habana.RECIPES,
    "The variability study": study.RECIPES,
    "Modern": modern.RECIPES,
    "Detectors": detection.RECIPES,
}
BUILT_IN: dict[str, Callable[[], Recipe]] = {make().name: make for group in SOURCES.values() for make in group}


def get(name: str) -> Recipe:
    """Give a built-in recipe. Raises ConfigError with similar names if there is none."""
    if name not in BUILT_IN:
        raise ConfigError(
            f"There is no recipe {name!r}. {did_you_mean(name, BUILT_IN)} A file of your own ends in .toml."
        )
    return BUILT_IN[name]()


def notes(name: str) -> str:
    """Give the docstring of a recipe: source, expected result, cost, command."""
    return inspect.getdoc(BUILT_IN[name]) or ""


def load(name_or_file: str) -> Config:
    """Load a built-in recipe by name, or a .toml or .json file."""
    if name_or_file.endswith((".toml", ".json")):
        return load_file(Path(name_or_file))
    return Config(recipe=get(name_or_file))


def reference(recipe: Recipe) -> Recipe | None:
    """Give the built-in recipe of the same name, to compare a changed one with."""
    return get(recipe.name) if recipe.name in BUILT_IN else None


IMAGENET_TRAIN, COCO_TRAIN = 1_281_167, 117_266
_TRAIN_IMAGES = {"shapes": 8_000, "fashion-mnist": 60_000, "cifar10": 50_000}
_TRAIN_BOXED = {"shapes": 4_000, "bccd": 205}


def train_images(recipe: Recipe) -> int:
    """Number of training images the recipe was written for: ImageNet's or COCO's, unless it names another set."""
    if is_detector(recipe.model.name):
        return _TRAIN_BOXED.get(recipe.data.source, COCO_TRAIN)
    return _TRAIN_IMAGES.get(recipe.data.source, IMAGENET_TRAIN)


@frozen
class RecipeRow:
    """One row of `vernier recipes`."""

    name: str
    model: str
    epochs: float
    global_batch: int
    published: str
    source: str
    estimated_device_hours: float | None = omitted()


def table() -> list[RecipeRow]:
    """List the built-in recipes, one row each."""
    return [
        RecipeRow(
            name=r.name,
            model=r.model.name,
            epochs=r.schedule.epochs,
            global_batch=r.global_batch,
            published=published_text(r),
            source=r.source,
        )
        for r in (get(name) for name in BUILT_IN)
    ]


def published_text(recipe: Recipe) -> str:
    """Write the first two published results in short: mean, deviation and precision."""
    return "; ".join(
        f"{p.mean:g}"
        + (f" +- {p.sd:g}" if p.sd is not None else "")
        + (f" ({p.precision})" if p.precision else "")
        + (" TTA" if recipe.eval.flip_tta else "")
        for p in recipe.published[:2]
    )


def smoke(config: Config) -> Config:
    """Shrink a recipe so that it can be tried anywhere: two steps of eight rendered images, one evaluation.

    It finds mistakes in a recipe's settings; what it learns means nothing.
    """
    recipe = config.recipe
    data = replace(recipe.data, source="shapes", image_px=96, eval_px=96)
    if not is_detector(recipe.model.name):
        short_side = max(64, round(64 * recipe.data.eval_short_side_px / recipe.data.eval_px))
        data = replace(data, image_px=64, eval_px=64, eval_short_side_px=short_side)
    if len(data.mean) == 1:
        data = replace(data, mean=data.mean * 3, std=data.std * 3)
    small = replace(
        recipe,
        global_batch=8,
        model=replace(recipe.model, width=16, num_classes=None, batch_norm_images=None),
        data=data,
        augment=replace(recipe.augment, start_px=32 if recipe.augment.start_px else None),
    )
    return replace(
        config,
        recipe=small,
        machine=replace(config.machine, eval_batch=8, workers=1),
        limits=replace(config.limits, max_steps=2, max_eval_steps=1),
    )
