"""Help texts: of `vernier`, of a group of commands and of one command, wrapped to the terminal.

Everything about options comes from their declaration.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping

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

NAME_COLUMNS = 30
"""Names of options up to this length have their text on the same line."""


def width() -> int:
    """Columns of a help text: those of the terminal, at most 120."""
    return min(shutil.get_terminal_size((100, 24)).columns, 120)


def listing(usage: str, about: str, sections: Mapping[str, Mapping[str, str]], closing: list[str]) -> str:
    """A help text that lists commands with their first lines, in sections."""
    column = 4 + max(len(name) for commands in sections.values() for name in commands)
    lines = [f"usage: {usage}", "", *textwrap.wrap(about, width())]
    for title, commands in sections.items():
        lines += ["", title]
        lines += [line for name, text in commands.items() for line in _entry(name, text, column)]
    return "\n".join([*lines, "", *closing, ""])


def examples_text(examples: list[str]) -> list[str]:
    """A block of examples for the end of a help text; nothing without any."""
    return ["", "examples:", *(f"  {line}" for line in examples)] if examples else []


def command_help(cls: type[Request], prog: str, *, everything: bool) -> str:
    """The help of a command: its everyday options, or `everything`."""
    arguments = " ".join(_metavar(each) for each in options_of(cls) if each.declared.positional)
    lines = [f"usage: {prog} [options] {arguments}".rstrip(), "", *textwrap.wrap(summary_of(cls), width())]
    for paragraph in description_of(cls):
        lines += ["", *textwrap.wrap(paragraph, width())]
    for title, options in groups_of(cls, everything=everything):
        lines += ["", title]
        lines += [line for each in options for line in _entry(_names(each), _text(each), NAME_COLUMNS)]
    lines += _entry("-h, --help", "Show this help, or with --help-all every option.", NAME_COLUMNS)
    hidden = sum(each.declared.advanced for each in options_of(cls) if each.declared.edge != "python")
    if hidden and not everything:
        lines += ["", f"{hidden} more options: {prog} --help-all"]
    return "\n".join([*lines, *examples_text(examples_of(cls)), ""])


def _entry(name: str, text: str, column: int) -> list[str]:
    """A name and its text in two columns; a long name has a line of its own."""
    indent, shown = " " * column, f"  {_painted(name)}"
    if len(name) + 3 > column:
        return [shown, *textwrap.wrap(text, width(), initial_indent=indent, subsequent_indent=indent)]
    lines = textwrap.wrap(text, width(), initial_indent=indent, subsequent_indent=indent) or [indent]
    return [f"{shown}{' ' * (column - 2 - len(name))}{lines[0].lstrip()}".rstrip(), *lines[1:]]


def _painted(name: str) -> str:
    """A name in color on a terminal, unless $NO_COLOR says otherwise."""
    return f"\x1b[36m{name}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else name


def _metavar(option: Option) -> str:
    metavar = option.metavar.strip("[]")
    return metavar if option.required else f"[{metavar}]"


def _names(option: Option) -> str:
    if option.declared.positional:
        return option.metavar.strip("[]")
    flag = "--set" if option.name == "settings" else option.flag
    short = [name for name in option.declared.names if not name.startswith("--")]
    shown = f"--[no-]{flag[2:]}" if option.switch and option.default is not False else flag
    return " ".join(filter(None, [", ".join([*short, shown]), option.metavar]))


def _text(option: Option) -> str:
    default = "on" if option.default is True else default_text(option)
    return option.declared.help + (f" ({'' if default == 'required' else 'default: '}{default})" if default else "")
