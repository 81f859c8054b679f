"""What a target is, and one input for it."""

import base64
import contextlib
import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.fuzz.mutations import mutate
from vernier.errors import ConfigError, RunFailed

Files = dict[str, bytes]
"""Content by path inside a folder."""


@dataclass(frozen=True)
class Target:
    """A reader as a command uses it, and sound files for it by name.

    `read` gets the folder with the files, one of them damaged. It raises ConfigError or RunFailed, or returns.
    `examples` are made by code when they are first needed. Files whose path begins with one of `spared` stay whole.
    `text` is whether coverage guides well: parsers in Python, no weights and no pixels. `most` is a limit of inputs for
    a reader that starts a process for each. So many examples are `refused` though they are sound, as they say too
    little: weights of another network, sensors without times.
    """

    name: str
    examples: Callable[[], dict[str, Files]]
    read: Callable[[Path], object]
    spared: tuple[str, ...] = ()
    text: bool = False
    most: int | None = None
    refused: int = 0

    @functools.cached_property
    def sound(self) -> dict[str, Files]:
        return self.examples()

    @functools.cached_property
    def damageable(self) -> tuple[tuple[str, str], ...]:
        """Example and path of every file that may be damaged."""
        return tuple(
            (e, p) for e, files in self.sound.items() for p in files if not p.startswith(self.spared or ("\0",))
        )

    def donors(self, path: str) -> Sequence[bytes]:
        """Files with the same ending, to splice with."""
        return self._by_ending[path.rpartition(".")[2]]

    @functools.cached_property
    def _by_ending(self) -> dict[str, list[bytes]]:
        groups: dict[str, list[bytes]] = {}
        for example, path in self.damageable:
            groups.setdefault(path.rpartition(".")[2], []).append(self.sound[example][path])
        return groups


def attempt(read: Callable[[], object]) -> None:
    """Read; a refusal does not keep other readers from trying the same files."""
    with contextlib.suppress(ConfigError, RunFailed):
        read()


@dataclass(frozen=True)
class Case:
    """One input: an example of a target with one file replaced."""

    target: str
    example: str
    path: str
    content: bytes

    def to_text(self) -> str:
        tree = {**vars(self), "content": base64.b64encode(self.content).decode()}
        return json.dumps(tree, indent=1) + "\n"

    @classmethod
    def from_text(cls, text: str) -> "Case":
        tree = json.loads(text)
        return cls(**{**tree, "content": base64.b64decode(tree["content"])})


def make_case(target: Target, seed: str, number: int) -> Case:
    """Input `number` of a target: the same for the same seed."""
    random = Random(f"{seed}/{target.name}/{number}")
    example, path = random.choice(target.damageable)
    content = mutate(random, path, target.sound[example][path], target.donors(path))
    return Case(target.name, example, path, content)
