"""The commands of the command line by name: how help groups them, and other names people type.

`vernier.requests.registry` lists them, with the request that declares each and the function that prints its result.
"""

from collections.abc import Callable
from typing import Any

from vernier.requests.declaring import summary_of
from vernier.requests.registry import COMMANDS, INTERNAL, find, load, merged, sections

GROUPS: dict[str, str] = merged(lambda each: each.groups)
"""Commands with actions."""
DEFAULT_ACTIONS: dict[str, str] = merged(lambda each: each.default_actions)
SECTIONS = sections()
"""The order of `vernier --help`: that of the work."""
OTHER_NAMES: dict[str, str] = merged(lambda each: each.other_names)
_MOVED: dict[tuple[str, str], tuple[str, str | None]] = merged(lambda each: each.moved)


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
    function: Callable[[Any, Any], int] = load(COMMANDS[command][1])
    return function


def with_new_name(words: list[str]) -> tuple[list[str], str]:
    """The words of a command that moved as they are typed now, and a note; without a note for any other."""
    for (name, flag), (new, value_flag) in _MOVED.items():
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
