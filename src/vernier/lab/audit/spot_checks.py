"""Spot checks: now and then a second process computes the gradients of a virtual shard once more, before the update.

With exact reduction the same shard has the same gradients, bit for bit, in whatever process computes it. If the two
differ, a third process decides which of them was wrong. Which shards, and by whom, follows from seed and step, so
processes need not agree. A single process checks itself, which finds faults that come and go. `guard` drives this.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import torch

from vernier.config import Config, Derived
from vernier.engine.processes.world import World
from vernier.frozen import frozen
from vernier.randomness import Stream, key, permuted, uniform

from .fingerprints import SumsOf, combine

Compute = Callable[[int, SumsOf], None]
"""Computes the gradients of a shard of the step once more. They are not added to those of the step."""


@frozen
class Mismatch:
    """A shard of which processes computed different gradients; `odd` are the ranks that the others contradict."""

    shard: int
    odd: tuple[int, ...]


@frozen
class _Check:
    """Who computes a shard: the process that has it, another one, and those that decide between the two."""

    shard: int
    owner: int
    checker: int
    judges: tuple[int, ...]


class SpotChecks:
    """The checks of one process."""

    def __init__(self, config: Config, derived: Derived, world: World) -> None:
        self._seed, self._shards, self._world = config.recipe.seed, derived.virtual_shards or 0, world
        self._fraction = config.audit.spot_check if self._shards else 0.0
        self._checks: list[_Check] = []
        self.seen: dict[int, SumsOf] = {}
        """The gradients of this process's shards: of those that are checked, or of all."""
        self._see_all = False

    def begin_step(self, step: int, *, see_all: bool) -> None:
        """Choose the shards of a step, the same ones in all processes; `see_all`: take the sums of all shards."""
        self.seen, self._see_all, self._checks = {}, see_all and self._shards > 0, []
        if not self._fraction:
            return
        at, size = key(Stream.SPOT_CHECK, self._seed, step), self._world.size
        each = self._shards // size
        # In a round every process checks a shard of another one at the same time, so that none waits for long. A
        # fraction of a round is a round in that fraction of the steps.
        rounds = math.floor(self._fraction * each + float(uniform(at, [0], 1)[0, 0]))
        # Other pairs in every round.
        shifts = [
            1 + key(Stream.SPOT_CHECK, self._seed, step, turn) % (size - 1) if size > 1 else 0
            for turn in range(min(rounds, each))
        ]
        for owner in range(size):
            shards = permuted(key(Stream.SPOT_CHECK, self._seed, step, -1 - owner), range(len(shifts)), each).tolist()
            self._checks += [
                self._check(owner, (owner + shift) % size, owner * each + shard)
                for shard, shift in zip(shards, shifts, strict=True)
            ]

    def _check(self, owner: int, checker: int, shard: int) -> _Check:
        others = [rank % self._world.size for rank in range(checker + 1, checker + self._world.size)]
        # Two processes compute again: who contradicts itself was wrong.
        judges = [rank for rank in others if rank != owner][:1] or ([owner, checker] if owner != checker else [])
        return _Check(shard=shard, owner=owner, checker=checker, judges=tuple(judges))

    def watch(self, shard: int) -> Callable[[int, torch.Tensor], None] | None:
        """What takes the gradients of a shard that is computed now; None if nobody checks it."""
        if not self._see_all and all(check.shard != shard for check in self._checks):
            return None
        return self.seen.setdefault(shard, SumsOf()).add

    def settle(self, compute: Compute) -> Mismatch | None:
        """Compute the chosen shards again, elsewhere, and compare. Collective; the first shard that differs."""
        if not self._checks:
            return None
        rank, own = self._world.rank, dict[tuple[int, str], int]()
        for check in self._checks:
            if rank == check.owner:
                own[check.shard, "owner"] = combine(self.seen[check.shard].values())
            if rank == check.checker:
                own[check.shard, "checker"] = _computed(compute, check.shard)
        answers = self._shared(own)
        for check in self._checks:
            pair = [(check.owner, answers[check.shard, "owner"]), (check.checker, answers[check.shard, "checker"])]
            if pair[0][1] != pair[1][1]:
                return Mismatch(shard=check.shard, odd=odd_ranks([*pair, *self._judge(check, compute)]))
        return None

    def _judge(self, check: _Check, compute: Compute) -> list[tuple[int, int]]:
        rank = self._world.rank
        again = {(rank, "judge"): _computed(compute, check.shard)} if rank in check.judges else {}
        answers = self._shared(again)
        return [(judge, answers[judge, "judge"]) for judge in check.judges]

    def _shared(self, own: dict[tuple[int, str], int]) -> dict[tuple[int, str], int]:
        return {name: value for answers in self._world.share(own) for name, value in answers.items()}


def _computed(compute: Compute, shard: int) -> int:
    sums = SumsOf()
    compute(shard, sums)
    return combine(sums.values())


def odd_ranks(answers: Sequence[tuple[int, object]]) -> tuple[int, ...]:
    """The ranks that contradict the answer of more than half; all of them if there is no such answer."""
    # A tie proves nothing: of two processes that both repeat their answers, either may be the wrong one.
    value, count = Counter(value for _, value in answers).most_common(1)[0]
    wrong = {rank for rank, other in answers if other != value or 2 * count <= len(answers)}
    return tuple(sorted(wrong))


def probability_found(rate: float, fraction: float, shards: int) -> float:
    """The probability that spot checks find a device that computes this fraction of its shards wrong.

    `shards`: how many of the run the device computed. It also computes others to check them, as often as its
    own are checked, and a wrong result shows there, too.
    """
    return 1 - (1 - rate * fraction) ** (2 * shards)
