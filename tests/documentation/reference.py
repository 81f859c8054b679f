"""The reference of all commands and of all settings, made from signatures, docstrings and `config/settings.py`."""

import inspect
import math
import types
from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from tests.conftest import REPO
from vernier.cli import COMMANDS, GROUPS, INTERNAL, SECTIONS, actions_of
from vernier.cli.usage import tyro_private
from vernier.cli.usage.aliases import FLAGS, VALUES
from vernier.cli.usage.help_texts import examples_of
from vernier.config.settings import Checkpoint, Config, Limits, Machine, Recipe

FOLDER = REPO / "docs" / "reference"
MADE = "<!-- Made by `make pages` from the source: edit the help texts there, not this page. -->"
COMMANDS_HEAD = f"""\
# All commands

{MADE}

After this page you know every command and flag. `vernier COMMAND --help` prints the same on the terminal. The settings
that `--set` changes are on the page [All settings](settings.md).

`--json`, where a command has it, prints one JSON document on standard output and nothing else there; progress and
messages go to standard error. [Exit codes](../concepts.md#exit-codes) are the same for all commands.
"""
SETTINGS_HEAD = f"""\
# All settings

{MADE}

After this page you know every setting, its default and its range. There are three ways to set one, and flags for the
most common ones: see [Configuration](../configuration.md).

```sh
vernier train --set optim.lr=0.05 --set machine.workers=4
```

Settings of a recipe (the first tables) have no prefix but their group: `optim.lr`. The others begin with `machine.`,
`checkpoint.` or `limits.`. A built-in recipe has defaults of its own: `vernier recipes show NAME` prints them all.
"""


@dataclass(frozen=True)
class Argument:
    """A flag or positional argument of a command, as its help shows it."""

    names: tuple[str, ...]
    metavar: str
    text: str
    positional: bool


def arguments_of(function: Callable[..., int]) -> Iterator[Argument]:
    with tyro_private._WITHOUT_NONE:
        specification = tyro_private._specification(function)
        for context in specification.get_args_including_children():
            lowered = context.arg.lowered
            names = tuple(lowered.name_or_flags)
            if lowered.action == "boolean_optional_action":
                names = (*names, *(name.replace("--", "--no-", 1) for name in names))
            text = lowered.help() if callable(lowered.help) else lowered.help or ""
            text = str(text).replace("%%", "%").replace("(default: True)", "On unless you give the --no- form.")
            yield Argument(names, str(lowered.metavar or ""), text, context.arg.is_positional())


def _about(function: Callable[..., object]) -> str:
    """The docstring of a command up to its flags."""
    return inspect.cleandoc(function.__doc__ or "").partition("\nArgs:")[0].partition("\nExamples:")[0].strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def command_section(name: str, function: Callable[..., int]) -> Iterator[str]:
    """One command: what it does, its arguments, examples."""
    arguments = list(arguments_of(function))
    positional = " ".join(a.metavar for a in arguments if a.positional)
    yield from [f"### vernier {name}", "", _about(function), ""]
    yield from ["```text", f"vernier {name} [OPTIONS] {positional}".rstrip(), "```", ""]
    if arguments:
        yield from ["| argument | what it does |", "|---|---|"]
        for argument in arguments:
            yield f"| {_argument_text(argument)} | {_cell(argument.text)} |"
        yield ""
    if examples := examples_of(function):
        yield from ["```sh", *(line for example in examples for line in _split_comment(example)), "```", ""]


def _argument_text(argument: Argument) -> str:
    """A flag with its value; a vertical bar would divide the cell, so alternatives are joined by words."""
    value = " or ".join(f"`{part}`" for part in argument.metavar.strip("[]{}").replace(",", "|").split("|") if part)
    if argument.positional:
        return f"{value}, optional" if argument.metavar.startswith("[") else value
    return " ".join(filter(None, [", ".join(f"`{name}`" for name in argument.names), value]))


def _split_comment(example: str) -> Iterator[str]:
    """A command, with its comment on a line before it, where both fit."""
    command, mark, comment = example.partition("  #")
    if mark:
        yield f"# {comment.strip()}"
    yield command.rstrip()


def commands_page() -> str:
    lines = [COMMANDS_HEAD]
    for title, names in SECTIONS.items():
        lines += [f"## {title}", ""]
        for name in names:
            if name not in GROUPS:
                lines += command_section(name, COMMANDS[name])
                continue
            lines += [f"`vernier {name}`: {GROUPS[name]}", ""]
            for action, function in actions_of(name).items():
                if action not in INTERNAL:
                    lines += command_section(f"{name} {action}", function)
    return "\n".join([*lines, *_aliases()]).rstrip() + "\n"


def _aliases() -> Iterator[str]:
    yield from ["## Other names that are understood", ""]
    yield "Flags and values that people type out of habit. A flag of that name in the command itself comes first."
    yield from ["", "| typed | means |", "|---|---|"]
    for alias, flags in FLAGS.items():
        yield f"| `{alias}` | {' or '.join(f'`{flag}`' for flag in flags if flag != alias)} |"
    for (flag, value), own in VALUES.items():
        yield f"| `{flag} {value}` | `{flag} {own}` |"
    yield from ["| `vernier help COMMAND` | `vernier COMMAND --help` |", "| `vernier version` | `vernier --version` |"]


def _type_text(hint: Any) -> str:
    """A type in words: what may be written after `=`."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join([*(_type_text(kind) for kind in get_args(hint) if kind is not type(None)), "`none`"])
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint))
    if get_origin(hint) is tuple:
        inner = _type_text(get_args(hint)[0]).removeprefix("a ").replace("text", "texts").replace("number", "numbers")
        return f"list of {inner}" if Ellipsis in get_args(hint) else f"{len(get_args(hint))} {inner}"
    return {bool: "`true` or `false`", int: "whole number", float: "number", str: "text"}[hint]


def _range_text(field: Field[Any]) -> str:
    low, high, above = (field.metadata[key] for key in ("low", "high", "above"))
    parts = [f"above {above:g}"] if above > -math.inf else [f"from {low:g}"] if low > -math.inf else []
    if high < math.inf:
        parts.append(f"up to {high:,.0f}" if high == int(high) else f"up to {high:g}")
    return ", ".join(parts)


def _default_text(field: Field[Any]) -> str:
    value = field.default
    follows = isinstance(value, int | float) and value < field.metadata["low"]  # 0 px: taken from another setting
    if value is None or value == "" or follows:
        return ""
    if isinstance(value, tuple):
        return f"`[{', '.join(_number(v) for v in value)}]`"
    return f"`{_number(value)}`"


def _number(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:.6g}" if isinstance(value, float) else str(value)


def group_table(kind: type[Any], prefix: str) -> Iterator[str]:
    """The settings of one group, without its sub-groups."""
    yield from ["| setting | default | values | meaning |", "|---|---|---|---|"]
    hints = inspect.get_annotations(kind, eval_str=True)
    for field in fields(kind):
        if is_dataclass(field.default) or "low" not in field.metadata:
            continue
        values = "; ".join(filter(None, [_type_text(hints[field.name]), _range_text(field)]))
        cells = f"`{prefix}{field.name}`", _default_text(field), values, _sentence(field.metadata["doc"])
        yield f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] if text[:1].isalpha() and not text.partition(" ")[0].endswith(":") else text


def groups() -> Iterator[tuple[str, type[Any], str]]:
    """Title, dataclass and prefix of every group of settings, in the order of a recipe file."""
    yield "Recipe", Recipe, ""
    for field in fields(Recipe):
        if is_dataclass(field.default):
            yield f"{field.name}", type(field.default), f"{field.name}."
    for kind in (Machine, Checkpoint, Limits):
        (name,) = [field.name for field in fields(Config) if isinstance(field.default, kind)]
        yield name, kind, f"{name}."


def settings_page() -> str:
    lines = [SETTINGS_HEAD]
    for title, kind, prefix in groups():
        lines += [f"## {title}", "", (kind.__doc__ or "").strip(), "", *group_table(kind, prefix), ""]
    return "\n".join(lines).rstrip() + "\n"


def pages() -> dict[Path, str]:
    """Every page of this module: its path and its text."""
    return {FOLDER / "commands.md": commands_page(), FOLDER / "settings.md": settings_page()}
