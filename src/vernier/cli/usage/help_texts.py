"""The lists of commands that `vernier --help` and `vernier GROUP --help` print, and the examples of a command.

The flags of a command are printed by tyro, from its signature and docstring.
"""

import inspect
import re
import shutil
import textwrap
from collections.abc import Callable, Mapping

Commands = Mapping[str, Callable[..., object]]


def first_line(function: Callable[..., object]) -> str:
    """What a command does, in one line."""
    return (inspect.getdoc(function) or "").partition("\n")[0]


def examples_of(function: Callable[..., object]) -> list[str]:
    """The lines of the section `Examples:` of a command's docstring."""
    section = re.search(r"^Examples:\n((?:    .*\n?)+)", inspect.getdoc(function) or "", re.MULTILINE)
    return [line.strip() for line in section[1].splitlines()] if section else []


def examples_text(examples: list[str]) -> str:
    """A block of examples for the end of a help text; empty without any."""
    return "\n".join(["", "examples:", *(f"  {line}" for line in examples), ""]) if examples else ""


def listing(usage: str, about: str, sections: Mapping[str, Mapping[str, str]], closing: list[str]) -> str:
    """A help text that lists commands with their first lines, in sections."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    column = 4 + max(len(name) for commands in sections.values() for name in commands)
    lines = [f"usage: {usage}", "", about]
    for title, commands in sections.items():
        lines += ["", title]
        for name, text in commands.items():
            indent = " " * column
            lines.append(textwrap.fill(text, width, initial_indent=f"  {name}".ljust(column), subsequent_indent=indent))
    return "\n".join([*lines, "", *closing, ""])
