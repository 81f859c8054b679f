"""The built-in recipes: functions that return a Recipe, whose docstring gives its source, expected result and cost.

One file per source. A recipe does not fix hardware or precision; where a published result depends on them, its
`published` says so. May import `config`, `models`, `records` and `errors`. `python -m vernier.recipes` prints
docs/recipes.md.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vernier.config import Changed, Config, Published, Recipe, apply_changes, load_file, setting_name
from vernier.errors import ConfigError, did_you_mean
from vernier.frozen import frozen
from vernier.models import is_detector
from vernier.models import names as network_names
from vernier.records.codec import omitted
from vernier.references import given

from . import detection, habana, modern, nvidia, small_sets, study
from .networks import named_after_changes, plain_recipe, with_network

DEFAULT = "shapes-quick"
FILE_SUFFIXES = (".toml", ".json")

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


def get_or_plain(name: str) -> Recipe:
    """Give a built-in recipe, or plain settings for a network. Raises ConfigError with similar names of both."""
    if name in network_names():
        return plain_recipe(name)
    if name not in BUILT_IN:
        raise ConfigError(
            f"There is no recipe or network {name!r}. {did_you_mean(name, [*BUILT_IN, *network_names()])} "
            "A file of your own ends in .toml."
        )
    return BUILT_IN[name]()


def notes(name: str) -> str:
    """Give the docstring of a recipe: source, expected result, cost, command."""
    return inspect.getdoc(BUILT_IN[name]) or ""


def load(name_or_file: str) -> Config:
    """Load a built-in recipe by name, plain settings for a network by its name, or a .toml or .json file."""
    if name_or_file.endswith(FILE_SUFFIXES):
        return load_file(Path(name_or_file))
    return Config(recipe=get_or_plain(name_or_file))


def change(config: Config, flags: Mapping[str, object], settings: Sequence[str], *, small: bool = False) -> Changed:
    """Apply flags and `--set` to a recipe (`config.changes`); another network comes as published.

    `small`: shrink the recipe for `--smoke` before the other changes.
    """
    flags, others = dict(flags), []
    network = flags.pop("model.name", None)
    for assignment in settings:
        path, _, value = assignment.partition("=")
        if setting_name(path.strip()) == "recipe.model.name":
            network = value.strip().strip("\"'")
        else:
            others.append(assignment)
    base = with_network(config, str(network)) if network is not None else config
    base = smoke(base) if small else base
    changed = apply_changes(base, flags, others)
    named = changed.named | ({"recipe.model.name"} if network is not None else set())
    return replace(changed, config=named_after_changes(changed.config, base), named=frozenset(named))


def reference(recipe: Recipe) -> Recipe | None:
    """Give the built-in recipe that a changed one is based on, by the start of its name, to compare it with."""
    bases = [name for name in BUILT_IN if recipe.name == name or recipe.name.startswith(f"{name}-")]
    return get(max(bases, key=len)) if bases else None


IMAGENET_TRAIN, COCO_TRAIN = 1_281_167, 117_266
_CLASSIFICATION = {
    "": (IMAGENET_TRAIN, 1000),
    "shapes": (8_000, 10),
    "fashion-mnist": (60_000, 10),
    "cifar10": (50_000, 10),
}
_DETECTION = {"": (COCO_TRAIN, 80), "shapes": (4_000, 10), "bccd": (205, 3)}
"""Training images and classes of the sets that recipes are written for; without a name ImageNet and COCO."""


@frozen
class DataSize:
    """Training images and classes of a recipe's data, and where the numbers are from."""

    images: int
    classes: int
    origin: str


def train_images(recipe: Recipe) -> int:
    """Number of training images the recipe was written for: ImageNet's or COCO's, unless it names another set."""
    sets = _DETECTION if is_detector(recipe.model.name) else _CLASSIFICATION
    return sets.get(recipe.data.source, sets[""])[0]


def data_size(recipe: Recipe) -> DataSize:
    """Size of the recipe's data, without rendering or fetching it; a folder is listed. Raises ConfigError."""
    source, detector = recipe.data.source, is_detector(recipe.model.name)
    sets = _DETECTION if detector else _CLASSIFICATION
    if source in sets:
        images, classes = sets[source]
        assumed = f"{'COCO' if detector else 'ImageNet'}'s, as no {given('data.source')} is given"
        return DataSize(images=images, classes=classes, origin=f"those of {source}" if source else assumed)
    from vernier.data.sources import open_boxes, open_split

    listing = (open_boxes if detector else open_split)(
        source, "train", val_share=recipe.data.val_share, hold_out=recipe.data.hold_out
    )
    return DataSize(images=len(listing), classes=len(listing.classes), origin=f"counted in {source}")


@frozen
class RecipeRow:
    """One row of `vernier recipes`. Every published result names its global batch."""

    name: str
    data: str
    model: str
    epochs: float
    global_batch: int
    published: tuple[Published, ...]
    source: str
    estimated_device_hours: float | None = omitted()
    estimated_device_hours_range: tuple[float, float] | None = omitted()


def table() -> list[RecipeRow]:
    """List the built-in recipes, one row each."""
    return [
        RecipeRow(
            name=r.name,
            data=r.data.source or ("COCO" if is_detector(r.model.name) else "ImageNet"),
            model=r.model.name,
            epochs=r.schedule.epochs,
            global_batch=r.global_batch,
            published=tuple(replace(p, global_batch=p.global_batch or r.global_batch) for p in r.published),
            source=r.source,
        )
        for r in (get(name) for name in BUILT_IN)
    ]


def published_text(recipe: Recipe) -> str:
    """Write the first two published results in short: mean, deviation and precision."""
    return "; ".join(
        (f"{p.metric} " if p.metric != recipe.published[0].metric else "")
        + f"{p.mean:g}"
        + (f" ± {p.sd:g}" if p.sd is not None else "")
        + (f" ({p.precision})" if p.precision else "")
        + (" TTA" if recipe.eval.flip_tta else "")
        for p in recipe.published[:2]
    )


def result_text(recipe: Recipe) -> str:
    """Write the first published result so that it fits a table: 77.23 ± 0.04 %, 73.8 % TTA, AP 0.268 ± 0.001."""
    if not recipe.published:
        return ""
    first = recipe.published[0]
    if first.metric == "AP":
        return f"AP {first.mean:.4g}" if first.sd is None else f"AP {first.mean:.3f} ± {first.sd:.3f}"
    spread = "" if first.sd is None else f" ± {first.sd:g}"
    return f"{first.mean:g}{spread} %{' TTA' if recipe.eval.flip_tta else ''}"


def best_published(network: str) -> tuple[str, Recipe] | None:
    """Give the data set and the recipe with the best published result of a network; None where there is none."""
    rows = [row for row in table() if row.model == network and row.published]
    best = max(rows, key=lambda row: row.published[0].mean, default=None)
    return None if best is None else (best.data, get(best.name))


def smoke(config: Config) -> Config:
    """Shrink a recipe so that it can be tried anywhere: two steps of eight rendered images, one evaluation.

    It finds mistakes in a recipe's settings; what it learns means nothing.
    """
    recipe = config.recipe
    data = replace(recipe.data, source="shapes", image_px=96, eval_px=0, eval_short_side_px=0)
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
        augment=replace(recipe.augment, start_px=32 if recipe.augment.start_px else None, phase_px=(), phase_epochs=()),
    )
    return replace(
        config,
        recipe=small,
        machine=replace(config.machine, eval_batch=8, workers=1),
        limits=replace(config.limits, max_steps=2, max_eval_steps=1, smoke=True),
    )
