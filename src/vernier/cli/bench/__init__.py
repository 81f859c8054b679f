"""TODO."""

from vernier.cli.bench.commands import COMMANDS

__all__ = ["COMMANDS"]
