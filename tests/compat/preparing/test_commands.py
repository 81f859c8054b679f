"""The commands of `vernier data`, as the core finds them through their entry point."""

from importlib import import_module
from importlib.metadata import entry_points

from vernier.compat.preparing.commands import COMMANDS
from vernier.requests import registry


def test_the_core_finds_the_commands_through_the_entry_point() -> None:
    (entry,) = entry_points(group="vernier.commands", name="preparing")
    assert entry.load() is COMMANDS
    assert set(COMMANDS.commands) <= set(registry.COMMANDS)
    assert not set(COMMANDS.commands) & set(registry.CORE.commands)


def test_every_function_exists_under_its_name() -> None:
    for name, home in COMMANDS.functions.items():
        assert getattr(import_module(home), name) is not None
