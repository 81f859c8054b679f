"""Damages a file: by its bytes, as text, as JSON, or inside its format, with checksums made right again.

The same random numbers give the same damage.
"""

from collections.abc import Sequence
from random import Random

from .containers import FORMATS
from .raw import damage_bytes
from .text import damage_text
from .trees import damage_json, damage_lines

_MOST_BYTES = 1 << 20


def mutate(random: Random, name: str, content: bytes, donors: Sequence[bytes]) -> bytes:
    """`content`, the file `name`, damaged once or a few times; `donors` are other files to splice with."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
        content = _damage(random, name, content, donors)[:_MOST_BYTES]
    return content


def _damage(random: Random, name: str, content: bytes, donors: Sequence[bytes]) -> bytes:
    suffix = name.rpartition(".")[2].partition("-")[0]
    structured = {"json": damage_json, "jsonl": damage_lines, **FORMATS}.get(suffix)
    if structured is not None and random.random() < 0.65:
        damaged = structured(random, content)
        if damaged is not None:
            return damaged
    if random.random() < 0.7 and _is_text(content):
        return damage_text(random, content, donors)
    return damage_bytes(random, content, donors)


def _is_text(content: bytes) -> bool:
    start = content[:200]
    return 0 not in start and sum(byte > 126 for byte in start) < len(start) // 8 + 1
