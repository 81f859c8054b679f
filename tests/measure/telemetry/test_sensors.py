"""CPU sensors are read from a real directory of files as Linux lays them out; accelerators that are not here are simulated."""

import stat
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.measure.conftest import put
from vernier.measure.telemetry.sensors import HLML, NVML, CpuSensors, HlSmiSensors, LibrarySensors, open_sensors


def test_a_machine_with_all_sensors(machine: Path) -> None:
    sensors = CpuSensors(machine)
    (reading,) = sensors.read()
    assert reading["clock_mhz"] == 2500
    assert reading["temperature_c"] == 51.5  # the board's own sensor is not the processor's
    assert reading["energy_j"] == 1.0  # of the package; its cores are part of it
    assert reading["throttle"] == []
    assert {m.sensor for m in sensors.missing} == {"memory_clock_mhz", "power_limit_w"}
    put(machine / "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "8")
    assert sensors.read()[0]["throttle"] == ["thermal"]
    assert sensors.read()[0]["throttle"] == []


def test_the_energy_counter_wraps_around(machine: Path) -> None:
    sensors, counter = CpuSensors(machine), machine / "sys/class/powercap/intel-rapl:0/energy_uj"
    seen = []
    for microjoules in (4_500_000, 500_000, 2_000_000):
        put(counter, str(microjoules))
        (reading,) = sensors.read()
        seen.append(reading["energy_j"])
        assert float(reading["power_w"]) > 0  # type: ignore[arg-type]
    assert seen == [4.5, 5.5, 7.0]


def test_what_is_missing_is_named_and_never_zero(tmp_path: Path) -> None:
    sensors = CpuSensors(tmp_path)
    (reading,) = sensors.read()
    absent = {"clock_mhz", "temperature_c", "energy_j", "power_w", "throttle", "memory_clock_mhz", "power_limit_w"}
    assert {m.sensor for m in sensors.missing} == absent
    assert all(m.why for m in sensors.missing)
    assert not absent & set(reading)
    assert float(reading["mem_used_bytes"]) > 0  # type: ignore[arg-type]


def test_a_counter_that_may_not_be_read_is_missing_for_that_reason(machine: Path) -> None:
    counter = machine / "sys/class/powercap/intel-rapl:0/energy_uj"
    counter.unlink()
    counter.mkdir()  # cannot be read, not even by the superuser
    sensors = CpuSensors(machine)
    assert next(m.why for m in sensors.missing if m.sensor == "energy_j").endswith("cannot be read by this user")


def simulated_library(prefix: str, **functions: Any) -> ModuleType:
    module = ModuleType("simulated")
    for name, function in functions.items():
        setattr(module, f"{prefix}{name}", function)
    return module


def refused(*_: Any) -> None:
    raise RuntimeError("Not Supported")


def test_simulated_nvml_gives_units_and_names_what_a_card_does_not_have() -> None:
    module = simulated_library(
        "nvml", Init=lambda: None, Shutdown=lambda: None, DeviceGetCount=lambda: 2, DeviceGetHandleByIndex=lambda i: i,
        DeviceGetName=lambda h: "Card", DeviceGetUUID=lambda h: f"GPU-{h}", DeviceGetPowerUsage=lambda h: 82_091,
        DeviceGetTotalEnergyConsumption=refused, DeviceGetCurrentClocksEventReasons=lambda h: 0x4 | 0x1,
        DeviceGetClockInfo=lambda h, which: (1530, 877)[which], DeviceGetTemperature=lambda h, which: 40,
        DeviceGetUtilizationRates=lambda h: SimpleNamespace(gpu=97), DeviceGetMemoryInfo=lambda h: SimpleNamespace(used=2**30),
        DeviceGetEnforcedPowerLimit=lambda h: 300_000,
    )  # fmt: skip
    module.NVML_CLOCK_SM, module.NVML_CLOCK_MEM, module.NVML_TEMPERATURE_GPU = 0, 1, 0  # type: ignore[attr-defined]
    sensors = LibrarySensors(NVML, module)
    assert [d["uuid"] for d in sensors.devices()] == ["GPU-0", "GPU-1"]
    assert sensors.read()[1] == {
        "util_pct": 97.0, "mem_used_bytes": 2.0**30, "clock_mhz": 1530.0, "memory_clock_mhz": 877.0, "temperature_c": 40.0,
        "power_w": 82.091, "power_limit_w": 300.0, "throttle": ["power cap"],
    }  # fmt: skip
    assert [(m.device, m.sensor) for m in sensors.missing] == [(0, "energy_j"), (1, "energy_j")]
    assert "Not Supported" in sensors.missing[0].why


def test_simulated_gaudi_library_has_the_same_fields() -> None:
    module = simulated_library(
        "hlml", Init=lambda: None, DeviceGetCount=lambda: 1, DeviceGetHandleByIndex=lambda i: i, DeviceGetPowerUsage=lambda h: 226_000,
        DeviceGetTotalEnergyConsumption=lambda h: 5000, DeviceGetCurrentClocksThrottleReasons=lambda h: 2,
        DeviceGetClockInfo=lambda h: 1650, DeviceGetTemperature=lambda h, where: 36, DeviceGetUtilizationRates=lambda h: 80,
        DeviceGetMemoryInfo=lambda h: SimpleNamespace(used=672), DeviceGetPowerManagementDefaultLimit=lambda h: 350_000,
    )  # fmt: skip
    (reading,) = LibrarySensors(HLML, module).read()
    assert (reading["power_w"], reading["energy_j"], reading["throttle"]) == (226.0, 5.0, ["thermal"])


def test_simulated_hl_smi_is_read_with_and_without_units(tmp_path: Path) -> None:
    script = put(
        tmp_path / "hl-smi",
        '#!/bin/sh\necho "0, 01P0-HL2000, HL-205, 80 %, 672 MiB, 36 C, 226 W"\necho "1, 01P0-HL2001, HL-205, 5, 600, N/A, 100"',
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    sensors = HlSmiSensors(str(script))
    first, second = sensors.read()
    assert first == {"util_pct": 80.0, "mem_used_bytes": 672 * 2.0**20, "temperature_c": 36.0, "power_w": 226.0}
    assert "temperature_c" not in second
    assert [d["uuid"] for d in sensors.devices()] == ["01P0-HL2000", "01P0-HL2001"]
    assert {"clock_mhz", "energy_j"} <= {m.sensor for m in sensors.missing}


def test_an_accelerator_without_its_library_is_said_so() -> None:
    sensors, missing = open_sensors("hpu")
    assert [s.kind for s in sensors] == ["cpu"]
    assert any(m["kind"] == "hpu" and m["sensor"] == "all" and "pyhlml" in m["why"] for m in missing)


def test_the_load_is_looked_at_more_rarely_than_the_sensors(machine: Path, tmp_path: Path) -> None:
    """The kernel counts processor time in steps of 10 ms; ten looks a second would mostly be rounding."""
    sensors = CpuSensors(machine)
    assert "mem_used_bytes" in sensors.read()[0]
    (soon,) = sensors.read()
    assert "mem_used_bytes" not in soon
    assert "clock_mhz" in soon
    bare = CpuSensors(tmp_path / "nothing")
    bare.read()
    assert bare.read() == [{}]
