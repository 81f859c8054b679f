"""The built-in recipes: functions that return a Recipe, whose docstring says where it comes from and what it reaches."""

import inspect
from collections.abc import Callable
from pathlib import Path

from vernier.config import Config, Recipe, load_file
from vernier.errors import ConfigError, did_you_mean
from vernier.recipes import embedded

DEFAULT = "shapes-quick"

BUILT_IN: dict[str, Callable[[], Recipe]] = {
    "shapes-quick": embedded.shapes_quick,
    "fashion-mnist": embedded.fashion_mnist,
    "cifar10": embedded.cifar10,
}


def named(name: str) -> Recipe:
    """A built-in recipe."""
    if name not in BUILT_IN:
        raise ConfigError(
            f"There is no recipe {name!r}. {did_you_mean(name, BUILT_IN)} A file of your own ends in .toml."
        )
    return BUILT_IN[name]()


def notes(name: str) -> str:
    """Its docstring: source, expected result, cost, command."""
    return inspect.getdoc(BUILT_IN[name]) or ""


def load(name_or_file: str) -> Config:
    """A built-in recipe by name, or a .toml / .json file."""
    if name_or_file.endswith((".toml", ".json")):
        return load_file(Path(name_or_file), Config())
    return Config(recipe=named(name_or_file))
