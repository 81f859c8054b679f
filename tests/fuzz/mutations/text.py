"""Damage to text: numbers, words, lines and separators replaced, removed or repeated; characters that are none."""

import re
from collections.abc import Callable, Sequence
from random import Random

from .raw import damage_bytes

NUMBERS = (
    *(
        b"0",
        b"-0",
        b"-1",
        b"1",
        b"0.0",
        b"1e-400",
        b"5e-324",
        b"1e308",
        b"1e400",
        b"-1e400",
        b"NaN",
        b"nan",
        b"Infinity",
    ),
    *(b"-inf", b"2147483648", b"4294967296", b"9223372036854775808", b"1" + b"0" * 30, b"9" * 400, b"9" * 5000),
    *(b"1_000", b"0x10", b"1,5", b"+1", b"1.", b".5", b"--1", b"1e", b"\xd9\xa1\xd9\xa2", b"\xc2\xb2"),
)
"""Huge, tiny and odd numbers; the last ones are Arabic digits and a raised two, which Python calls digits."""
WORDS = (
    *(
        b"",
        b" ",
        b"\t",
        b"\0",
        b"\xff\xfe",
        b"\xc3\x28",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
        b"\x85",
        b"\x1c",
    ),
    *(
        b"\r",
        b"\r\n",
        b"\n\n",
        b'"',
        b"'",
        b"\\",
        b"\\u0000",
        b"\\ud800",
        b"null",
        b"true",
        b"None",
        b"{}",
        b"[]",
        b"()",
    ),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b";",
        b"=",
        b"#",
        b"%",
        b"<",
        b">",
        b"&x;",
        b"../../x",
        b"/",
        b"x" * 300,
        b"(" * 300,
    ),
    *(b"[" * 3000, b"A" * 70000, b"{" * 100, b"- " * 500, b"[" * 100000),
)
_NUMBER = re.compile(rb"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORD = re.compile(rb"[\w.]+|[^\w\s]")


def damage_text(random: Random, content: bytes, donors: Sequence[bytes]) -> bytes:
    if random.random() < 0.15:
        return damage_bytes(random, content, donors)
    return random.choice(_CHANGES)(random, content)


def _match(random: Random, pattern: re.Pattern[bytes], content: bytes) -> tuple[int, int]:
    """Where a random match is: the first from a random position on."""
    match = pattern.search(content, random.randrange(len(content) + 1)) or pattern.search(content)
    return match.span() if match else (0, 0)


def _number(random: Random, content: bytes) -> bytes:
    start, stop = _match(random, _NUMBER, content)
    return content[:start] + random.choice(NUMBERS) + content[stop:]


def _word(random: Random, content: bytes) -> bytes:
    start, stop = _match(random, _WORD, content)
    return content[:start] + random.choice((*WORDS, *NUMBERS)) + content[stop:]


def _other_word(random: Random, content: bytes) -> bytes:
    """A word in the place of another word of the same text."""
    (start, stop), (a, b) = _match(random, _WORD, content), _match(random, _WORD, content)
    return content[:start] + content[a:b] + content[stop:]


def _insert(random: Random, content: bytes) -> bytes:
    at = random.randrange(len(content) + 1)
    return content[:at] + random.choice(WORDS) + content[at:]


def _lines(random: Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True) or [b""]
    at = random.randrange(len(lines))
    change = random.randrange(5)
    if change == 0:
        del lines[at]
    elif change == 1:
        lines.insert(random.randrange(len(lines) + 1), lines[at])
    elif change == 2:
        lines[at] = lines[at][: random.randrange(len(lines[at]) + 1)]
    elif change == 3:
        other = random.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at : at + 1] = [lines[at]] * random.choice((3, 50))
    return b"".join(lines)


def _separators(random: Random, content: bytes) -> bytes:
    old, new = (
        random.choice((b",", b";", b"\n", b" ", b":", b"=", b"\t", b".")),
        random.choice((b",", b";", b"\t", b"|", b"", b"\n")),
    )
    return content.replace(old, new, random.choice((1, 1, 5, -1)))


def _encoding(random: Random, content: bytes) -> bytes:
    text = content.decode("utf-8", errors="replace")
    return text.encode(random.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32")), errors="replace")


_CHANGES: tuple[Callable[[Random, bytes], bytes], ...] = (
    *(_number, _number, _number, _number, _word, _word, _word, _other_word, _other_word, _insert, _insert),
    *(_lines, _lines, _separators, _encoding),
)
