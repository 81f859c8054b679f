"""The vendors' libraries are not here: each is simulated by a module that has only the functions a test gives it."""

import stat
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.measure.conftest import put
from vernier.measure.telemetry.vendor import HLML, NVML, HlSmiSensors, LibrarySensors
from vernier.records.telemetry import Reading


class SimulatedError(Exception):
    """Stands for NVMLError and HLMLError."""


def simulated_library(prefix: str, **functions: Any) -> ModuleType:
    module = ModuleType("simulated")
    setattr(module, f"{prefix.upper()}Error", SimulatedError)
    for name, function in functions.items():
        setattr(module, f"{prefix}{name}", function)
    return module


def refuse(*_: Any) -> None:
    raise SimulatedError("Not Supported")


NVML_FUNCTIONS: dict[str, Any] = {
    "Init": lambda: None,
    "Shutdown": lambda: None,
    "DeviceGetCount": lambda: 2,
    "DeviceGetHandleByIndex": lambda i: i,
    "DeviceGetName": lambda h: "Card",
    "DeviceGetUUID": lambda h: f"GPU-{h}",
    "DeviceGetPowerUsage": lambda h: 82_091,
    "DeviceGetTotalEnergyConsumption": refuse,
    "DeviceGetCurrentClocksEventReasons": lambda h: 0x4 | 0x1,
    "DeviceGetClockInfo": lambda h, which: (1530, 877)[which],
    "DeviceGetTemperature": lambda h, which: 40,
    "DeviceGetUtilizationRates": lambda h: SimpleNamespace(gpu=97),
    "DeviceGetMemoryInfo": lambda h: SimpleNamespace(used=2**30),
    "DeviceGetEnforcedPowerLimit": lambda h: 300_000,
}


def simulated_nvml(**functions: Any) -> ModuleType:
    module = simulated_library("nvml", **functions)
    module.NVML_CLOCK_SM, module.NVML_CLOCK_MEM, module.NVML_TEMPERATURE_GPU = 0, 1, 0  # type: ignore[attr-defined]
    return module


def test_simulated_nvml_gives_units_and_names_what_a_card_does_not_have() -> None:
    sensors = LibrarySensors(NVML, simulated_nvml(**NVML_FUNCTIONS))
    assert [d.uuid for d in sensors.devices] == ["GPU-0", "GPU-1"]
    assert sensors.read()[1] == Reading(
        util_pct=97.0,
        mem_used_bytes=2.0**30,
        clock_mhz=1530.0,
        memory_clock_mhz=877.0,
        temperature_c=40.0,
        power_w=82.091,
        power_limit_w=300.0,
        throttle=("power cap",),
    )
    assert [(m.device, m.sensor) for m in sensors.missing] == [(0, "energy_j"), (1, "energy_j")]
    assert "Not Supported" in sensors.missing[0].why


def test_a_function_that_the_library_does_not_have_is_an_error_and_no_missing_sensor() -> None:
    misspelt = {k: v for k, v in NVML_FUNCTIONS.items() if k != "DeviceGetPowerUsage"}
    with pytest.raises(AttributeError, match="nvmlDeviceGetPowerUsage"):
        LibrarySensors(NVML, simulated_nvml(**misspelt))


def test_simulated_gaudi_library_has_the_same_fields() -> None:
    module = simulated_library(
        "hlml",
        Init=lambda: None,
        DeviceGetCount=lambda: 1,
        DeviceGetHandleByIndex=lambda i: i,
        DeviceGetName=lambda h: b"HL-205",
        DeviceGetUUID=lambda h: b"01P0-HL2000",
        DeviceGetPowerUsage=lambda h: 226_000,
        DeviceGetTotalEnergyConsumption=lambda h: 5000,
        DeviceGetCurrentClocksThrottleReasons=lambda h: 2,
        DeviceGetClockInfo=lambda h: 1650,
        DeviceGetTemperature=lambda h, where: 36,
        DeviceGetUtilizationRates=lambda h: 80,
        DeviceGetMemoryInfo=lambda h: SimpleNamespace(used=672),
        DeviceGetPowerManagementDefaultLimit=lambda h: 350_000,
    )
    sensors = LibrarySensors(HLML, module)
    assert [d.uuid for d in sensors.devices] == ["01P0-HL2000"]
    (reading,) = sensors.read()
    assert (reading.power_w, reading.energy_j, reading.throttle) == (226.0, 5.0, ("thermal",))


def test_simulated_hl_smi_is_read_with_and_without_units(tmp_path: Path) -> None:
    rows = ("0, 01P0-HL2000, HL-205, 80 %, 672 MiB, 36 C, 226 W", "1, 01P0-HL2001, HL-205, 5, 600, N/A, 100")
    script = put(tmp_path / "hl-smi", "\n".join(["#!/bin/sh", *(f'echo "{row}"' for row in rows)]))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    sensors = HlSmiSensors(str(script))
    first, second = sensors.read()
    assert first == Reading(util_pct=80.0, mem_used_bytes=672 * 2.0**20, temperature_c=36.0, power_w=226.0)
    assert second.temperature_c is None
    assert [d.uuid for d in sensors.devices] == ["01P0-HL2000", "01P0-HL2001"]
    assert {"clock_mhz", "energy_j"} <= {m.sensor for m in sensors.missing}
