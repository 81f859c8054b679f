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
from vernier.requests.registry import DEFAULT_ACTIONS, GROUPS, SECTIONS, about, actions_of

EXAMPLES = [
    "vernier train                                  # the built-in data set, about a minute on two cores",
    "vernier finetune photos                        # your own images: one folder per class, or boxes",
    "vernier predict runs/RUN photo.jpg             # what the model sees in an image",
    "vernier report runs                            # one page about all runs",
]

NAME_COLUMNS = 30
"""Names of options up to this length have their text on the same line."""


def _width() -> int:
    """Columns of a help text: those of the terminal, at most 120."""
    # (100, 24): of a file or a pipe. Lines longer than 120 are hard to read, however wide the terminal is.
    return min(shutil.get_terminal_size((100, 24)).columns, 120)


def help_text(group: str | None = None) -> str:
    """What `vernier --help`, or `vernier GROUP --help`, prints."""
    if group is None:
        sections = {title: {name: about(name) for name in names} for title, names in SECTIONS.items()}
        closing = ["vernier COMMAND --help explains one.", *_examples_text(EXAMPLES)]
        usage, text = "vernier [-h] [--version] COMMAND ...", "Train, evaluate and measure vision models."
    else:
        sections = {"Actions": {action: about(f"{group} {action}") for action in actions_of(group)}}
        default, closing = DEFAULT_ACTIONS.get(group), [f"vernier {group} ACTION --help explains one."]
        if default is not None:
            closing.insert(0, f"Without an action: vernier {group} {default}.")
        usage, text = f"vernier {group} [-h] {'[ACTION]' if default else 'ACTION'} ...", GROUPS[group]
    return _listing(usage, text, sections, closing)


def _listing(usage: str, text: str, sections: Mapping[str, Mapping[str, str]], closing: list[str]) -> str:
    """A help text that lists commands with their first lines, in sections."""
    # One column for all sections, so that the texts line up down the page.
    column = 4 + max(len(name) for commands in sections.values() for name in commands)
    lines = [f"usage: {usage}", "", *textwrap.wrap(text, _width())]
    for title, commands in sections.items():
        lines += ["", title]
        lines += [line for name, each in commands.items() for line in _entry(name, each, column)]
    return "\n".join([*lines, "", *closing, ""])


def _examples_text(examples: list[str]) -> list[str]:
    """A block of examples for the end of a help text; nothing without any."""
    return ["", "examples:", *(f"  {line}" for line in examples)] if examples else []


def command_help(cls: type[Request], prog: str, *, everything: bool) -> str:
    """The help of a command: its everyday options, or `everything`."""
    arguments = " ".join(_metavar(each) for each in options_of(cls) if each.positional)
    lines = [f"usage: {prog} [options] {arguments}".rstrip(), "", *textwrap.wrap(summary_of(cls), _width())]
    for paragraph in description_of(cls):
        lines += ["", *textwrap.wrap(paragraph, _width())]
    for title, options in groups_of(cls, everything=everything):
        lines += ["", title]
        lines += [line for each in options for line in _entry(_names(each), _text(each), NAME_COLUMNS)]
    lines += _entry("-h, --help", "Show this help, or with --help-all every option.", NAME_COLUMNS)
    # What only Python takes is in no list of flags.
    hidden = sum(each.advanced for each in options_of(cls) if each.edge != "python")
    if hidden and not everything:
        lines += ["", f"{hidden} more options: {prog} --help-all"]
    return "\n".join([*lines, *_examples_text(examples_of(cls)), ""])


def _entry(name: str, text: str, column: int) -> list[str]:
    """A name and its text in two columns; a long name has a line of its own."""
    indent, shown = " " * column, f"  {_painted(name)}"
    # Two spaces before a name and at least one after it.
    if len(name) + 3 > column:
        return [shown, *textwrap.wrap(text, _width(), initial_indent=indent, subsequent_indent=indent)]
    lines = textwrap.wrap(text, _width(), initial_indent=indent, subsequent_indent=indent) or [indent]
    return [f"{shown}{' ' * (column - 2 - len(name))}{lines[0].lstrip()}".rstrip(), *lines[1:]]


def _painted(name: str) -> str:
    """A name in color on a terminal, unless $NO_COLOR says otherwise."""
    # After padding was computed from the plain name: escapes have no width.
    return f"\x1b[36m{name}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else name


def _metavar(option: Option) -> str:
    metavar = option.metavar.strip("[]")
    return metavar if option.required else f"[{metavar}]"


def _names(option: Option) -> str:
    if option.positional:
        return option.metavar.strip("[]")
    flag = "--set" if option.name == "settings" else option.flag
    short = [name for name in option.names if not name.startswith("--")]
    shown = f"--[no-]{flag[2:]}" if option.switch and option.default is not False else flag
    return " ".join(filter(None, [", ".join([*short, shown]), option.metavar]))


def _text(option: Option) -> str:
    default = "on" if option.default is True else default_text(option)
    return option.help + (f" ({'' if default == 'required' else 'default: '}{default})" if default else "")
