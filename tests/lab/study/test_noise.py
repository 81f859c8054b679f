"""The noise of repeats: without bias for few repeats, and in spite of disturbed runs."""

import math

import numpy as np
import pytest

from tests.conftest import load_benchmark
from vernier.lab.study.noise import (
    half_widths,
    median_factor,
    modes_apart,
    repeat_noise,
    slowness_rows,
    undisturbed,
)

STUDIES = load_benchmark("promises/studies")


def test_a_run_far_from_the_others_of_its_device_is_disturbed() -> None:
    dice = np.random.default_rng(2)
    groups = [np.exp(0.01 * dice.standard_normal(8)) * (1 + device / 10) for device in range(6)]
    groups[2][5] *= 1.5
    calm = undisturbed(groups)
    assert [(d, i) for d, flags in enumerate(calm) for i, ok in enumerate(flags) if not ok] == [(2, 5)]
    assert all(flags.all() for flags in undisturbed([np.array([1.0]), np.array([5.0])]))  # one repeat: nobody knows


def test_a_slow_rate_is_a_low_one() -> None:
    rates = [100 * np.exp(0.01 * np.random.default_rng(d).standard_normal(3)) for d in range(12)]
    rates[3][1] /= 1.5
    calm = undisturbed(rates, slow_is_high=False)
    assert [(d, i) for d, flags in enumerate(calm) for i, ok in enumerate(flags) if not ok] == [(3, 1)]


@pytest.mark.parametrize("repeats", [2, 3, 5, 20])
def test_the_noise_has_no_bias_and_disturbed_runs_do_not_move_it(repeats: int) -> None:
    bias = STUDIES.noise_bias(np.random.default_rng(4), 300, 16, repeats)
    assert bias["clean"] == pytest.approx(1, abs=0.03)
    assert bias["disturbed"] < 1.45


@pytest.mark.parametrize("repeats", [2, 3, 10])
@pytest.mark.parametrize("devices", [3, 16])
def test_a_devices_interval_holds(devices: int, repeats: int) -> None:
    assert 0.93 <= STUDIES.device_coverage(np.random.default_rng(4), 400, devices, repeats) <= 0.97


def test_runs_that_are_all_equal_have_no_noise() -> None:
    noise = repeat_noise(slowness_rows([np.array([1.0, 1.0]), np.array([2.0, 2.0, 2.0])]))
    assert (float(noise.sd), float(noise.freedom), int(noise.calm.sum())) == (0, 3, 5)


def test_variance_of_a_median() -> None:
    assert median_factor(2) == 1
    for repeats, exact in ((3, 1.346), (4, 1.193), (5, 1.434), (6, 1.288), (10, 1.383)):  # Hojo 1931
        assert median_factor(repeats) == pytest.approx(exact, rel=0.02)
    assert median_factor(5000) == pytest.approx(np.pi / 2, rel=0.01)


# ------------------------------------------------ promises for fleets that are not normal (benchmarks/coverage.py)


INTERVALS, FLEETS = load_benchmark("promises/fleet_intervals"), load_benchmark("promises/fleets")
ROUNDED = "times rounded to 1 %"


def _most(share: float, cases: int) -> float:
    """What is exceeded by chance in one run of a hundred thousand (normal approximation)."""
    return share + 4.3 * math.sqrt(share * (1 - share) / cases)


def test_a_device_with_noise_of_its_own_has_an_interval_of_its_own() -> None:
    covered = INTERVALS.coverage(np.random.default_rng(2), "1 device in 10 has 5 times the noise", 200, (32, 5))
    assert covered["loud device"] >= 1 - _most(0.10, 200)


def test_two_modes_apart_are_recognized_and_single_ones_are_not() -> None:
    rng = np.random.default_rng(8)
    throttled, rounded = (FLEETS.LAWS[law](rng, (50, 32, 10)) for law in ("throttled, 30 % of repeats", ROUNDED))
    apart = modes_apart(throttled)
    assert (apart > 0).mean() >= 0.9
    assert np.median(apart) == pytest.approx(0.05, abs=0.005)
    for ordinary in (FLEETS.LAWS["normal"](rng, (50, 32, 10)), FLEETS.LAWS["equal"](rng, (50, 8, 5)), rounded):
        assert (modes_apart(ordinary) > 0).mean() <= _most(0.02, 50)
    assert not (modes_apart(throttled[:, :5, :2]) > 0).any()  # too few runs


def test_rounded_times_are_known_to_half_a_step() -> None:
    slowness = np.log([[1.00, 1.01, 1.00], [1.01, 1.01, 1.01], [1.00, 1.00, 1.01]])
    half = half_widths(slowness, repeat_noise(slowness))
    assert half.min() > math.log(1.01) / 2
