"""Plug-ins of installed packages: what an entry point offers, loaded when a setting names it or its group is used.

Parts of Vernier plug in as outside packages do. Kinds of device are found by `devices`, which has more rules.
"""

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from typing import Any, TypeVar

from .errors import ConfigError
from .references import given, use

T = TypeVar("T")


def load_plugin(group: str, setting: str, name: str, default: str) -> Any:
    """The object of the entry point that a setting names. Raises ConfigError, with the setting's default as what would
    work, if no package offers it or if its code fails."""
    # A built-in name keeps its meaning whatever else is installed.
    entry = next((each for each in _entries(group) if each.name == name), None)
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


@cache
def plugin_names(*groups: str) -> tuple[str, ...]:
    """The names that installed packages offer in these groups, Vernier's own first; no code of theirs is loaded."""
    # Settings are checked thousands of times, and a search of all installed packages takes 10 ms.
    return tuple(dict.fromkeys(entry.name for group in groups for entry in _entries(group)))


def only_plugin(group: str) -> Any:
    """The plug-in of a group that has one at a time, Vernier's own first; None without any."""
    return next(iter(_loaded(group)[0].values()), None)


def needed_plugin(group: str, setting: str, value: object) -> Any:
    """The same for a setting or option that cannot do without. Raises ConfigError if there is none."""
    if (plugin := only_plugin(group)) is None:
        what = f"{given(setting, value)}: no installed package offers it ({group})."
        raise ConfigError(f"{what}{describe_failures(group)}")
    return plugin


@cache
def load_kinds(package: str, group: str, base: type[T]) -> dict[str, type[T]]:
    """The classes derived from `base` by their `name`: of every file in a package of Vernier, then plug-ins."""
    own = [import_module(each.name) for each in iter_modules(import_module(package).__path__, f"{package}.")]
    members = [member for module in own for member in vars(module).values()]
    # A built-in name keeps its place, by the first of the same two lists, and its meaning, by the last.
    kinds = [*members, *_loaded(group)[0].values(), *members]
    return {kind.name: kind for kind in kinds if base in getattr(kind, "__mro__", ())[1:]}


def describe_failures(group: str) -> str:
    """Which plug-ins of a group could not be loaded, and why, as the end of a message; empty if there are none."""
    failed = _loaded(group)[1]
    return f" Could not be loaded: {'; '.join(failed)}." if failed else ""


def _entries(group: str) -> list[EntryPoint]:
    return sorted(entry_points(group=group), key=lambda each: (not each.value.startswith("vernier."), each.name))


@cache
def _loaded(group: str) -> tuple[dict[str, Any], list[str]]:
    plugins, failed = dict[str, Any](), list[str]()
    for entry in _entries(group):
        try:
            plugins.setdefault(entry.name, entry.load())
        except Exception as error:  # a package may raise anything while it is imported
            failed.append(f"{entry.value} ({next(iter(str(error).splitlines()), type(error).__name__)})")
    return plugins, failed
