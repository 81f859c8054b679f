"""The commands that the documentation shows: found in its fenced blocks, and parsed without being run."""

import functools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import REPO
from vernier import cli
from vernier import recipes as book
from vernier.config import Config, override_from_text

DOCS = REPO / "docs"
FENCE = re.compile(r"^( *)```(?:\{ \.)?(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|(?<=[\s/]))vernier +(?=[a-z-])")
OPERATORS = {"|", "||", "&", "&&", ";", ">", ">>", "<", "2>"}
PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_-]*|<.*>|.*\.(toml|json)")
"""Names a reader has to replace: RECIPE, RUN, <the run>, mine.toml."""


@dataclass(frozen=True)
class Fence:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    end: int

    def lines(self) -> list[tuple[int, str]]:
        """Its lines with their numbers, continued ones joined."""
        joined: list[tuple[int, str]] = []
        going_on = False
        for number, line in enumerate(self.text.splitlines(), start=self.line + 1):
            if going_on:
                joined[-1] = (joined[-1][0], joined[-1][1] + " " + line.strip())
            else:
                joined.append((number, line))
            going_on = joined[-1][1].endswith("\\")
            if going_on:
                joined[-1] = (joined[-1][0], joined[-1][1][:-1].rstrip())
        return joined


@dataclass(frozen=True)
class Shown:
    """A `vernier` command as a page shows it."""

    page: Path
    line: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}: vernier {shlex.join(self.words)}"


def fences(page: Path) -> Iterator[Fence]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        yield Fence(page, text.count("\n", 0, found.start()) + 1, found[2], found[3], found.end())


def commands(fence: Fence) -> Iterator[Shown]:
    """Every `vernier ...` of a block, also behind torchrun or srun, up to the comment, pipe or redirection."""
    for number, line in fence.lines() if fence.language != "python" else ():
        line = re.split(r"(?:^|\s)#", line)[0]
        starts = [found.start() for found in COMMAND.finditer(line)]
        for start, end in zip(starts, [*starts, len(line)][1:], strict=True):
            words = shlex.split(line[start:end])[1:]
            stop = next((i for i, word in enumerate(words) if word in OPERATORS), len(words))
            yield Shown(fence.page, number, tuple(_without_usage_marks(words[:stop])))


def _without_usage_marks(words: list[str]) -> Iterator[str]:
    """`--device auto|cpu` shows choices: the first is taken; `[--flag]` an option."""
    for word in words:
        word = word.removeprefix("[").removesuffix("]") if word.startswith("[--") else word
        yield word.split("|")[0] if re.fullmatch(r"[\w-]+(\|[\w-]+)+", word) else word


def function_of(words: tuple[str, ...]) -> tuple[Any, list[str]] | None:
    """The function that a command line is meant for, and the words left for it; None when there is no such command."""
    if words and words[0] in cli.COMMANDS:
        return cli.COMMANDS[words[0]], list(words[1:])
    if words and words[0] in cli.GROUPS:
        actions = cli.actions_of(words[0])
        if len(words) > 1 and words[1] in actions:
            return actions[words[1]], list(words[2:])
        if words[0] in cli.DEFAULT_ACTIONS:
            return actions[cli.DEFAULT_ACTIONS[words[0]]], list(words[1:])
    return None


def parsed(words: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of the command, positional ones under `0`, `1`, ...; ConfigError where a flag is unknown."""
    found = function_of(words)
    assert found is not None, f"there is no command {' '.join(words[:2])}"
    function, rest = found

    @functools.wraps(function)
    def not_run(*given: Any, **named: Any) -> dict[str, Any]:
        return {**{str(i): value for i, value in enumerate(given)}, **named}

    arguments: Any = cli.run(not_run, rest, f"vernier {words[0]}")
    return arguments


def takes_recipe(words: tuple[str, ...]) -> bool:
    return words[0] in ("train", "plan", "profile") or words[:2] in (
        ("bench", w) for w in ("train", "infer", "scaling")
    )


def configured(words: tuple[str, ...]) -> Config | None:
    """The recipe that a command names, with its `--set`s applied; None when it names none. Misspelt ones raise."""
    given = parsed(words)
    if words[0] == "recipes" and given.get("0"):
        recipe = given["0"][-1]
    else:
        recipe = given.get("0") if takes_recipe(words) else None
    named = isinstance(recipe, str) and not PLACEHOLDER.fullmatch(recipe)
    config = book.load(recipe) if named else Config()
    for assignment in given.get("settings") or ():
        config = override_from_text(config, assignment)
    return config if named else None
