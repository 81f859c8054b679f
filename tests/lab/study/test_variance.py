"""The split of the variance: what was put in comes out, and its intervals hold and are never empty."""

import math

import numpy as np
import pytest

from tests.conftest import load_benchmark
from vernier.lab.study.variance import variance_split, variances

STUDIES = load_benchmark("promises/studies")


def test_the_variance_split_recovers_what_was_put_in() -> None:
    rng = np.random.default_rng(0)
    groups = [np.exp(rng.normal(0, 0.03) + rng.normal(0, 0.01, 6)) for _ in range(150)]
    parts = variance_split(groups).all_runs
    assert parts is not None
    for part, truth in ((parts.between_devices, 3), (parts.between_repeats, 1), (parts.share_between_devices, 0.9)):
        assert (part.low or 9) < truth < (part.high or 0)


@pytest.mark.parametrize("kind", STUDIES.SPREADS)
@pytest.mark.parametrize(("devices", "repeats"), [(5, 2), (8, 3), (32, 5)])
def test_the_intervals_hold(devices: int, repeats: int, kind: str) -> None:
    covered = STUDIES.variance_coverage(np.random.default_rng(4), 500, devices, repeats, kind)
    assert covered["no_width"] == 0
    for name in ("between", "within", "share"):
        assert 0.92 <= covered[name] <= 0.99, name


def test_a_spread_that_the_repeats_hide_has_an_upper_end() -> None:
    hidden = [np.array([1.0, 1.02, 0.98]) for _ in range(6)]
    parts = variance_split(hidden).all_runs
    assert parts is not None
    assert (parts.between_devices.value, parts.between_devices.low) == (0, 0)
    assert 0.1 < (parts.between_devices.high or 0) < 2
    assert (parts.share_between_devices.high or 0) > 0


def test_heavy_tails_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    groups = [np.exp(0.01 * rng.standard_normal(5)) for _ in range(40)]
    calm = variance_split(groups).all_runs
    groups[3] = groups[3] * np.array([1, 1, 1, 1, 2.0])
    split = variance_split(groups)
    assert calm is not None
    assert split.all_runs is not None
    assert split.undisturbed_runs is not None
    ratio, calm_ratio = ((p.high or 0) / (p.low or 1) for p in (split.all_runs.between_repeats, calm.between_repeats))
    assert ratio > 3 * calm_ratio
    assert split.runs_set_aside == 1
    assert split.undisturbed_runs.between_repeats.value == pytest.approx(calm.between_repeats.value, rel=0.05)


def test_devices_with_different_numbers_of_repeats() -> None:
    rng = np.random.default_rng(2)
    groups = [np.exp(rng.normal(0, 0.02) + rng.normal(0, 0.01, 1 + d % 7)) for d in range(60)]
    parts = variance_split(groups).all_runs
    assert parts is not None
    assert (parts.between_devices.low or 9) < 2 < (parts.between_devices.high or 0)


def test_a_few_devices_get_no_interval() -> None:
    parts = variance_split([np.array([1.0, 1.1]), np.array([1.2, 1.3]), np.array([1.1, 1.0])]).all_runs
    assert parts is not None
    assert parts.between_devices.high is None


# ------------------------------------------------ promises for fleets that are not normal (benchmarks/coverage.py)


INTERVALS = load_benchmark("promises/fleet_intervals")


def _most(share: float, cases: int) -> float:
    """What is exceeded by chance in one run of a hundred thousand (normal approximation)."""
    return share + 4.3 * math.sqrt(share * (1 - share) / cases)


@pytest.mark.parametrize("law", ["repeats t3", "repeats lognormal", "noise differs per device"])
def test_intervals_between_repeats_hold_for_noise_that_is_not_normal(law: str) -> None:
    covered = INTERVALS.coverage(np.random.default_rng(2), law, 400, (32, 5))
    assert covered["repeats"] >= 1 - _most(0.10, 400)  # 64 to 83 % with chi-squared
    assert covered["device"] >= 1 - _most(0.07, 400)


def test_the_interval_between_repeats_is_not_narrower_than_that_of_normal_noise() -> None:
    rows = 0.01 * np.random.default_rng(1).standard_normal((50, 20, 4))
    value, low, high = variances(rows, np.ones(rows.shape, np.bool_)).within
    assert (low < value).all()
    assert np.median(high / value) >= 1.3  # chi-squared with 60 degrees of freedom: 1.48
