"""Simulated fleets: the truth is in the numbers, in the files, and beside them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vernier.errors import ConfigError
from vernier.measure.study.analysis import Table, judge_devices
from vernier.measure.study.files import StudyDir
from vernier.measure.study.simulation import FleetSettings, fleet_table, simulate_fleet, write_fleet
from vernier.report.study.tables import read_table

FAULTY = FleetSettings(
    devices=24, repeats=4, iterations=20, slow=2, slow_by=0.1, throttling=1, failing_coolers=1, seed=3
)


def _faults(settings: FleetSettings) -> dict[str, str]:
    return {d.id: d.fault for d in simulate_fleet(settings).devices if d.fault != "none"}


def test_the_same_seed_is_the_same_fleet() -> None:
    first, second, other = (simulate_fleet(s) for s in (FAULTY, FAULTY, replace(FAULTY, seed=4)))
    assert (first.step_s == second.step_s).all()
    assert first.devices == second.devices
    assert _faults(FAULTY) != _faults(replace(FAULTY, seed=4))
    assert not (first.step_s == other.step_s).all()
    assert sorted(_faults(FAULTY).values()) == ["failing cooler", "slow", "slow", "throttling"]


def test_spreads_are_those_asked_for() -> None:
    settings = FleetSettings(devices=2000, per_host=4, repeats=4, spread=0.01, host_spread=0.03, noise=0.02)
    logs = np.log(simulate_fleet(settings).step_s)
    assert logs.std(axis=1, ddof=1).mean() / 0.9213 == pytest.approx(0.02, rel=0.05)  # c4 of four repeats
    in_hosts = logs.mean(axis=1).reshape(-1, 4)
    assert in_hosts.std(axis=1, ddof=1).mean() / 0.9213 == pytest.approx(np.hypot(0.01, 0.02 / 2), rel=0.05)
    assert in_hosts.mean(axis=1).std() == pytest.approx(0.03, rel=0.1)


def test_drift_disturbance_and_failing_coolers() -> None:
    quiet = FleetSettings(devices=40, repeats=5, spread=0, noise=0)
    drifting = simulate_fleet(replace(quiet, drift=0.1)).step_s
    assert drifting.min() == pytest.approx(0.1)
    assert drifting.max() == pytest.approx(0.11)
    assert (np.diff(drifting, axis=1) > 0).all()  # every round comes after the one before
    disturbed = simulate_fleet(replace(quiet, disturbed=0.2))
    told = [(d, k) for d, device in enumerate(disturbed.devices) for k in device.disturbed]
    assert told == [(int(d), int(k)) for d, k in np.argwhere(disturbed.step_s > 0.1 + 1e-12)]
    cooler = simulate_fleet(replace(quiet, failing_coolers=1))
    (device,) = [i for i, d in enumerate(cooler.devices) if d.fault == "failing cooler"]
    assert cooler.step_s[device].tolist() == pytest.approx([0.1, 0.102, 0.104, 0.106, 0.108])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Table]:
    path = tmp_path_factory.mktemp("simulated") / "fleet"
    write_fleet(simulate_fleet(replace(FAULTY, missing_sensors=0.3)), path)
    return path, read_table([path])


def test_files_are_those_of_a_study_and_say_that_they_are_simulated(written: tuple[Path, Table]) -> None:
    path, table = written
    fleet = simulate_fleet(replace(FAULTY, missing_sensors=0.3))
    assert StudyDir.is_study(path)
    assert (len(table.rows), table.unit, table.simulated) == (24 * 4, "s", True)
    values = np.array([row.value for row in table.rows]).reshape(24, 4)
    assert values == pytest.approx(fleet.step_s, rel=0.02)
    truth = json.loads((path / "truth.json").read_text())
    assert {d["id"]: d["fault"] for d in truth["devices"] if d["fault"] != "none"} == _faults(FAULTY)
    assert truth["settings"]["seed"] == 3


def test_sensors_fit_the_fault_and_are_missing_where_they_should_be(written: tuple[Path, Table]) -> None:
    _, table = written
    fleet = simulate_fleet(replace(FAULTY, missing_sensors=0.3))
    readings = {d.id: [r.sensors for r in table.rows if r.device == d.id] for d in fleet.devices}
    without = {d.id for d in fleet.devices if not d.sensors}
    assert without == {name for name, rows in readings.items() if rows[0]["temp"] is None}
    assert 0 < len(without) < 24
    for device in fleet.devices:
        if device.sensors:
            hot, clock = readings[device.id][-1]["temp"], readings[device.id][-1]["freq"]
            assert hot is not None
            assert clock is not None
            assert (hot > 70, clock < 1450) == ((True, True) if device.fault[0] in "tf" else (False, False))


def test_the_slow_devices_are_the_ones_that_the_analysis_names(written: tuple[Path, Table]) -> None:
    named = {v.device for v in judge_devices(written[1]) if v.sure_slow}
    assert {name for name, fault in _faults(FAULTY).items() if fault in ("slow", "throttling")} <= named


def test_a_table_alone(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    fleet = simulate_fleet(FAULTY)
    assert write_fleet(fleet, path) == tmp_path / "fleet.truth.json"
    table = read_table([path])
    assert (table.simulated, table.workload) == (True, "simulated")
    assert [r.value for r in table.rows] == pytest.approx(fleet.step_s.ravel().tolist(), rel=0.02)
    direct = fleet_table(FAULTY, fleet.step_s)
    assert [(r.device, r.repeat) for r in direct.rows] == [(r.device, r.repeat) for r in table.rows]
    with pytest.raises(ConfigError, match="exists already"):
        write_fleet(fleet, path)
    with pytest.raises(ConfigError, match="Cannot write"):
        write_fleet(fleet, tmp_path / "nowhere" / "x.csv")


def test_more_faults_than_devices_are_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        FleetSettings(devices=3, slow=3, throttling=1)
    assert refused.value.given == {"slow": 3, "throttling": 1, "failing_coolers": 0}
    assert refused.value.works == [("devices", 4)]
