"""The commands and Python functions of the laboratory, as the core finds them: the entry point `lab` of
`vernier.commands`. Requests are in `lab.requests`, functions in `lab.api`, what is printed in `lab.cli`; the table of
them is `commands.toml`."""

import tomllib
from pathlib import Path

from vernier.requests.registry import CommandSet, within

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
COMMANDS = CommandSet(
    commands=within("vernier.lab", _TABLE["commands"]),
    functions={name: f"vernier.lab.api.{module}" for module, names in _TABLE["functions"].items() for name in names},
    sections={title: tuple(names) for title, names in _TABLE["sections"].items()},
    internal=("bench arm",),
    **_TABLE["names"],
)
