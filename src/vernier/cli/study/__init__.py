"""TODO."""

from vernier.cli.study.commands import COMMANDS

__all__ = ["COMMANDS"]
