"""Every command with the request that declares it, the function that prints its result, and its place in the help.

The commands of the core are here. Others plug in: an entry point of the group `vernier.commands` names a `CommandSet`.
The laboratory's do, and those of outside packages may. A name of the core keeps its meaning.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from vernier.plugins import load_group

from .declaring import Request, summary_of

Where = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class CommandSet:
    """The commands of a package, with everything that help, completion, Python and reference pages need of them."""

    commands: Mapping[str, Where]
    """By name, such as `bench train`: the request and the function that carries it out, both as `module:name`."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """Public names of Python, and the module of each."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Commands with actions, and what they do in one line."""
    sections: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Headings of `vernier --help`, and the commands or groups under each."""
    default_actions: Mapping[str, str] = field(default_factory=dict)
    """What a group does if its first argument is not an action."""
    other_names: Mapping[str, str] = field(default_factory=dict)
    """Commands and actions that people type out of habit."""
    internal: tuple[str, ...] = ()
    """Commands that Vernier starts itself; no help lists them."""


def within(package: str, commands: Mapping[str, Where]) -> dict[str, Where]:
    """Commands whose requests and functions are named relative to `requests` and `cli` of a package."""
    return {name: (f"{package}.requests.{own}", f"{package}.cli.{shown}") for name, (own, shown) in commands.items()}


CORE = CommandSet(
    commands=within(
        "vernier",
        {
            "train": ("training:Train", "training:train"),
            "eval": ("models:Evaluate", "models:evaluate"),
            "predict": ("models:Predict", "models:predict"),
            "export": ("models:Export", "models:export"),
            "report": ("reports:Report", "reports:report"),
            "runs list": ("runs:ListRuns", "runs:list_runs"),
            "recipes": ("catalog:Recipes", "catalog:recipes"),
            "models": ("catalog:Models", "catalog:models"),
        },
    ),
    groups={
        "runs": "List runs with result, state and size.",
    },
    sections={
        "Everyday": ("train", "finetune", "eval", "predict", "export", "runs", "report"),
        "Measure": (),
        "Fleets": (),
        "More": ("recipes", "models"),
    },
    default_actions={"runs": "list"},
    other_names={
        "fit": "train",
        "val": "eval",
        "validate": "eval",
        "test": "eval",
        "evaluate": "eval",
        "infer": "predict",
        "list": "runs",
        "ls": "runs",
    },
)


def _sets() -> tuple[CommandSet, ...]:
    """The core's first: what it names, no other set renames."""
    return (CORE, *load_group("vernier.commands", CommandSet).values())


def _merged(table: Callable[[CommandSet], Mapping[Any, Any]]) -> dict[Any, Any]:
    """One table of all sets; the first set that has a key decides."""
    whole: dict[Any, Any] = {}
    for each in _sets():
        # A command of the core cannot be replaced by a package that happens to be installed.
        whole |= {key: value for key, value in table(each).items() if key not in whole}
    return whole


def _sections() -> dict[str, tuple[str, ...]]:
    """The headings of help in the order of the work, each with the commands of all sets.

    A heading may name a command of another set, to give it a place among its own; without that set it is left out.
    """
    every = dict[str, tuple[str, ...]]()
    commands = {name.split()[0] for name in _merged(lambda each: each.commands)}
    for each in _sets():
        for title, names in each.sections.items():
            every[title] = (*every.get(title, ()), *(name for name in names if name in commands))
    return every


COMMANDS: dict[str, Where] = _merged(lambda each: each.commands)
"""The request and the printing function of every command, as `module:name`."""
FUNCTIONS: dict[str, str] = _merged(lambda each: each.functions)
"""Public names of Python that sets bring, and the module of each; those of the core are in `vernier/__init__.py`."""
INTERNAL: tuple[str, ...] = tuple(name for each in _sets() for name in each.internal)
GROUPS: dict[str, str] = _merged(lambda each: each.groups)
DEFAULT_ACTIONS: dict[str, str] = _merged(lambda each: each.default_actions)
SECTIONS = _sections()
OTHER_NAMES: dict[str, str] = _merged(lambda each: each.other_names)


def find(command: str) -> type[Request] | None:
    """The request of a command; None if there is no such command."""
    if command not in COMMANDS:
        return None
    cls: type[Request] = _load(COMMANDS[command][0])
    return cls


def function_of(command: str) -> Callable[[Any, Any], int]:
    """The function that carries a command out and prints its result."""
    function: Callable[[Any, Any], int] = _load(COMMANDS[command][1])
    return function


def about(name: str) -> str:
    """What a command or group does, in one line."""
    if name in GROUPS:
        return GROUPS[name]
    cls = find(name)
    return "" if cls is None else summary_of(cls)


def actions_of(group: str) -> list[str]:
    """The actions of a group that help lists."""
    return [name.split()[1] for name in COMMANDS if name.split()[0] == group and name not in INTERNAL]


def _load(where: str) -> Any:
    """The object at `module:name`."""
    # Imported when it is used: `--help` needs no command.
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)
