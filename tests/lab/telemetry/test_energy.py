from typing import Any

import pytest

from vernier.lab.records.telemetry import LostSensor, Sample, TelemetryHeader, TelemetryRecord
from vernier.lab.telemetry.energy import EnergyOutcome, energy_per_image, measure_energy
from vernier.records.environment import MissingSensor


def sample(t_s: float, *, device_kind: str = "cpu", device: int = 0, session: int = 0, **fields: Any) -> Sample:
    return Sample(device_kind=device_kind, device=device, session=session, t_s=t_s, **fields)


def test_a_counter_comes_before_integrated_power() -> None:
    both = [sample(t, energy_j=100.0 * t, power_w=1.0) for t in range(11)]
    counted = measure_energy(both, [(2.5, 7.5)])
    assert counted is not None
    assert (counted.method, counted.joules) == ("counter", pytest.approx(500))
    integrated = measure_energy([sample(t, power_w=50.0 + 10 * t) for t in range(11)], [(0.0, 4.0), (6.0, 10.0)])
    assert integrated is not None
    assert (integrated.method, integrated.joules) == ("integrated power", pytest.approx(4 * 70 + 4 * 130))


def test_energy_is_unknown_where_samples_do_not_cover_the_time() -> None:
    samples = [sample(t, energy_j=float(t)) for t in range(5)]
    assert measure_energy(samples, [(0.0, 20.0)]) is None
    assert measure_energy([sample(1.0)], [(0.0, 1.0)]) is None
    assert energy_per_image([sample(t) for t in range(9)], [(0.0, 5.0)], 10).energy is None


def of(*records: TelemetryRecord) -> EnergyOutcome:
    return energy_per_image(records, [(0.0, 4.0)], images=40)


def header(kind: str, *missing: tuple[int | None, str, str]) -> TelemetryHeader:
    absent = tuple(MissingSensor(kind=kind, device=device, sensor=sensor, why=why) for device, sensor, why in missing)
    return TelemetryHeader(device_kind=kind, missing=absent)


HOST = [sample(t, energy_j=1000.0 * t) for t in range(5)]
CARDS = [sample(t, energy_j=10.0 * t, device_kind="cuda", device=d) for t in range(5) for d in (0, 1)]


@pytest.mark.parametrize("first", [(), (header("cuda"),)], ids=["of an earlier version", "with a header"])
def test_the_joules_of_accelerators_are_summed_and_those_of_the_host_left_out(
    first: tuple[TelemetryRecord, ...],
) -> None:
    energy = of(*first, *HOST, *CARDS).energy
    assert energy is not None
    assert (energy.joules_per_image, energy.devices, energy.mean_power_w) == (2.0, 2, 20.0)


def test_without_sensors_of_the_device_the_host_does_not_stand_in_for_it() -> None:
    outcome = of(header("cuda", (None, "all", "nvidia-ml-py: Driver Not Loaded")), *HOST)
    assert outcome == EnergyOutcome(energy_missing="nvidia-ml-py: Driver Not Loaded")


def test_one_device_without_sensors_leaves_no_figure_for_all() -> None:
    one = [s for s in CARDS if s.device == 1]
    outcome = of(header("cuda", (0, "all", "GPU-x is not recognised")), *HOST, *one)
    assert outcome == EnergyOutcome(energy_missing="GPU-x is not recognised")


def test_a_device_that_vanished_leaves_no_figure_and_says_so() -> None:
    kept = [s for s in CARDS if s.device == 1 or s.t_s < 2]
    lost = LostSensor(device_kind="cuda", device=0, sensor="all", why="GPU is lost", t_s=2.0)
    assert of(header("cuda"), *kept, lost).energy_missing == "GPU is lost"


def test_the_reason_is_the_missing_counter_or_the_missing_samples() -> None:
    bare = [sample(t) for t in range(5)]
    assert of(header("cpu", (0, "energy_j", "no RAPL")), *bare).energy_missing == "no RAPL"
    assert "nine tenths" in str(of(header("cpu"), *HOST[:2]).energy_missing)
    assert "telemetry_hz=0" in str(of().energy_missing)
