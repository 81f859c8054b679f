"""Records to JSON and back: what is kept, what is forgiven, what is damage."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from vernier.records.codec import DamagedRecord, decode, encode, flattened, omitted


@dataclass(frozen=True, kw_only=True)
class Inner:
    number: int
    text: str = "default"


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner
    kind: Literal["a", "b"] = "a"
    several: tuple[Inner, ...] = ()
    pair: tuple[int, str] = (0, "")
    path: Path = Path()
    maybe: float | None = omitted()
    either: int | str = 0
    figures: dict[str, float | None] = flattened()


FULL = Outer(
    inner=Inner(number=1, text="x"),
    kind="b",
    several=(Inner(number=2), Inner(number=3)),
    pair=(4, "y"),
    path=Path("a/b"),
    maybe=0.5,
    either="z",
    figures={"top1": 75.0, "APs": None},
)


def test_a_record_comes_back_as_it_was() -> None:
    tree = encode(FULL)
    assert tree["top1"] == 75.0
    assert decode(Outer, tree) == FULL


def test_missing_keys_get_their_default_and_unknown_ones_are_ignored() -> None:
    assert decode(Outer, {"inner": {"number": 1, "new": [1]}, "odd": "text"}) == Outer(inner=Inner(number=1))
    assert "maybe" not in encode(Outer(inner=Inner(number=1)))


@pytest.mark.parametrize(
    ("tree", "names"),
    [
        (None, "Outer"),
        ([], "Outer"),
        ({}, "inner"),
        ({"inner": {}}, "number"),
        ({"inner": {"number": True}}, "inner.number"),
        ({"inner": {"number": "1"}}, "inner.number"),
        ({"inner": {"number": 1}, "kind": "c"}, "kind"),
        ({"inner": {"number": 1}, "several": {"number": 1}}, "several"),
        ({"inner": {"number": 1}, "several": [{}]}, r"several\[0\]"),
        ({"inner": {"number": 1}, "pair": [1]}, "pair"),
        ({"inner": {"number": 1}, "maybe": "soon"}, "maybe"),
        ({"inner": {"number": 1}, "either": []}, "either"),
        ({"inner": {"number": 10**400}}, "inner.number"),
        ({"inner": {"number": 1}, "maybe": 10**400}, "maybe"),
        ({"inner": {"number": 1}, "maybe": float("nan")}, "maybe"),
        ({"inner": {"number": 1}, "maybe": float("inf")}, "maybe"),
    ],
)
def test_what_does_not_fit_is_damage_that_names_the_key(tree: object, names: str) -> None:
    with pytest.raises(DamagedRecord, match=names):
        decode(Outer, tree)
