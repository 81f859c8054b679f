"""Plug-ins of installed packages: what an entry point offers, loaded when a setting names it or its group is used.

Parts of Vernier plug in as outside packages do. Kinds of device are found by `devices`, which has more rules.
"""

from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from .errors import ConfigError
from .references import given, use

T = TypeVar("T")


def load_plugin(group: str, setting: str, name: str, default: str) -> Any:
    """The object of the entry point that a setting names. Raises ConfigError, with the setting's default as what would
    work, if no package offers it or if its code fails."""
    entries = entry_points(group=group, name=name)
    # A built-in name keeps its meaning whatever else is installed.
    entry = min(entries, key=lambda each: not each.value.startswith("vernier."), default=None)
    why = f"no installed package offers it (entry point {name} of {group})"
    if entry is not None:
        try:
            return entry.load()
        except Exception as error:  # a package may raise anything while it is imported
            why = f"{entry.value} cannot be loaded: {next(iter(str(error).splitlines()), type(error).__name__)}"
    raise ConfigError(f"{given(setting, name)}: {why.rstrip('.')}. Use {use(setting, default)}.")


def load_group(group: str, kind: type[T]) -> dict[str, T]:
    """Every plug-in of a group by name, in alphabetical order. One that fails to load, or that is of another kind, is
    left out: the others stay usable. A built-in name keeps its meaning."""
    return {name: plugin for name, plugin in _loaded(group).items() if isinstance(plugin, kind)}


@cache
def _loaded(group: str) -> dict[str, Any]:
    plugins: dict[str, Any] = {}
    for entry in sorted(entry_points(group=group), key=lambda each: (each.name, not each.value.startswith("vernier."))):
        try:
            plugins.setdefault(entry.name, entry.load())
        except Exception:  # noqa: S112  # a package may raise anything while it is imported
            continue
    return plugins
