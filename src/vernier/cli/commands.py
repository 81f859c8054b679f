"""The commands of the command line by name: how help groups them, and other names people type.

`vernier.requests.registry` lists them, with the request that declares each and the function that prints its result.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from vernier.requests.declaring import summary_of
from vernier.requests.registry import COMMANDS, INTERNAL, find

GROUPS = {
    "bench": "Measure training, inference, scaling and loading, with confidence intervals.",
    "tune": "Find the fastest settings of this machine for a recipe.",
    "profile": "Profile training or inference steps: kernel table, trace, memory, and where the time goes.",
    "data": "Make, prepare, verify, inspect or fetch data sets.",
    "runs": "List runs with result, state and size, or free the disk space they take.",
    "study": "Device variability: design a study, measure every device, analyze, learn a baseline, check a machine.",
}
"""Commands with actions."""
DEFAULT_ACTIONS = {"runs": "list", "tune": "train", "profile": "train"}
"""What a group does if its first argument is not an action."""
SECTIONS = {
    "Everyday": ("train", "finetune", "eval", "predict", "export", "runs", "report"),
    "Measure": ("bench", "profile", "tune", "compare", "plan", "submit"),
    "Fleets": ("study",),
    "More": ("recipes", "models", "data", "convert", "doctor", "completion"),
}
"""The order of `vernier --help`: that of the work."""
OTHER_NAMES = {
    "fit": "train",
    "val": "eval",
    "validate": "eval",
    "test": "eval",
    "evaluate": "eval",
    "infer": "predict",
    "benchmark": "bench",
    "list": "runs",
    "ls": "runs",
    "study analyse": "study analyze",
}
"""Commands and actions that people type out of habit."""
MOVED = {
    ("plan", "--submit"): ("submit", "--to"),
    ("tune", "--for"): ("tune", ""),
    ("profile", "--infer"): ("profile infer", None),
}
"""Commands with a flag that is a command of its own now, and works under its old name until 0.5: the new command, and
the flag that takes the value; an empty one: the value is the action; None: there is no value."""


def about(name: str) -> str:
    """What a command or group does, in one line."""
    if name in GROUPS:
        return GROUPS[name]
    cls = find(name)
    return "" if cls is None else summary_of(cls)


def actions_of(group: str) -> list[str]:
    """The actions of a group that help lists."""
    return [name.split()[1] for name in COMMANDS if name.split()[0] == group and name not in INTERNAL]


def function_of(command: str) -> Callable[[Any, Any], int]:
    """The function that carries a command out."""
    module, _, name = COMMANDS[command][1].partition(":")
    function: Callable[[Any, Any], int] = getattr(import_module(f"{__package__}.{module}"), name)
    return function


def with_new_name(words: list[str]) -> tuple[list[str], str]:
    """The words of a command that moved as they are typed now, and a note; without a note for any other."""
    for (name, flag), (new, value_flag) in MOVED.items():
        index = next((i for i, word in enumerate(words) if word.partition("=")[0] == flag), None)
        if words[:1] != [name] or index is None:
            continue
        value, rest = words[index].partition("=")[2], [*words[1:index], *words[index + 1 :]]
        if value_flag is not None and not value and index < len(words) - 1:
            value = words[index + 1]
            rest = [*words[1:index], *words[index + 2 :]]
        action = [value] if value_flag == "" else [value_flag, value] if value_flag else []
        typed = [*new.split(), *action, *rest]
        now = " ".join([*new.split(), *action])
        return typed, f"note: {name} {flag} is called {now} now; the old name stops working in 0.5"
    return words, ""
