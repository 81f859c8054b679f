from typing import Any

import pytest

from vernier.measure.telemetry.energy import energy_per_image, measure_energy, select_devices
from vernier.records.telemetry import Sample, SensorDevice, TelemetryHeader, TelemetryRecord


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
    assert energy_per_image([sample(t) for t in range(9)], [(0.0, 5.0)], 10) is None


def test_the_joules_of_accelerators_are_summed_and_those_of_the_host_left_out() -> None:
    records = [sample(t, energy_j=1000.0 * t) for t in range(5)]
    records += [sample(t, energy_j=10.0 * t, device_kind="cuda", device=d) for t in range(5) for d in (0, 1)]
    energy = energy_per_image(records, [(0.0, 4.0)], images=40)
    assert energy is not None
    assert (energy.joules_per_image, energy.devices, energy.mean_power_w) == (2.0, 2, 20.0)


def test_only_the_accelerators_in_use_are_counted() -> None:
    cards = tuple(SensorDevice(kind="cuda", index=i, name="Card", uuid=f"GPU-{i}abc") for i in (0, 1))
    cpu = SensorDevice(kind="cpu", index=0, name="cpu")
    header = TelemetryHeader(devices=(*cards, cpu))
    records: list[TelemetryRecord] = [header, header, sample(0.0)]
    records += [sample(float(t), device_kind="cuda", device=d, energy_j=10.0 * t) for t in range(5) for d in (0, 1)]

    def used_devices(*uuids: str | None) -> set[tuple[str, int]]:
        return {(r.device_kind, r.device) for r in select_devices(records, uuids) if isinstance(r, Sample)}

    assert used_devices("GPU-1abc") == {("cpu", 0), ("cuda", 1)}
    assert used_devices("1abc") == {("cpu", 0), ("cuda", 1)}
    everything = {("cpu", 0), ("cuda", 0), ("cuda", 1)}
    assert used_devices("GPU-0abc", "GPU-1abc") == everything
    assert used_devices(None) == used_devices("another") == everything
    energy = energy_per_image(select_devices(records, ["GPU-1abc"]), [(0.0, 4.0)], images=40)
    assert energy is not None
    assert (energy.devices, energy.joules_per_image) == (1, 1.0)
