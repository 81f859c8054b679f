"""Words and numbers that messages of every package share: counts with their noun, rough figures, and texts of
strangers made safe for a terminal."""

import math
import re
from collections.abc import Sequence


def plural(count: int, word: str) -> str:
    """1 process, 2 processes, 3 boxes, 1,000 steps."""
    ending = "" if count == 1 else "es" if word.endswith(("s", "x")) else "s"
    return f"{count:,} {word}{ending}"


def describe_batch(*, world: int, process_batch: int, accumulation: int, virtual_shards: int | None) -> str:
    """How a global batch is divided: `64 = 2 processes x 32 images x 1 accumulation step`."""
    parts = "accumulation step" if virtual_shards is None else "virtual shard"
    return (
        f"{world * process_batch * accumulation:,} = {plural(world, 'process')} x {plural(process_batch, 'image')} x "
        f"{plural(accumulation, parts)}"
    )


def two_digits(value: float) -> str:
    """A rough number: 0.021, 1.6, 43, 270, 1,200."""
    if value <= 0:
        return "0"
    decimals = 1 - math.floor(math.log10(value))
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


_STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters: colours, titles, the cursor, overwriting a line
    r"\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # direction of text, invisible marks
    r"\ud800-\udfff\U000e0000-\U000e007f]"  # bytes of a file name that are no text; invisible letters
)


def printable(text: str, *, lines: bool = False) -> str:
    """A text that cannot steer the terminal it is printed on: control characters as escapes, `\\x1b` and the like.

    File names, class names, hosts and logs come from strangers. `lines`: line breaks stay, otherwise they are escaped.
    """
    text = text if lines else text.replace("\n", "\\n")
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


_WIDE = 2.0
"""A range with ends this far apart has no digits in common."""


def round_to_range(values: Sequence[float], low: float, high: float) -> list[str]:
    """Write values with as many digits as an uncertainty from `low` to `high` supports."""
    if high > _WIDE * low:
        return [two_digits(value) for value in values]
    half = (high - low) / 2
    exponent = math.floor(math.log10(half / 2)) if half > 0 else math.floor(math.log10(abs(values[0]))) - 2
    return [f"{round(v, -exponent):,.{max(0, -exponent)}f}" for v in values]


def with_range(value: float, between: tuple[float, float]) -> str:
    """A value and its range, with the digits that the range supports."""
    middle, low, high = round_to_range([value, *between], *between)
    return middle if low == high else f"{middle} ({low} to {high})"
