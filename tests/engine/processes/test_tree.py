"""The tree of sums: its order does not depend on who holds which shards."""

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vernier.engine.processes.tree import PartialSums, add_up, nodes_within

Holders = list[tuple[int, int]]


def written(left: str, right: str) -> str:
    """An addition that remembers its order."""
    return f"({left}+{right})"


def summed(values: list[Any], holders: Holders, add: Any) -> Any:
    """The sum of all values, each holder first adding up its own."""
    shards, sums = len(values), {}
    for held in holders:
        own = PartialSums[Any](held, shards, add)
        for value in values[held[0] : held[1]]:
            assert not own.complete
            own.push(value)
        sums.update(zip(nodes_within(held, shards), own.pop(), strict=True))
    return add_up(sums, shards, add)


@st.composite
def divisions(draw: st.DrawFn) -> tuple[int, Holders]:
    """Some shards, and neighbouring ones in the hands of one holder each."""
    shards = draw(st.integers(1, 40))
    cuts = sorted({0, shards, *draw(st.lists(st.integers(0, shards), max_size=8))})
    return shards, list(pairwise(cuts))


@given(divisions())
def test_the_order_of_additions_does_not_depend_on_who_holds_what(division: tuple[int, Holders]) -> None:
    shards, holders = division
    names = [str(shard) for shard in range(shards)]
    assert summed(names, holders, written) == summed(names, [(0, shards)], written)


@given(divisions(), st.integers(0, 2**32))
def test_a_sum_of_floats_is_the_same_to_the_last_bit(division: tuple[int, Holders], seed: int) -> None:
    shards, holders = division
    numbers = random.Random(seed)
    values = [numbers.uniform(-1, 1) * 10.0 ** numbers.randint(-12, 12) for _ in range(shards)]
    total = summed(values, holders, float.__add__)
    assert total.hex() == summed(values, [(i, i + 1) for i in range(shards)], float.__add__).hex()


def test_the_tree_of_twelve() -> None:
    names = [str(shard) for shard in range(12)]
    half = "((0+(1+2))+(3+(4+5)))"
    assert summed(names, [(0, 12)], written) == f"({half}+((6+(7+8))+(9+(10+11))))"


@pytest.mark.parametrize(("processes", "sums"), [(1, 1), (2, 1), (4, 1), (3, 3), (6, 2), (12, 1)])
def test_how_many_sums_a_process_sends(processes: int, sums: int) -> None:
    """One for 2 and 4 processes; 3 and 6 cut through nodes."""
    each = 12 // processes
    counts = [len(nodes_within((rank * each, (rank + 1) * each), 12)) for rank in range(processes)]
    assert max(counts) == sums


@pytest.mark.parametrize("shards", [1, 2, 5, 12, 64])
def test_few_sums_are_alive_at_a_time(shards: int) -> None:
    own, most = PartialSums[int]((0, shards), shards, int.__add__), 0
    for shard in range(shards):
        own.push(shard)
        most = max(most, len(own._sums))
    assert own.pop() == [sum(range(shards))]
    assert most <= shards.bit_length() + 1


def test_a_part_of_the_shards_has_no_sum() -> None:
    own = PartialSums[int]((0, 3), 3, int.__add__)
    own.push(1)
    with pytest.raises(AssertionError):
        own.pop()


def test_it_starts_again_after_each_step() -> None:
    own = PartialSums[str]((1, 3), 4, written)
    for _ in range(2):
        own.push("a")
        own.push("b")
        assert own.pop() == ["a", "b"]
