"""Loaders that take turns, and ratios of their rounds."""

import pytest

from vernier.engine.measured.loading import LoaderRounds, LoaderSpec, Round, native_batches, speed_ratio


def _loader(name: str) -> LoaderRounds:
    return LoaderRounds(LoaderSpec(name=name, batches=native_batches, path=""), 10)


def test_ratios_are_taken_round_by_round() -> None:
    fast, slow = _loader("fast"), _loader("slow")
    for loader, seconds in (
        (fast, (1.0, 2.0, 4.0, 1.0, 2.0, 4.0)),
        (slow, (2.0, 4.0, 8.0, 2.0, 4.0, 8.0)),
    ):  # the machine slowed down; the ratio did not
        loader.rounds = [_round(s, cpu_s=5.0) for s in seconds]
    ratio = speed_ratio(fast, slow)
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 2.0, 2.0)
    assert speed_ratio(fast, slow, "processor").median == 1.0
    fast.rounds, slow.rounds = fast.rounds[:5], slow.rounds[:5]
    few = speed_ratio(fast, slow)
    assert (few.median, few.low, few.high) == (2.0, None, None)  # five rounds cannot bound a median with 95 %


def test_time_that_others_took_from_the_loader_can_be_left_out() -> None:
    two, one = _loader("two"), _loader("one")
    two.rounds, one.rounds = [_round(3.0, queued_s=2.0)] * 3, [_round(2.0)] * 3
    assert speed_ratio(two, one).median == pytest.approx(2 / 3)
    assert speed_ratio(two, one, "undisturbed").median == 2.0


def _round(seconds: float, *, cpu_s: float = 1.0, queued_s: float = 0.0) -> Round:
    return Round(seconds=seconds, cpu_s=cpu_s, rss_bytes=1, grew_bytes=1, queued_s=queued_s)
