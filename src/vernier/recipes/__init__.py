"""The built-in recipes: TOML files whose notes give the source, the expected result and the cost of each.

One file per source, read by `files`. A recipe does not fix hardware or precision; if a published result depends on
them, its `published` names them. Recipes of other systems are in `compat.recipes` and plug in, as those of outside
packages do. Where a recipe is expected, the name of a network means plain settings for the network as published: its
own width, stem and image size. May import `config`, `models`, `optim`, `records` and `plugins`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from vernier.config import (
    Augment,
    Changed,
    Config,
    Model,
    Published,
    Recipe,
    Schedule,
    apply_changes,
    load_file,
    setting_name,
)
from vernier.errors import ConfigError, did_you_mean
from vernier.frozen import frozen
from vernier.models import info, is_detector, is_outside
from vernier.models import names as network_names
from vernier.optim.kinds.sgd import Sgd
from vernier.plugins import load_group
from vernier.references import command, given, use

from .files import RecipeGroup, read_recipes

DEFAULT = "shapes-quick"
FILE_SUFFIXES = (".toml", ".json")
_FILES = ("small_sets", "modern", "detection")
_OTHERWISE = "A file of your own ends in .toml."


@cache
def sources() -> dict[str, dict[str, Callable[[], Recipe]]]:
    """Give the functions of all recipes by heading and name: the core's, then those that plug in.

    A name of the core keeps its meaning whatever else is installed.
    """
    core = [read_recipes(Path(__file__).with_name(name)) for name in _FILES]
    groups: list[RecipeGroup] = [*core, *load_group("vernier.recipes", Mapping).values()]  # type: ignore[type-abstract]
    by_heading, taken = dict[str, dict[str, Callable[[], Recipe]]](), set[str]()
    for heading, functions in (item for group in groups for item in group.items()):
        new = {name: make for make in functions if (name := make().name) not in taken}
        by_heading[heading] = by_heading.get(heading, {}) | new
        taken |= new.keys()
    return by_heading


def _makers() -> dict[str, Callable[[], Recipe]]:
    return {name: make for recipes in sources().values() for name, make in recipes.items()}


def names() -> tuple[str, ...]:
    """Give the names of all recipes, those of installed packages included."""
    return tuple(_makers())


def get(name: str) -> Recipe:
    """Give a built-in recipe. Raises ConfigError with similar names if there is none."""
    if name not in _makers():
        raise ConfigError(f"There is no recipe {name!r}. {did_you_mean(name, names())} {_OTHERWISE}")
    return _makers()[name]()


def _get_or_plain(name: str) -> Recipe:
    """Give a built-in recipe, or plain settings for a network. Raises ConfigError with similar names of both."""
    if name in network_names() or is_outside(name):
        return _plain_recipe(name)
    if name not in _makers():
        _refuse_path(Path(name))
        near = did_you_mean(name, [*names(), *network_names()])
        raise ConfigError(f"There is no recipe or network {name!r}. {near} {_OTHERWISE}")
    return _makers()[name]()


def _refuse_path(path: Path) -> None:
    """Refuse a folder or a file of weights in place of a recipe, with the command that takes it. Raises ConfigError."""
    if path.suffix.lower() in (".safetensors", ".pth", ".pt", ".th", ".onnx"):
        raise ConfigError(f"{path} {'is a model, not a recipe' if path.exists() else 'does not exist'}. {_OTHERWISE}")
    if path.is_dir():
        raise ConfigError(
            f"{path} is a folder, and this needs a recipe or a network. {command('finetune', path)} trains on "
            f"photographs of your own, {use('data.source', path)} trains a recipe on them."
        )


def notes(name: str) -> str:
    """Give the notes on a recipe: source, expected result, cost, command."""
    return inspect.getdoc(_makers()[name]) or ""


def load(name_or_file: str) -> Config:
    """Load a built-in recipe by name, plain settings for a network by its name, or a .toml or .json file."""
    if name_or_file.lower().endswith(FILE_SUFFIXES):
        return load_file(Path(name_or_file))
    return Config(recipe=_get_or_plain(name_or_file))


def change(config: Config, flags: Mapping[str, object], settings: Sequence[str], *, small: bool = False) -> Changed:
    """Apply flags and `--set` to a recipe (`config.changes`); another network comes as published.

    `small`: shrink the recipe for `--smoke` before the other changes.
    """
    flags, others = dict(flags), []
    network = flags.pop("model.name", None)
    for assignment in settings:
        path, _, value = assignment.partition("=")
        if setting_name(path.strip()) == "recipe.model.name":
            # With quotes, as in a TOML file, or without, as on a command line.
            network = value.strip().strip("\"'")
        else:
            others.append(assignment)
    base = _with_network(config, str(network)) if network is not None else config
    base = _smoke(base) if small else base
    changed = apply_changes(base, flags, others)
    named = changed.named | ({"recipe.model.name"} if network is not None else set())
    return replace(changed, config=_named_after_changes(changed.config, base), named=frozenset(named))


def reference(recipe: Recipe) -> Recipe | None:
    """Give the built-in recipe that a changed one is based on, by the start of its name, to compare it with."""
    bases = [name for name in names() if recipe.name == name or recipe.name.startswith(f"{name}-")]
    # The longest one: the name of a recipe may begin with that of another.
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
class _DataSize:
    """Training images and classes of a recipe's data, and where the numbers are from."""

    images: int
    classes: int
    origin: str


def train_images(recipe: Recipe) -> int:
    """Number of training images the recipe was written for: ImageNet's or COCO's, unless it names another set."""
    sets = _DETECTION if is_detector(recipe.model.name) else _CLASSIFICATION
    return sets.get(recipe.data.source, sets[""])[0]


def data_size(recipe: Recipe) -> _DataSize:
    """Size of the recipe's data, without rendering or fetching it; a folder is listed. Raises ConfigError."""
    source, detector = recipe.data.source, is_detector(recipe.model.name)
    sets = _DETECTION if detector else _CLASSIFICATION
    if source in sets:
        images, classes = sets[source]
        assumed = f"{'COCO' if detector else 'ImageNet'}'s, as no {given('data.source')} is given"
        return _DataSize(images=images, classes=classes, origin=f"those of {source}" if source else assumed)
    # Here, since it imports NumPy, which lists of recipes do not need.
    from vernier.data.sources import open_boxes, open_split

    listing = (open_boxes if detector else open_split)(
        source, "train", val_share=recipe.data.val_share, hold_out=recipe.data.hold_out
    )
    return _DataSize(images=len(listing), classes=len(listing.classes), origin=f"counted in {source}")


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
        for r in map(get, names())
    ]


def _smoke(config: Config) -> Config:
    """Shrink a recipe so that it can be tried anywhere: two steps of eight rendered images, one evaluation.

    It finds mistakes in a recipe's settings; what it learns means nothing.
    """
    recipe = config.recipe
    data = replace(recipe.data, source="shapes", image_px=96, eval_px=0, eval_short_side_px=0)
    if not is_detector(recipe.model.name):
        short_side = max(64, round(64 * recipe.data.eval_short_side_px / recipe.data.eval_px))
        data = replace(data, image_px=64, eval_px=64, eval_short_side_px=short_side)
    # Rendered images have three channels.
    if len(data.mean) == 1:
        data = replace(data, mean=data.mean * 3, std=data.std * 3)
    small = replace(
        recipe,
        global_batch=8,
        model=replace(
            recipe.model, width=16 if info(recipe.model.name).width else None, num_classes=None, batch_norm_images=None
        ),
        data=data,
        augment=replace(recipe.augment, start_px=32 if recipe.augment.start_px else None, phase_px=(), phase_epochs=()),
    )
    return replace(
        config,
        recipe=small,
        machine=replace(config.machine, eval_batch=8, workers=1),
        limits=replace(config.limits, max_steps=2, max_eval_steps=1, smoke=True),
    )


def _plain_recipe(name: str) -> Recipe:
    """Plain settings for a network of the catalogue as published; the data must be given.

    Classifiers: SGD, 0.1 per 256 images, cosine over 90 epochs after five of warm-up; small ones as ResNet-20 on
    CIFAR-10. Detectors: as MLPerf's SSD, or as the built-in small one.
    """
    entry = info(name)
    if is_detector(name):
        base = get("mlperf-ssd" if entry.input_px >= 300 else "ssd-shapes-quick")
    elif entry.input_px <= 32:
        base = get("cifar10")
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
        data=replace(entry.prepare(base.data), source=""),
    )


def _with_network(config: Config, name: str) -> Config:
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
    if entry.preparation or entry.input_px != info(recipe.model.name).input_px:
        data = entry.prepare(data)
    model = replace(recipe.model, name=name, width=None, stem="default", blurpool=False, box_sizes=(), unused_outputs=0)
    model = replace(model, padding="torch")
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


def _named_after_changes(config: Config, base: Config) -> Config:
    """The recipe's name with the changes to the network and the image size, for a run's directory."""
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
