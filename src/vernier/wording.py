"""Words and numbers that messages of every package share: counts with their noun, and rough figures."""

import math


def plural(count: int, word: str) -> str:
    """1 process, 2 processes, 1,000 steps."""
    ending = "" if count == 1 else "es" if word.endswith("s") else "s"
    return f"{count:,} {word}{ending}"


def two_digits(value: float) -> str:
    """A rough number: 0.021, 1.6, 43, 270, 1,200."""
    if value <= 0:
        return "0"
    decimals = 1 - math.floor(math.log10(value))
    return f"{round(value, decimals):,.{max(0, decimals)}f}"
