import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import REPO
from vernier.randomness import Stream, key, permuted, uniform


@given(st.integers(1, 3000), st.integers(0, 2**63))
def test_a_permutation_holds_every_item_once(size: int, at: int) -> None:
    assert sorted(permuted(at, np.arange(size), size)) == list(range(size))


@given(st.integers(1, 5000), st.integers(0, 2**63), st.data())
def test_a_position_does_not_depend_on_what_else_is_asked(size: int, at: int, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, size - 1))
    assert permuted(at, [position], size)[0] == permuted(at, np.arange(size), size)[position]


def test_a_billion_items_cost_nothing() -> None:
    out = permuted(7, [0, 999_999_999, 123], 10**9)
    assert len(set(out.tolist())) == 3
    assert out.max() < 10**9


def test_permutations_are_shuffled_well() -> None:
    size = 1000
    first = np.array([permuted(key(1, 5, epoch), [0], size)[0] for epoch in range(4000)])
    counts = np.histogram(first, bins=10, range=(0, size))[0]
    assert counts.min() > 320
    assert counts.max() < 480
    order = permuted(key(1, 5, 0), np.arange(size), size)
    assert abs(np.corrcoef(order, np.arange(size))[0, 1]) < 0.1
    assert (np.diff(order) == 1).mean() < 0.01


def test_uniform_numbers_are_uniform_and_independent() -> None:
    draws = uniform(key(2, 1, 0), np.arange(20_000), 4)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert draws.mean(axis=0) == pytest.approx(0.5, abs=0.01)
    assert draws.std(axis=0) == pytest.approx(12**-0.5, abs=0.01)
    assert np.abs(np.corrcoef(draws.T) - np.eye(4)).max() < 0.03
    neighbours = np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]
    assert abs(neighbours) < 0.03


def test_uniform_depends_on_key_and_index_alone() -> None:
    whole = uniform(3, np.arange(100), 5)
    assert np.array_equal(uniform(3, [42], 5)[0], whole[42])
    assert not np.array_equal(uniform(4, np.arange(100), 5), whole)


def test_keys_tell_order_and_parts_apart() -> None:
    assert len({key(1, 2), key(2, 1), key(1, 2, 0), key(12), key(0, 12)}) == 5


def test_no_two_streams_share_a_number() -> None:
    values = [stream.value for stream in Stream.__members__.values()]
    assert len(set(values)) == len(values) == len(list(Stream))
    keys = {key(stream, seed, epoch) for stream in Stream for seed in range(20) for epoch in range(20)}
    assert len(keys) == len(list(Stream)) * 400


def test_every_key_outside_this_file_names_its_stream_and_no_purpose_is_used_twice() -> None:
    users: dict[str, set[str]] = {}
    for path in (REPO / "src" / "vernier").rglob("*.py"):
        if path.name != "randomness.py" and "vernier.randomness" in (text := path.read_text()):
            assert re.findall(r"(?<![\w.])key\((?!Stream\.)", text) == [], path
            for name in set(re.findall(r"Stream\.([A-Z_]+)", text)):
                users.setdefault(name, set()).add(path.name)
    assert set(users) == set(Stream.__members__)
    assert {name: files for name, files in users.items() if len(files) > 1} == {}
