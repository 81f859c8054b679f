"""What a design can find: against arithmetic where that is known, and the answers in order."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import REPO, load_benchmark
from tests.lab.study.fleets import table
from vernier.errors import ConfigError
from vernier.lab.reading.tables import read_table
from vernier.lab.study.analysis import judge_devices
from vernier.lab.study.design import (
    FleetSettings,
    answer,
    called_slow,
    draw_fleets,
    fewest_repeats,
    fleets_for,
    power_of,
    smallest_slowdown,
    spreads_of,
)

FLEETS = load_benchmark("simulated_fleet")
SMALL = FleetSettings(devices=12, repeats=3, spread=0.004, noise=0.006)


def test_power_grows_with_the_slowdown_and_with_repeats() -> None:
    powers = [power_of(SMALL, slower, 40).power for slower in (0.001, 0.02, 0.2)]
    assert powers[0] < 0.2 < powers[1] < powers[2] == 1
    noisy = replace(SMALL, noise=0.03)
    assert power_of(noisy, 0.03, 40).power < power_of(replace(noisy, repeats=12), 0.03, 40).power
    estimate = power_of(SMALL, 0.02, 40)
    assert estimate.low < estimate.power < estimate.high
    assert (estimate.fleets, estimate.devices, estimate.repeats) == (40, 12, 3)


@pytest.mark.parametrize("devices", [4, 12])
def test_verdicts_are_those_of_the_analysis(devices: int) -> None:
    """Fleet by fleet, with the hosts that a study knows."""
    settings = FLEETS.FleetSettings(
        devices=devices, spread=0.004, noise=0.006, host_spread=0.01, slow=1, slow_by=0.04, disturbed=0.1, repeats=4
    )
    rng = np.random.default_rng(5)
    step_s = np.array([FLEETS.draw_fleet(settings, rng).step_s for _ in range(20)])
    called, _ = called_slow(np.log(step_s), np.arange(devices) // settings.per_host)
    analysed = [
        {v.device for v in judge_devices(FLEETS.fleet_table(settings, values)) if v.stands_out == "slow"}
        for values in step_s
    ]
    names = np.array(FLEETS.device_names(settings))
    assert [set(names[row].tolist()) for row in called] == analysed
    assert 0 < called.sum() < called.size


def test_fleets_have_the_spreads_that_are_asked_for_and_one_slow_device() -> None:
    settings = FleetSettings(devices=100, repeats=4, spread=0.01, noise=0.02)
    slowness, truth = draw_fleets(settings, 0.5, 200, np.random.default_rng(1))
    assert slowness.shape == (200, 100, 4)
    assert truth.sum(axis=1).tolist() == [1] * 200
    assert slowness[~truth].std(axis=1, ddof=1).mean() / 0.9213 == pytest.approx(0.02, rel=0.02)  # c4 of four repeats
    assert slowness[~truth].mean(axis=1).std() == pytest.approx(np.hypot(0.01, 0.02 / 2), rel=0.02)
    assert slowness[truth].mean() == pytest.approx(np.log(1.5), abs=0.005)
    disturbed, truth = draw_fleets(
        replace(settings, disturbed=0.1, spread=0, noise=0), 0.5, 200, np.random.default_rng(2)
    )
    factors = np.exp(disturbed[~truth])
    assert (factors > 1 + 1e-9).mean() == pytest.approx(0.1, rel=0.05)
    assert factors[factors > 1 + 1e-9].mean() == pytest.approx(1.2, rel=0.01)


def test_the_same_seed_is_the_same_answer() -> None:
    assert power_of(SMALL, 0.02, 30) == power_of(SMALL, 0.02, 30)


def test_fewest_repeats_are_enough_and_fewer_are_not() -> None:
    noisy = replace(SMALL, noise=0.02)
    best = fewest_repeats(noisy, 0.05)
    assert best is not None
    assert best.enough
    assert best.repeats > 2
    assert not power_of(replace(noisy, repeats=2), 0.05, decide=True).enough
    assert fewest_repeats(replace(SMALL, spread=0.05), 0.02) is None  # more repeats do not make devices alike


def test_the_smallest_slowdown_is_found_and_half_of_it_is_not() -> None:
    smallest = smallest_slowdown(SMALL)
    assert smallest is not None
    assert power_of(SMALL, 1.2 * smallest, 60).power > 0.9
    assert power_of(SMALL, 0.5 * smallest, 60).power < 0.9


def test_the_whole_answer() -> None:
    result = answer(SMALL, 0.05, repeat_s=60, fleets=30)
    assert result.proposed.fleets == 30
    assert result.cheapest is not None
    assert result.hours(result.proposed) == pytest.approx(3 * 4 * 60 / 3600)  # one device of a host after the other
    assert (result.spread, result.noise, result.disturbed) == (SMALL.spread, SMALL.noise, SMALL.disturbed)


def test_large_fleets_are_simulated_less_often() -> None:
    assert fleets_for(64, 3) == 1000
    assert fleets_for(2000, 5) <= fleets_for(400, 5) < fleets_for(64, 10) < 1000


def test_spreads_of_a_pilot_are_those_of_its_normal_devices() -> None:
    settings = FLEETS.FleetSettings(devices=64, repeats=5, spread=0.006, noise=0.008, slow=3, slow_by=0.2)
    between, within = spreads_of(FLEETS.fleet_table(settings, FLEETS.simulate_fleet(settings).step_s))
    assert between == pytest.approx(0.006, rel=0.5)
    assert within == pytest.approx(0.008, rel=0.2)
    with pytest.raises(ConfigError, match="cannot tell devices from noise: one repeat per device") as refused:
        spreads_of(table({f"d{i}": [1.0 + i / 1000] for i in range(8)}))
    assert refused.value.works == [("spread", None), ("noise", None)]


# ------------------------------------------------------------------------------------------- the fleets of the examples

FAULTY = FLEETS.FleetSettings(slow=2, throttling=1, failing_coolers=1, seed=7, disturbed=0.03)


def test_the_example_is_the_fleet_of_the_benchmark(tmp_path: Path) -> None:
    FLEETS.write_fleet(FLEETS.simulate_fleet(FAULTY), tmp_path / "fleet.csv")
    made, example = read_table([tmp_path / "fleet.csv"]), read_table([REPO / "docs" / "examples" / "fleet.csv"])
    assert [(r.device, r.repeat) for r in made.rows] == [(r.device, r.repeat) for r in example.rows]
    assert [r.value for r in made.rows] == pytest.approx([r.value for r in example.rows])
    truth = json.loads((tmp_path / "fleet.truth.json").read_text())
    faults = {d["id"]: d["fault"] for d in truth["devices"] if d["fault"] != "none"}
    assert faults == {"sim51": "slow", "sim54": "slow", "sim07": "throttling", "sim33": "failing cooler"}
    assert {v.device for v in judge_devices(example) if v.sure_slow} == {"sim51", "sim54", "sim07"}


def test_sensors_fit_the_fault() -> None:
    example = read_table([REPO / "docs" / "examples" / "fleet.csv"])
    for device in FLEETS.simulate_fleet(FAULTY).devices:
        last = [row.sensors for row in example.rows if row.device == device.id][-1]
        hot, clock = last["temp"], last["freq"]
        assert hot is not None
        assert clock is not None
        assert (hot > 70, clock < 1450) == ((True, True) if device.fault[0] in "tf" else (False, False))
