"""Plain values by type: what becomes what, and what is named in a mismatch."""

import math
from pathlib import Path
from typing import Any, Literal

import pytest

from vernier.typed import Mismatch, convert, fits


@pytest.mark.parametrize(
    ("value", "hint", "result"),
    [
        (1, float, 1.0),
        ("a/b", Path, Path("a/b")),
        (None, int | None, None),
        ("x", int | str, "x"),
        ([1, 2], tuple[float, ...], (1.0, 2.0)),
        ([1, "x"], tuple[int, str], (1, "x")),
        ({"a": [1]}, dict[str, tuple[int, ...]], {"a": (1,)}),
        ("b", Literal["a", "b"], "b"),
    ],
)
def test_a_plain_value_becomes_the_value_of_a_field(value: object, hint: Any, result: object) -> None:
    converted = convert(value, hint, "")
    assert (converted, type(converted)) == (result, type(result))


@pytest.mark.parametrize(
    ("value", "hint", "where", "needed"),
    [
        (True, int, "x", "a whole number"),
        (1, bool, "x", "true or false"),
        (math.nan, float, "x", "a finite number"),
        pytest.param(10**5000, int, "x", "below 2^63", id="large"),
        (None, int, "x", "a whole number"),
        ("c", Literal["a", "b"], "x", "one of: a, b"),
        ([1, "2"], tuple[int, ...], "x[1]", "a whole number"),
        ([1], tuple[int, int], "x", "a list of 2 values"),
        ({"a": 1}, dict[str, str], "x.a", "text"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(value: object, hint: Any, where: str, needed: str) -> None:
    with pytest.raises(Mismatch) as mismatch:
        convert(value, hint, "x")
    assert (mismatch.value.where, mismatch.value.needed) == (where, needed)
    assert not fits(value, hint, None)
