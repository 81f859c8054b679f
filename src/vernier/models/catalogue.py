"""The catalogue of models: their names and figures, and `build`, the one way to build them.

Reads what is known of the built-in models from `catalogue.json`, so that commands can list them without torch. The file
is written by `python -m tests.documentation` from the families themselves (`contract`), which are imported to build a
model, and for models of outside packages. Third-party weights are read in `weights`.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vernier.config import Model, names_code
from vernier.config.settings import MODEL_ORIGINS, OWN_MODELS
from vernier.errors import ConfigError, did_you_mean
from vernier.own_code import is_own
from vernier.plugins import load_group, load_plugin
from vernier.store import read_object

from .contract import BACKBONE, GROUP, Entry, Family, Layout, ModelInfo, Options, layout_of

if TYPE_CHECKING:
    from torch import nn

FILE = Path(__file__).with_name("catalogue.json")
Row = dict[str, Any]
"""JSON."""


@cache
def figures() -> Row:
    """The content of `catalogue.json`: `models`, and their `costs` at the sizes that recipes use."""
    return read_object(FILE)


@cache
def _built_in() -> dict[str, ModelInfo]:
    rows = [_with_tuples(row) for row in figures()["models"]]
    return {row["name"]: ModelInfo(**{**row, "layout": Layout(**row["layout"])}) for row in rows}


def _with_tuples(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _with_tuples(value) for key, value in tree.items()}
    return tuple(map(_with_tuples, tree)) if isinstance(tree, list) else tree


@cache
def _entries() -> dict[str, tuple[Entry, Family]]:
    # A built-in name keeps its meaning.
    return {entry.name: (entry, family) for family in reversed(families()) for entry in family.models}


@cache
def names() -> list[str]:
    """List the names that `build` accepts, in catalogue order."""
    # Importing the families imports torch, so they are not asked unless another package has one.
    if any(not point.value.startswith("vernier.") for point in entry_points(group=GROUP)):
        return list({**_built_in(), **_entries()})
    return list(_built_in())


def describe() -> list[ModelInfo]:
    """List all entries of the catalogue, in order."""
    return [info(name) for name in names()]


def info(name: str) -> ModelInfo:
    """Look up the entry called `name`. Raises ConfigError with similar names if there is none."""
    if name in _built_in():
        return _built_in()[name]
    if is_outside(name) or name in names():
        from .trace import describe_entry

        return describe_entry(entry_of(name)[0])
    raise ConfigError(
        f"Unknown model {name!r}. {did_you_mean(name, names())} `vernier models` lists all; your own is mynets:Net."
    )


def entry_of(name: str) -> tuple[Entry, Family]:
    """The declaration of the model called `name`, and its family. Raises ConfigError if there is none."""
    if is_outside(name):
        return _find_outside(name)
    return _entries()[name if name in _entries() else info(name).name]


def is_outside(name: str) -> bool:
    """Whether a name means a model of another code base: `timm:resnet18`, `mynets:Net`, `train.py:Net(width=32)`."""
    return is_own(name)


def _find_outside(name: str) -> tuple[Entry, Family]:
    # Not cached here: a file of a user may have changed since.
    origin = OWN_MODELS if names_code(name) else name.partition(":")[0]
    outside: tuple[Entry, Family] = load_plugin(MODEL_ORIGINS, "model.name", origin, Model().name)(name)
    return outside


def families() -> list[Family]:
    """All families, Vernier's own first."""
    return list(load_group(GROUP, Family).values())


def is_detector(name: str) -> bool:
    """Whether the model called `name` finds objects; otherwise it tells classes."""
    # Outside models tell classes; their code does not run for this answer, as it would for `info`.
    return not is_outside(name) and info(name).detector


def shown_name(spec: Model) -> str:
    """The model's name with everything about it that is not as published: `resnet50, width 32`."""
    if is_outside(spec.name):
        return spec.name
    entry = info(spec.name)
    parts = [spec.name]
    if spec.width not in (None, entry.width):
        parts.append(f"width {spec.width}")
    if spec.stem not in ("default", entry.stem):
        parts.append(f"{spec.stem} stem")
    if spec.blurpool:
        parts.append("blur pooling")
    if spec.padding != "torch":
        parts.append(f"{spec.padding} padding")
    if spec.box_sizes:
        parts.append(f"box sizes {', '.join(f'{size:g}' for size in spec.box_sizes)}")
    return ", ".join(parts)


def build(name: str, **options: Any) -> nn.Module:
    """Build a model with new weights; `options` are the fields of `Options`, of which `num_classes` is required.

    Initial weights come from torch's default generator. Raises ConfigError for an unknown name or option, and for an
    option that has no effect on the model.
    """
    entry, family = entry_of(name)
    defaults = {field.name: field.default for field in fields(Options)}
    for option, value in options.items():
        if option not in defaults:
            raise ConfigError(f"Unknown model option {option!r}. {did_you_mean(option, defaults)}")
        if option not in ("num_classes", "in_channels", *family.options) and value != defaults[option]:
            raise ConfigError(f"model.{option} = {value} has no effect on {name}. Leave model.{option} out.")
    if options.get("num_classes") is None:
        raise ConfigError(f"Model {name!r} needs num_classes: set model.num_classes, or give data that has labels.")
    return build_entry(entry, Options(**options))


def build_entry(entry: Entry, options: Options) -> nn.Module:
    """Build a model that a family declares, and let it carry its name."""
    model = entry.build(options)
    model.catalogue_name = entry.name  # type: ignore[assignment]
    if layout_of(model).detector:
        model.get_submodule(BACKBONE).catalogue_name = f"the backbone of {entry.name}"  # type: ignore[assignment]
    return model
