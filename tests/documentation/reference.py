"""The reference of all commands and of all settings, made from `vernier.requests` and `config/settings.py`."""

import inspect
import math
import types
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from tests.conftest import REPO
from vernier.config.settings import Config, Optim, Recipe, choices_of, optimizers
from vernier.requests.declaring import (
    Option,
    Request,
    default_text,
    description_of,
    examples_of,
    groups_of,
    options_of,
    summary_of,
)
from vernier.requests.registry import COMMANDS, GROUPS, INTERNAL, OTHER_NAMES, SECTIONS, actions_of, find

FOLDER = REPO / "docs" / "reference"
MADE = "<!-- Made by `make pages` from the source: edit the help texts there, not this page. -->"
COMMANDS_HEAD = f"""\
# All commands

{MADE}

Every command and option. `vernier COMMAND --help` prints the everyday options on the terminal, `--help-all` all of
them. The same options are the keyword arguments of the function of that name in [Python](../python.md): `vernier bench
infer` is `v.bench_infer`. The settings that `--set` changes are on the page [All settings](settings.md).

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
`checkpoint.`, `limits.` or `audit.`. A built-in recipe has defaults of its own, printed
by `vernier recipes show NAME`.
"""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def command_section(name: str, cls: type[Request]) -> Iterator[str]:
    """One command: what it does, its options, examples."""
    options = [option for _, group in groups_of(cls) for option in group]
    positional = " ".join(option.metavar.strip("[]") for option in options if option.positional)
    yield from [f"### vernier {name}", "", summary_of(cls), ""]
    for paragraph in description_of(cls):
        yield from [paragraph, ""]
    yield from ["```text", f"vernier {name} [options] {positional}".rstrip(), "```", ""]
    yield from ["| option | what it does | default | in Python |", "|---|---|---|---|"]
    for option in options:
        python = "" if option.edge == "shell" else f"`{option.name}`"
        cells = _option_text(option), _help_text(option), default_text(option), python
        yield f"| {' | '.join(_cell(cell) if i else cell for i, cell in enumerate(cells))} |"
    yield ""
    if examples := examples_of(cls):
        yield from ["```sh", *(line for example in examples for line in _split_comment(example)), "```", ""]


def _help_text(option: Option) -> str:
    advanced = " *(`--help-all`)*" if option.advanced else ""
    span = f" Range: {option.range_text}." if option.range_text else ""
    changes = f" Setting: `{option.sets}`." if option.sets else ""
    return f"{option.help}{span}{changes}{advanced}"


def _option_text(option: Option) -> str:
    """An option with its value; a vertical bar would divide the cell, so alternatives are joined by words."""
    value = " or ".join(f"`{part}`" for part in option.metavar.strip("[]").replace("...", "").split("|") if part)
    if option.positional:
        return value
    flag = "--set" if option.name == "settings" else option.flag
    names = [flag, *(name for name in option.names if not name.startswith("--"))]
    if option.switch and option.default is not False:
        names.append(flag.replace("--", "--no-", 1))
    return " ".join(filter(None, [", ".join(f"`{name}`" for name in names), value]))


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
            commands = [f"{name} {action}" for action in actions_of(name)] if name in GROUPS else [name]
            if name in GROUPS:
                lines += [f"`vernier {name}`: {GROUPS[name]}", ""]
            for command in commands:
                cls = find(command)
                assert cls is not None
                lines += command_section(command, cls)
    return "\n".join([*lines, *_other_names()]).rstrip() + "\n"


def _other_names() -> Iterator[str]:
    yield from ["## Other names that are understood", ""]
    yield "Commands, flags and values that people type out of habit or that had this name in an earlier version."
    yield from ["", "| typed | means |", "|---|---|"]
    for name, own in OTHER_NAMES.items():
        yield f"| `vernier {name}` | `vernier {own}` |"
    flags: dict[str, set[str]] = {}
    values: dict[str, str] = {}
    for command in COMMANDS:
        cls = find(command)
        assert cls is not None
        for option in options_of(cls):
            for name in option.names:
                if name.startswith("--") and command not in INTERNAL:
                    flags.setdefault(name, set()).add(option.flag if not option.positional else option.metavar)
            values |= {f"{option.flag} {word}": f"{option.flag} {own}" for word, own in option.other_values.items()}
    for name, meant in sorted(flags.items()):
        yield f"| `{name}` | {' or '.join(f'`{flag}`' for flag in sorted(meant)).replace('|', ' or ')} |"
    for name, own in values.items():
        yield f"| `{name}` | `{own}` |"
    yield from ["| `vernier help COMMAND` | `vernier COMMAND --help` |", "| `vernier version` | `vernier --version` |"]


def _type_text(hint: Any) -> str:
    """A type in words: what may be written after `=`."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join([*(_type_text(kind) for kind in get_args(hint) if kind is not type(None)), "`none`"])
    if choices := choices_of(hint):
        return ", ".join(f"`{choice}`" for choice in choices)
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
    """The settings of one group, without its sub-groups; of an optimizer, those that others do not have."""
    yield from ["| setting | default | values | meaning |", "|---|---|---|---|"]
    hints = inspect.get_annotations(kind, eval_str=True)
    if kind is Optim:
        hints["name"] = Literal[tuple(optimizers())]
    for field in fields(kind):
        inherited = field.name not in hints or (field.name == "name" and kind in optimizers().values())
        if inherited or is_dataclass(hints[field.name]) or "low" not in field.metadata:
            continue
        values = "; ".join(filter(None, [_type_text(hints[field.name]), _range_text(field)]))
        cells = f"`{prefix}{field.name}`", _default_text(field), values, _sentence(field.metadata["doc"])
        yield f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] if text[:1].isalpha() and not text.partition(" ")[0].endswith(":") else text


def groups() -> Iterator[tuple[str, type[Any], str]]:
    """Title, dataclass and prefix of every group of settings, in the order of a recipe file."""
    yield "Recipe", Recipe, ""
    for name, kind in inspect.get_annotations(Recipe).items():
        if is_dataclass(kind):
            yield name, kind, f"{name}."
    for name, kind in inspect.get_annotations(Config).items():
        if kind is not Recipe:
            yield name, kind, f"{name}."


def settings_page() -> str:
    lines = [SETTINGS_HEAD]
    for title, kind, prefix in groups():
        lines += [
            f"## {title}",
            "",
            (kind.__doc__ or "").strip().partition("\n\n")[0],
            "",
            *group_table(kind, prefix),
            "",
        ]
        if kind is Optim:
            for name, each in optimizers().items():
                about = f"{_sentence(fields(each)[0].metadata['doc'])}."
                lines += [f"### optim.name = {name}", "", about, "", *group_table(each, prefix), ""]
    return "\n".join(lines).rstrip() + "\n"


def pages() -> dict[Path, str]:
    """Every page of this module: its path and its text."""
    return {FOLDER / "commands.md": commands_page(), FOLDER / "settings.md": settings_page()}
