"""Slow devices: who is called slow for sure, and who is not. Whole tables of rates: benchmarks/coverage.py."""

import math

import numpy as np
import pytest

from tests.conftest import load_benchmark
from vernier.lab.study.noise import repeat_noise
from vernier.lab.study.outliers import (
    FAMILY_ERROR,
    chance_by_noise,
    hosts_differ,
    judge,
    judge_few,
    least_chance_by_noise,
    rank_tail,
    studentized,
)

STUDIES = load_benchmark("promises/studies")


@pytest.mark.parametrize("kind", STUDIES.KINDS)
@pytest.mark.parametrize(("devices", "repeats"), [(8, 2), (16, 3), (32, 5)])
def test_ordinary_devices_are_not_called_slow(devices: int, repeats: int, kind: str) -> None:
    assert STUDIES.false_alarms(np.random.default_rng(4), 300, devices, repeats, kind) <= 0.05 + 0.03


@pytest.mark.parametrize(("devices", "repeats"), [(3, 2), (3, 3), (4, 5)])
def test_nor_are_equal_devices_of_small_fleets(devices: int, repeats: int) -> None:
    for kind in ("identical", "disturbed by 5 to 30 %", "disturbed, exponential"):
        assert STUDIES.false_alarms(np.random.default_rng(4), 400, devices, repeats, kind) <= 0.05 + 0.03


@pytest.mark.parametrize(("devices", "repeats"), [(8, 2), (16, 3), (100, 5)])
def test_a_slow_device_is_called_slow(devices: int, repeats: int) -> None:
    kind = "devices differ by 0.6 %"
    assert STUDIES.detection(np.random.default_rng(4), 100, devices, repeats, kind, 0.10) > 0.9


def test_disturbed_runs_hide_a_slow_device_only_where_there_are_few_repeats() -> None:
    kind, rng = "disturbed by 5 to 30 %", np.random.default_rng(4)
    assert STUDIES.detection(rng, 100, 32, 2, kind, 0.10) < 0.2
    assert STUDIES.detection(rng, 100, 32, 10, kind, 0.10) > 0.9


def test_several_slow_devices_do_not_hide_each_other() -> None:
    values = np.random.default_rng(0).standard_normal(32)
    values[[3, 7, 11, 19]] += (8, 9, 9, 12)
    ordinary = studentized(values, np.zeros(32, np.int64)).ordinary
    assert np.flatnonzero(~ordinary).tolist() == [3, 7, 11, 19]


def test_nor_do_those_of_one_host() -> None:
    """Three of four are slow, so that the fourth looks fast beside them."""
    slowness = np.random.default_rng(4).normal(0.0, 0.01, (20, 32, 5))
    slowness[:, :3] += 0.1
    slow = judge(slowness, repeat_noise(slowness), np.arange(32) // 4).slow
    assert slow[:, :3].all()
    assert not slow[:, 3:].any()


def test_a_host_that_is_slow_as_a_whole() -> None:
    rng = np.random.default_rng(3)
    hosts = np.arange(40) // 4
    slowness = 0.003 * rng.standard_normal((40, 1)) + 0.005 * rng.standard_normal((40, 5))
    slowness[8:12] += 0.08
    slowness[30] += 0.08
    judged = judge(slowness, repeat_noise(slowness), hosts)
    assert np.flatnonzero(judged.slow).tolist() == [8, 9, 10, 11, 30]
    assert np.flatnonzero(judged.whole_host & judged.slow).tolist() == [8, 9, 10, 11]


def test_hosts_that_share_nothing_do_not_differ() -> None:
    rng = np.random.default_rng(3)
    hosts, everyone = np.arange(40) // 4, np.ones((200, 40), np.bool_)
    alike = rng.standard_normal((200, 40))
    assert 0.15 < hosts_differ(alike, hosts, everyone).mean() < 0.35
    assert hosts_differ(alike + 3 * rng.standard_normal((200, 10))[:, hosts], hosts, everyone).all()


def test_a_device_that_was_as_fast_as_others_once_is_not_slow_for_sure() -> None:
    rng = np.random.default_rng(5)
    slowness = 0.005 * rng.standard_normal((64, 4))
    slowness[7] += (0.10, 0.11, 0.10, 0.0)
    slowness[9] += 0.10
    judged = judge(slowness, repeat_noise(slowness))
    assert np.flatnonzero(judged.slow).tolist() == [9]
    chances = chance_by_noise(slowness)
    assert chances[9] < 1e-6 < FAMILY_ERROR / 64 < chances[7]


def test_one_repeat_makes_nobody_sure() -> None:
    slowness = 0.005 * np.random.default_rng(5).standard_normal((64, 1))
    slowness[7] += 0.5
    assert not judge(slowness, repeat_noise(slowness)).slow.any()
    assert least_chance_by_noise(64, 1) * 64 > FAMILY_ERROR
    assert least_chance_by_noise(64, 3) * 64 < FAMILY_ERROR


def test_ranks_of_a_few_devices() -> None:
    ahead, behind = np.array([7.0, 8.0, 9.0]), np.arange(6.0)
    assert rank_tail(ahead, behind) == pytest.approx(1 / math.comb(9, 3))
    assert rank_tail(-ahead, -behind) == pytest.approx(1)
    assert rank_tail(np.ones(3), np.ones(6)) > 0.3  # ties
    few = judge_few(np.stack([ahead, behind[:3], behind[3:]]))
    assert (few.slow.tolist(), few.fast.tolist()) == ([True, False, False], [False, True, False])
    assert not judge_few(np.array([[1.0, 2.0, 3.0]])).slow.any()  # a single device


# ------------------------------------------------ promises for fleets that are not normal (benchmarks/coverage.py)


FLEETS, CASES = load_benchmark("promises/fleets"), 200


def _most(share: float, cases: int) -> float:
    """What is exceeded by chance in one run of a hundred thousand (normal approximation)."""
    return share + 4.3 * math.sqrt(share * (1 - share) / cases)


@pytest.mark.parametrize(
    "law",
    [
        "devices gamma 1",
        "devices t3",
        "two bins, 80 / 20, 2 % apart",
        "times rounded to 1 %",
        "noise differs per device",
        "own chance of throttling",
    ],
)
def test_devices_of_fleets_that_are_not_normal_are_not_certainly_slow_or_fast(law: str) -> None:
    shares = FLEETS._judged(np.random.default_rng(3), FLEETS.LAWS[law], CASES, (32, 5))
    assert max(shares["slow"], shares["fast"]) <= _most(0.05, CASES)


@pytest.mark.parametrize(("devices", "cabinets"), [(64, 4), (32, 2)])
def test_warm_cabinets_are_named_and_equal_ones_are_not(devices: int, cabinets: int) -> None:
    warm, equal = (
        FLEETS._cabinets(np.random.default_rng(5), 60, (devices, cabinets, 5, warmer)) for warmer in (0.04, 0.0)
    )
    assert warm["first"] >= 0.95
    assert max(warm["to remove"], equal["first"], equal["others"], equal["to remove"]) <= _most(0.05, 60)
