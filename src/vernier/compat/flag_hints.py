"""Flags of other programs, and what to use here: for the message about a flag that `vernier train` does not have.

They are in flag_hints.toml, which explains its entries. Plugs in as an entry point of `vernier.flag_hints`.
"""

import tomllib
from pathlib import Path

HINTS: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
