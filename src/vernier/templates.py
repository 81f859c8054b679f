"""Longer texts as Jinja templates: model cards, and the screen of `vernier doctor`.

A template shows what its reader will see, with the conditions where their lines are. Values are checked and computed
before, in Python; a name that a template does not get is an error.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from vernier.wording import printable


def open_templates(module: str, *, html: bool = False, **functions: Callable[..., Any]) -> Environment:
    """The templates in the folder `templates` next to a module; `functions` are filters and functions in them.

    In `html` values are escaped unless they are `Markup`, and None is nothing.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(module).with_name("templates")),
        # Elsewhere words are quoted for the shell, and values in YAML are JSON.
        autoescape=html,  # noqa: S701
        finalize=(lambda value: "" if value is None else value) if html else None,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= functions
    environment.globals |= functions
    return environment


def lines_of(environment: Environment, name: str, values: Mapping[str, Any]) -> list[str]:
    """The lines of a template. A line break or a control character in a value is escaped: names in files and logs of
    strangers must not look like lines of ours."""
    return _escaping(environment).get_template(name).render(values).rstrip("\n").split("\n")


@cache
def _escaping(environment: Environment) -> Environment:
    """The environment with values that are escaped; kept, since it is what keeps compiled templates."""
    return environment.overlay(finalize=lambda value: printable(str(value)))
