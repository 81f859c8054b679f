"""CPU sensors are read from a real directory of files as Linux lays them out."""

from pathlib import Path

from tests.lab.conftest import put
from vernier.lab.records.telemetry import Reading
from vernier.lab.telemetry.cpu import CpuSensors


def test_a_machine_with_all_sensors(machine: Path) -> None:
    sensors = CpuSensors(machine)
    (reading,) = sensors.read()
    assert reading.clock_mhz == 2500
    assert reading.temperature_c == 51.5  # the board's own sensor is not the processor's
    assert reading.energy_j == 1.0  # of the package; its cores are part of it
    assert reading.throttle == ()
    assert {m.sensor for m in sensors.missing} == {"memory_clock_mhz", "power_limit_w"}
    put(machine / "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "8")
    assert sensors.read()[0].throttle == ("thermal",)
    assert sensors.read()[0].throttle == ()


def test_the_energy_counter_wraps_around(machine: Path) -> None:
    sensors, counter = CpuSensors(machine), machine / "sys/class/powercap/intel-rapl:0/energy_uj"
    joules = []
    for microjoules in (4_500_000, 500_000, 2_000_000):
        put(counter, str(microjoules))
        (reading,) = sensors.read()
        joules.append(reading.energy_j)
        assert (reading.power_w or 0) > 0
    assert joules == [4.5, 5.5, 7.0]


def test_what_is_missing_is_named_and_never_zero(tmp_path: Path) -> None:
    sensors = CpuSensors(tmp_path)
    (reading,) = sensors.read()
    absent = {"clock_mhz", "temperature_c", "energy_j", "power_w", "throttle", "memory_clock_mhz", "power_limit_w"}
    assert {m.sensor for m in sensors.missing} == absent
    assert all(m.why for m in sensors.missing)
    assert all(getattr(reading, name) is None for name in absent)
    assert (reading.mem_used_bytes or 0) > 0


def test_a_counter_that_may_not_be_read_is_missing_for_that_reason(machine: Path) -> None:
    counter = machine / "sys/class/powercap/intel-rapl:0/energy_uj"
    counter.unlink()
    counter.mkdir()  # cannot be read, not even by the superuser
    sensors = CpuSensors(machine)
    assert next(m.why for m in sensors.missing if m.sensor == "energy_j").endswith("cannot be read by this user")


def test_one_core_of_several_has_its_own_clock_and_no_share_of_the_processors_energy(machine: Path) -> None:
    sensors = CpuSensors(machine, cores=(1,))
    (reading,) = sensors.read()
    assert (reading.clock_mhz, reading.energy_j, reading.power_w) == (2000, None, None)
    put(machine / "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "8")
    assert sensors.read()[0].throttle == ()
    assert "whole processors" in next(m.why for m in sensors.missing if m.sensor == "energy_j")
    assert CpuSensors(machine, cores=(0, 1)).read()[0].energy_j == 1.0


def test_the_load_is_read_more_rarely_than_the_sensors(machine: Path, tmp_path: Path) -> None:
    """The kernel counts processor time in steps of 10 ms; ten readings per second would mostly be rounding."""
    sensors = CpuSensors(machine)
    assert sensors.read()[0].mem_used_bytes is not None
    (soon,) = sensors.read()
    assert soon.mem_used_bytes is None
    assert soon.clock_mhz is not None
    bare = CpuSensors(tmp_path / "nothing")
    bare.read()
    assert bare.read() == [Reading()]
