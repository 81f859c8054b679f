"""Every command with the request that declares it and the function that prints its result, imported when used.

The commands of the core are here. Others plug in: an entry point of the group `vernier.commands` names a `CommandSet`.
The laboratory's do, and those of outside packages may. A name of the core keeps its meaning.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from vernier.plugins import load_group

from .declaring import Request

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
    moved: Mapping[tuple[str, str], tuple[str, str | None]] = field(default_factory=dict)
    """Commands with a flag that is a command of its own now, and works under its old name until 0.5: the new command,
    and the flag that takes the value; an empty one: the value is the action; None: there is no value."""
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
            "finetune": ("training:Finetune", "training:finetune"),
            "eval": ("models:Evaluate", "models:evaluate"),
            "predict": ("models:Predict", "models:predict"),
            "export": ("models:Export", "models:export"),
            "report": ("reports:Report", "reports:report"),
            "convert": ("reports:Convert", "reports:convert"),
            "runs list": ("runs:ListRuns", "runs:list_runs"),
            "runs clean": ("runs:CleanRuns", "runs:clean"),
            "recipes": ("catalog:Recipes", "catalog:recipes"),
            "models": ("catalog:Models", "catalog:models"),
            "data make": ("data:MakeData", "data:make"),
            "data prepare": ("data:PrepareData", "data:prepare"),
            "data verify": ("data:VerifyData", "data:verify"),
            "data inspect": ("data:InspectData", "data:inspect"),
            "data get": ("data:GetData", "data:get"),
            "completion": ("catalog:Completion", "completion:completion"),
        },
    ),
    groups={
        "data": "Make, prepare, verify, inspect or fetch data sets.",
        "runs": "List runs with result, state and size, or free the disk space they take.",
    },
    sections={
        "Everyday": ("train", "finetune", "eval", "predict", "export", "runs", "report"),
        "Measure": (),
        "Fleets": (),
        "More": ("recipes", "models", "data", "convert", "completion"),
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


def merged(table: Callable[[CommandSet], Mapping[Any, Any]]) -> dict[Any, Any]:
    """One table of all sets; the first set that has a key decides."""
    whole: dict[Any, Any] = {}
    for each in _sets():
        whole |= {key: value for key, value in table(each).items() if key not in whole}
    return whole


def sections() -> dict[str, tuple[str, ...]]:
    """The headings of help in the order of the work, each with the commands of all sets."""
    every: dict[str, tuple[str, ...]] = {}
    for each in _sets():
        for title, names in each.sections.items():
            every[title] = (*every.get(title, ()), *names)
    return every


COMMANDS: dict[str, Where] = merged(lambda each: each.commands)
"""The request and the printing function of every command, as `module:name`."""
FUNCTIONS: dict[str, str] = merged(lambda each: each.functions)
"""Public names of Python that sets bring, and the module of each; those of the core are in `vernier/__init__.py`."""
INTERNAL: tuple[str, ...] = tuple(name for each in _sets() for name in each.internal)


def find(command: str) -> type[Request] | None:
    """The request of a command; None if there is no such command."""
    if command not in COMMANDS:
        return None
    cls: type[Request] = load(COMMANDS[command][0])
    return cls


def load(where: str) -> Any:
    """The object at `module:name`."""
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)
