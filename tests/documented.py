"""The commands that the documentation shows: found in its fenced blocks, and parsed without being run."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import REPO
from vernier import recipes as book
from vernier.cli import _find_command
from vernier.cli.parser import parse
from vernier.config import Config, override_from_text
from vernier.requests.declaring import Request
from vernier.requests.registry import find

DOCS = REPO / "docs"
FENCE = re.compile(r"^( *)```(?:\{ \.)?(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|(?<=[\s/]))vernier +(?=[a-z-])")
OPERATORS = {"|", "||", "&", "&&", ";", ">", ">>", "<", "2>"}
PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_-]*|<.*>|.*\.(toml|json|onnx|safetensors)|.*/.*")
"""Names a reader has to replace: RECIPE, RUN, <the run>, mine.toml, runs/RUN."""


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


def parsed(words: tuple[str, ...]) -> Request:
    """The request of a command; ConfigError if a flag is unknown."""
    command, rest = _find_command(list(words))
    cls = find(command)
    assert cls is not None
    return parse(cls, rest, f"vernier {command}")[0]


def takes_recipe(words: tuple[str, ...]) -> bool:
    return words[0] in ("train", "plan", "profile", "tune") or words[:2] in (
        ("bench", w) for w in ("train", "infer", "scaling")
    )


def configured(words: tuple[str, ...]) -> Config | None:
    """The recipe that a command names, with its `--set`s applied; None when it names none. Misspelt ones raise."""
    request = parsed(words)
    recipe = getattr(request, "recipe", None) if takes_recipe(words) or words[0] == "recipes" else None
    named = isinstance(recipe, str) and not PLACEHOLDER.fullmatch(recipe)
    config = book.load(recipe) if named and isinstance(recipe, str) else Config()
    config = override_from_text(config, *getattr(request, "settings", ()))
    return config if named else None
