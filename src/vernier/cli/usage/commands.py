"""Commands by name, each imported when it is used: `vernier --help` lists all of them and imports none."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

Command = Callable[..., int]


class Commands(Mapping[str, Command]):
    """Command functions by name. `about` is what lists say of each: the first line of its docstring."""

    def __init__(self, homes: dict[str, tuple[str, str]]) -> None:
        """`homes`: module and function, with a colon between them, and the first line of its docstring."""
        self._homes = {name: home for name, (home, _) in homes.items()}
        self.about = {name: about for name, (_, about) in homes.items()}

    def __getitem__(self, name: str) -> Command:
        module, _, function = self._homes[name].partition(":")
        command: Command = getattr(import_module(module), function)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)
