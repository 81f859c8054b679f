"""One fixed binary tree over the virtual shards of a step. Knows no tensors and no processes.

A sum of floating-point numbers depends on the order of its additions. Here the tree is that order: a node stands for
some neighbouring shards, and adds the sums of its two halves. Whoever holds a row of shards computes the nodes that lie
within it (`PartialSums`); the additions above those are the same for everybody (`add_up`). `reduction` exchanges the
sums between processes.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Generic, TypeVar

T = TypeVar("T")

Node = tuple[int, int]
"""The shards from the first number up to, but not including, the second."""


def _halves(node: Node) -> tuple[Node, Node]:
    # Any number of shards has one tree, not only powers of two: of 3 shards the left half has 1, the right one 2.
    middle = (node[0] + node[1]) // 2
    return (node[0], middle), (middle, node[1])


@lru_cache(maxsize=4)
def _parents(shards: int) -> dict[Node, Node]:
    """The parent of every node below the root."""
    parents: dict[Node, Node] = {}

    def descend(node: Node) -> None:
        if node[1] - node[0] > 1:
            for half in _halves(node):
                parents[half] = node
                descend(half)

    descend((0, shards))
    return parents


def nodes_within(held: Node, shards: int) -> list[Node]:
    """The largest nodes of the tree that lie within some neighbouring shards, in order."""

    def within(node: Node) -> list[Node]:
        if held[0] <= node[0] and node[1] <= held[1]:
            return [node]
        if node[1] <= held[0] or held[1] <= node[0]:
            return []
        left, right = _halves(node)
        return within(left) + within(right)

    return within((0, shards))


class PartialSums(Generic[T]):
    """Adds up the values of neighbouring shards, one after the other, as far as the tree allows.

    `add` gets the sums of a left and a right half; it may return the left one, changed. At most as many values are
    alive as the tree is high, plus the sums that only other holders can complete.
    """

    def __init__(self, held: Node, shards: int, add: Callable[[T, T], T]) -> None:
        self._held, self._add = held, add
        self._parents = _parents(shards)
        self._next = held[0]
        self._sums: list[tuple[Node, T]] = []

    @property
    def complete(self) -> bool:
        """Whether all held shards have been added."""
        return self._next == self._held[1]

    def push(self, value: T) -> None:
        """Add the value of the next shard."""
        node = (self._next, self._next + 1)
        self._next += 1
        while self._sums:
            left, before = self._sums[-1]
            # As a carry when counting in binary: two halves become their node. Not all neighbors are halves of a node:
            # of 3 shards (0, 1) and (1, 2) are not, because the right half is (1, 3).
            parent = (left[0], node[1])
            if self._parents.get(node) != parent or self._parents.get(left) != parent:
                break
            self._sums.pop()
            node, value = parent, self._add(before, value)
        self._sums.append((node, value))

    def pop(self) -> list[T]:
        """The sums of `nodes_within` the held shards, in order; the next value is that of the first shard again."""
        assert self.complete, "a sum of a part of the shards would be that of another tree"
        sums, self._sums, self._next = [value for _, value in self._sums], [], self._held[0]
        return sums


def add_up(sums: Mapping[Node, T], shards: int, add: Callable[[T, T], T]) -> T:
    """The sum of all shards from the sums of nodes that make up the whole tree, whoever computed them."""

    def sum_of(node: Node) -> T:
        # Everything below was added in the order of the tree, whoever did it, so this sum stands for its subtree.
        if node in sums:
            return sums[node]
        left, right = _halves(node)
        return add(sum_of(left), sum_of(right))

    return sum_of((0, shards))
