"""Damage to bytes, whatever they mean: flipped bits, changed numbers, chunks removed, repeated, moved or spliced in."""

from collections.abc import Callable, Sequence
from random import Random

NUMBERS = (
    0,
    1,
    2,
    7,
    0x7F,
    0x80,
    0xFF,
    0x100,
    0x7FFF,
    0xFFFF,
    0x10000,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**64 - 1,
)
"""Where lengths, counts and signs go wrong."""


def damage_bytes(random: Random, content: bytes, donors: Sequence[bytes]) -> bytes:
    if not content:
        return random.randbytes(random.choice((1, 4, 40)))
    if donors and random.random() < 0.08:
        return _splice(random, content, random.choice(donors))
    return random.choice(_CHANGES)(random, content)


def position(random: Random, content: bytes) -> int:
    """Somewhere in `content`; headers are at the start, and often hit."""
    return random.randrange(min(len(content), 64) if random.random() < 0.3 else len(content))


def _flip_bit(random: Random, content: bytes) -> bytes:
    at = position(random, content)
    return content[:at] + bytes([content[at] ^ 1 << random.randrange(8)]) + content[at + 1 :]


def _set_byte(random: Random, content: bytes) -> bytes:
    at = position(random, content)
    return content[:at] + bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))]) + content[at + 1 :]


def _set_number(random: Random, content: bytes) -> bytes:
    """A number of one to eight bytes, also one that is near to what was there."""
    at, size = position(random, content), random.choice((1, 2, 4, 8))
    order = random.choice(("little", "big"))
    old = int.from_bytes(content[at : at + size], "little" if order == "little" else "big")
    number = random.choice((*NUMBERS, old + 1, old - 1, old * 2, len(content))) % (1 << 8 * size)
    return content[:at] + number.to_bytes(size, "little" if order == "little" else "big") + content[at + size :]


def _chunk(random: Random, content: bytes) -> tuple[int, int]:
    at = position(random, content)
    return at, min(len(content), at + random.choice((1, 2, 4, 16, 64, 512, 4096)))


def _remove(random: Random, content: bytes) -> bytes:
    start, stop = _chunk(random, content)
    return content[:start] + content[stop:]


def _repeat(random: Random, content: bytes) -> bytes:
    start, stop = _chunk(random, content)
    return content[:stop] + content[start:stop] * random.choice((1, 1, 2, 30)) + content[stop:]


def _overwrite(random: Random, content: bytes) -> bytes:
    start, stop = _chunk(random, content)
    fill = random.choice((b"\0", b"\xff", b" ", b"9", b"A"))
    return content[:start] + fill * (stop - start) + content[stop:]


def _insert(random: Random, content: bytes) -> bytes:
    at = position(random, content)
    return content[:at] + random.randbytes(random.choice((1, 2, 8, 100))) + content[at:]


def _move(random: Random, content: bytes) -> bytes:
    start, stop = _chunk(random, content)
    rest = content[:start] + content[stop:]
    at = random.randrange(len(rest) + 1)
    return rest[:at] + content[start:stop] + rest[at:]


def _truncate(random: Random, content: bytes) -> bytes:
    return content[: random.randrange(len(content))]


def _splice(random: Random, content: bytes, donor: bytes) -> bytes:
    return content[: random.randrange(len(content) + 1)] + donor[random.randrange(len(donor) + 1) :]


_CHANGES: tuple[Callable[[Random, bytes], bytes], ...] = (
    *(_flip_bit, _flip_bit, _set_byte, _set_byte, _set_number, _set_number),
    *(_remove, _repeat, _overwrite, _insert, _move, _truncate),
)
