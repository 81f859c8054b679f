"""Strict parsing of values in third-party files: text, JSON, whole numbers, labels, sizes and names of classes.

What does not fit raises ValueError with the reason, which each format's reader turns into one sentence with the file's
name; whole files raise ConfigError themselves.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError

LARGEST_ID = 1 << 53
"""Ids pass through JSON and 64-bit floats, which keep whole numbers up to here."""
LARGEST_LABEL = 999_999
"""A class number beyond this is damage, or an id: every number up to the largest becomes a class."""
_LARGEST_SIDE_PX = 1 << 31
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What the parsers of Python raise for input that they do not expect."""


def read_text(path: Path) -> str:
    """A text file in UTF-8, with or without a byte order mark. Raises ConfigError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text: byte {error.object[error.start]:#04x} at position {error.start:,}. "
            "Save it as UTF-8."
        ) from None
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.") from None


def read_lines(path: Path) -> tuple[str, ...]:
    """The lines of a text file that are not blank. Raises ConfigError."""
    return tuple(line.strip() for line in read_text(path).splitlines() if line.strip())


def parse_json(content: bytes | str) -> Any:
    """A JSON document. Raises ValueError, also where it is nested too deeply to be read."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def whole_number(value: Any, limit: int = LARGEST_ID) -> int:
    """A whole number, also as text or as 3.0. Raises ValueError for anything else, and beyond the limit."""
    if type(value) is not int:
        try:
            number = int(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{_shown(value)} is not a whole number") from None
        if isinstance(value, float) and number != value:
            raise ValueError(f"{value:g} is not a whole number")
        value = number
    if not -limit <= value <= limit:
        raise ValueError(f"{_shown(value)} is out of range: at most {limit:,}")
    return int(value)


def class_label(value: Any) -> int:
    """The number of a class, from 0. Raises ValueError."""
    label = whole_number(value)
    if not 0 <= label <= LARGEST_LABEL:
        raise ValueError(f"the class number {_shown(value)} is out of range: classes count from 0 to {LARGEST_LABEL:,}")
    return label


def positive_size(width: Any, height: Any) -> tuple[int, int] | None:
    """A size as annotations have it; None where they leave it out or have zeros. Raises ValueError."""
    sides = whole_number(width or 0, _LARGEST_SIDE_PX), whole_number(height or 0, _LARGEST_SIDE_PX)
    return sides if min(sides) > 0 else None


def check_class_names(names: Sequence[Any]) -> tuple[str, ...]:
    """Names of classes: text that can be written as UTF-8. Raises ValueError."""
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"{_shown(name)} is not the name of a class")
        name.encode()
    return tuple(names)


def _shown(value: Any) -> str:
    # Python refuses to write integers of more than 4,300 digits.
    text = repr(value) if not isinstance(value, int) or abs(value) < 1 << 200 else "a very long number"
    return text if len(text) <= 60 else text[:57] + "..."
