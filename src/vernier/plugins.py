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
    """Every plug-in of a group by name, Vernier's own first. One that fails to load, or that is of another kind, is
    left out, so that the others stay usable: `describe_failures` has the reasons. A built-in name keeps its meaning."""
    return {name: plugin for name, plugin in _loaded(group)[0].items() if isinstance(plugin, kind)}


def describe_failures(group: str) -> str:
    """Which plug-ins of a group could not be loaded, and why, as the end of a message; empty if there are none."""
    failed = _loaded(group)[1]
    return f" Could not be loaded: {'; '.join(failed)}." if failed else ""


@cache
def _loaded(group: str) -> tuple[dict[str, Any], list[str]]:
    plugins, failed = dict[str, Any](), list[str]()
    for entry in sorted(entry_points(group=group), key=lambda each: not each.value.startswith("vernier.")):
        try:
            plugins.setdefault(entry.name, entry.load())
        except Exception as error:  # a package may raise anything while it is imported
            failed.append(f"{entry.value} ({next(iter(str(error).splitlines()), type(error).__name__)})")
    return plugins, failed
