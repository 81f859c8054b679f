"""The one walk over annotated types: a plain value of JSON, TOML or Python becomes the value of a field.

Settings (`config.parsing`) and records (`records.codec`) are dataclasses that are read with it; each has its own rules
for unknown names and its own words for what does not fit. Options of requests have forms of their own, whose numbers
and texts are checked here, too (`requests.values`).
"""

import types
from dataclasses import is_dataclass
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

LARGEST_INT, LARGEST_FLOAT = 2**63, 1e100
"""Nothing counts so far. Beyond it, a sum is infinite and a whole number too large for a float: errors far away."""
_ACCEPTED: dict[Any, Any] = {float: int | float, int: int, str: str, bool: bool, Path: str, dict: dict}
"""Types, and the plain values they are made from: 1 becomes 1.0, since digests see them as different."""
IN_WORDS: dict[Any, str] = {
    float: "a number",
    int: "a whole number",
    str: "text",
    bool: "true or false",
    Path: "a path",
    dict: "a table",
}


class Mismatch(ValueError):
    """A value that does not fit the type of its field: where it is, and what it must be."""

    def __init__(self, where: str, value: Any, needed: str) -> None:
        super().__init__(f"{where} must be {needed}")
        self.where, self.value, self.needed = where, value, needed


@cache
def hints_of(cls: Any) -> dict[str, Any]:
    """The annotations of a class as types, looked up once."""
    return get_type_hints(cls)


def convert(value: Any, hint: Any, where: str, nested: Any = None) -> Any:
    """The value of a field of type `hint`. Raises Mismatch.

    `nested(cls, value, where)` reads the dataclasses inside it.
    """
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(value, int) and abs(value) >= LARGEST_INT:
        raise Mismatch(where, "...", "below 2^63")  # it may have more digits than Python writes
    if hint is Any or (value is None and type(None) in args):
        return value
    if is_dataclass(hint):
        return nested(hint, value, where)
    if origin in (Union, types.UnionType):
        *first, last = [each for each in args if each is not type(None)]
        return convert(value, next((each for each in first if fits(value, each, nested)), last), where, nested)
    if origin is Literal:
        if value not in args:
            raise Mismatch(where, value, f"one of: {', '.join(map(str, args))}")
        return value
    if origin is tuple:
        return _convert_list(value, args, where, nested)
    # True is an int for Python, but not a number here.
    is_of_type = isinstance(value, _ACCEPTED[origin or hint]) and isinstance(value, bool) is (hint is bool)
    if not is_of_type:
        raise Mismatch(where, value, IN_WORDS[origin or hint])
    if hint is float and not abs(value) < LARGEST_FLOAT:  # also NaN
        raise Mismatch(where, value, "a finite number")
    if origin is dict:
        return {key: convert(item, args[1], f"{where}.{key}", nested) for key, item in value.items()}
    # 1 becomes 1.0, and a text a path.
    return hint(value)


def fits(value: Any, hint: Any, nested: Any) -> bool:
    """Whether a value is of a type."""
    try:
        convert(value, hint, "", nested)
    except ValueError:
        return False
    return True


def _convert_list(value: Any, args: tuple[Any, ...], where: str, nested: Any) -> Any:
    any_length = args[-1] is Ellipsis
    if not isinstance(value, list | tuple) or not (any_length or len(value) == len(args)):
        raise Mismatch(where, value, "a list such as [1, 2]" if any_length else f"a list of {len(args)} values")
    # Step times, of which a run has many, are as they should be.
    if args == (float, ...) and all(type(v) is float and -LARGEST_FLOAT < v < LARGEST_FLOAT for v in value):
        return tuple(value)
    kinds = zip(value, repeat(args[0]) if any_length else args, strict=False)
    return tuple(convert(each, kind, f"{where}[{i}]", nested) for i, (each, kind) in enumerate(kinds))
