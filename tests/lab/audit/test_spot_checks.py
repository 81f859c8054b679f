"""Spot checks choose shards evenly, and what they conclude follows from majorities alone."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from vernier.config import Config, Derived, Machine
from vernier.config.settings import Audit
from vernier.lab.audit.fingerprints import SumsOf
from vernier.lab.audit.spot_checks import SpotChecks, odd_ranks, probability_found

DERIVED = Derived(
    world=1, process_batch=2, accumulation=12, lr=1.0, end_lr=0.0, steps_per_epoch=9, total_steps=9, stop_step=9,
    virtual_shards=12,
)  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "odd"),
    [
        ([(0, "a"), (1, "b"), (2, "a")], (1,)),
        ([(0, "a"), (1, "b"), (2, "c")], (0, 1, 2)),
        ([(0, "a"), (1, "b")], (0, 1)),
        ([(0, "wrong"), (1, "b"), (0, "b"), (1, "b")], (0,)),
        # Each of two repeats its answer: it may be either.
        ([(0, "a"), (1, "b"), (0, "a"), (1, "b")], (0, 1)),
        ([(0, "a"), (0, "b")], (0,)),
    ],
)
def test_only_a_majority_accuses(answers: list[tuple[int, object]], odd: tuple[int, ...]) -> None:
    assert odd_ranks(answers) == odd


@dataclass
class Peers:
    """A process's view of a world whose other processes compute alike."""

    rank: int
    size: int
    others: list["Peers"]
    answer: dict[Any, int] | None = None

    def share(self, own: dict[Any, int]) -> list[dict[Any, int]]:
        self.answer = own
        return [own]


def _chosen(fraction: float, size: int, steps: int) -> list[list[Any]]:
    config = replace(Config(), audit=Audit(spot_check=fraction), machine=Machine(reduction="exact"))
    checks = SpotChecks(config, DERIVED, Peers(0, size, []))  # type: ignore[arg-type]
    chosen = []
    for step in range(steps):
        checks.begin_step(step, see_all=False)
        chosen.append(list(checks._checks))
    return chosen


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("fraction", [0.01, 0.25, 1.0])
def test_the_fraction_is_kept_and_every_process_checks_as_many(fraction: float, size: int) -> None:
    steps = _chosen(fraction, size, 3000)
    count = sum(map(len, steps))
    assert count / (12 * 3000) == pytest.approx(fraction, rel=0.35 if fraction < 0.1 else 0.05)
    for checks in steps:
        assert len({check.shard for check in checks}) == len(checks)
        assert len(set(Counter(check.checker for check in checks).values())) <= 1
        assert all(size == 1 or check.checker != check.owner for check in checks)
        assert all(size < 3 or len({check.owner, check.checker, *check.judges}) == 3 for check in checks)
    pairs = Counter((check.owner, check.checker) for checks in steps for check in checks)
    assert len(pairs) == max(1, size * (size - 1))


def test_a_process_that_checks_itself_finds_what_comes_and_goes() -> None:
    config = replace(Config(), audit=Audit(spot_check=1.0), machine=Machine(reduction="exact"))
    checks = SpotChecks(config, DERIVED, Peers(0, 1, []))  # type: ignore[arg-type]
    rng, found, runs, rate = np.random.default_rng(0), 0, 2000, 0.01

    def compute(shard: int, sums: SumsOf) -> None:
        sums.add(0, torch.tensor([float(shard) + (rng.random() < rate)]))

    for step in range(runs):
        checks.begin_step(step, see_all=False)
        for shard in range(12):
            watch = checks.watch(shard)
            assert watch is not None
            watch(0, torch.tensor([float(shard) + (rng.random() < rate)]))
        mismatch = checks.settle(compute)
        if mismatch is not None:
            found += 1
            assert mismatch.odd == (0,)
    # Both results wrong in the same way is the one case that the formula counts and nobody can see.
    assert found / runs == pytest.approx(probability_found(rate, 1.0, 12), abs=0.03)
