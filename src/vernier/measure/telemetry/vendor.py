"""Sensors of accelerators: the vendors' management libraries NVML and HLML, and Habana's command `hl-smi`."""

import subprocess
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vernier.frozen import frozen
from vernier.records.telemetry import MissingSensor, Reading, SensorDevice

_Getters = dict[str, Callable[[Any, Any], Any]]
"""By field of a Reading; each takes the library's module and a device handle."""


@frozen
class Library:
    """A vendor's management library: NVML, and HLML which is modelled on it."""

    kind: str
    module: str
    prefix: str
    package: str
    getters: _Getters


def _bits(value: int, names: dict[int, str]) -> tuple[str, ...]:
    return tuple(name for bit, name in names.items() if value & bit)


_NVML_REASONS = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "display clocks",
}
_HLML_REASONS = {0x1: "power", 0x2: "thermal"}

NVML = Library(
    kind="cuda",
    module="pynvml",
    prefix="nvml",
    package="nvidia-ml-py",
    getters={
        "util_pct": lambda m, h: m.nvmlDeviceGetUtilizationRates(h).gpu,
        "mem_used_bytes": lambda m, h: m.nvmlDeviceGetMemoryInfo(h).used,
        "clock_mhz": lambda m, h: m.nvmlDeviceGetClockInfo(h, m.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda m, h: m.nvmlDeviceGetClockInfo(h, m.NVML_CLOCK_MEM),
        "temperature_c": lambda m, h: m.nvmlDeviceGetTemperature(h, m.NVML_TEMPERATURE_GPU),
        "power_w": lambda m, h: m.nvmlDeviceGetPowerUsage(h) / 1000,
        "power_limit_w": lambda m, h: m.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,
        "energy_j": lambda m, h: m.nvmlDeviceGetTotalEnergyConsumption(h) / 1000,
        "throttle": lambda m, h: _bits(m.nvmlDeviceGetCurrentClocksEventReasons(h), _NVML_REASONS),
    },
)
HLML = Library(
    kind="hpu",
    module="pyhlml",
    prefix="hlml",
    package="pyhlml",
    getters={
        "util_pct": lambda m, h: m.hlmlDeviceGetUtilizationRates(h),
        "mem_used_bytes": lambda m, h: m.hlmlDeviceGetMemoryInfo(h).used,
        "clock_mhz": lambda m, h: m.hlmlDeviceGetClockInfo(h),
        "temperature_c": lambda m, h: m.hlmlDeviceGetTemperature(h, 0),
        "power_w": lambda m, h: m.hlmlDeviceGetPowerUsage(h) / 1000,
        "power_limit_w": lambda m, h: m.hlmlDeviceGetPowerManagementDefaultLimit(h) / 1000,
        "energy_j": lambda m, h: m.hlmlDeviceGetTotalEnergyConsumption(h) / 1000,
        "throttle": lambda m, h: _bits(m.hlmlDeviceGetCurrentClocksThrottleReasons(h), _HLML_REASONS),
    },
)


class LibrarySensors:
    """Every device of a management library. What it refuses to read at first is missing from then on.

    Only the library's own exceptions mean a missing sensor: a function that does not exist is an AttributeError.
    """

    def __init__(self, library: Library, module: ModuleType) -> None:
        self.kind = library.kind
        self.missing: list[MissingSensor] = []
        self._library, self._module = library, module
        self._call("Init")
        self._handles = [self._call("DeviceGetHandleByIndex", i) for i in range(self._call("DeviceGetCount"))]
        self.devices = tuple(
            SensorDevice(
                kind=self.kind, index=i, name=self._text("DeviceGetName", h), uuid=self._text("DeviceGetUUID", h)
            )
            for i, h in enumerate(self._handles)
        )
        self._getters = [self._working_getters(index, handle) for index, handle in enumerate(self._handles)]

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._module, f"{self._library.prefix}{name}")(*arguments)

    def _text(self, name: str, handle: Any) -> str:
        value = self._call(name, handle)
        return value.decode() if isinstance(value, bytes) else str(value)

    def _working_getters(self, index: int, handle: Any) -> _Getters:
        working: _Getters = {}
        refused: type[Exception] = getattr(self._module, f"{self._library.prefix.upper()}Error")
        for name, getter in self._library.getters.items():
            try:
                getter(self._module, handle)
            except refused as error:
                why = f"{self._library.package}: {error or type(error).__name__}"
                self.missing.append(MissingSensor(kind=self.kind, device=index, sensor=name, why=why))
            else:
                working[name] = getter
        return working

    def read(self) -> list[Reading]:
        return [
            Reading(**{name: getter(self._module, handle) for name, getter in getters.items()})
            for handle, getters in zip(self._handles, self._getters, strict=True)
        ]

    def close(self) -> None:
        self._call("Shutdown")


_HL_SMI_FIELDS = {
    "utilization.aip": ("util_pct", 1.0),
    "memory.used": ("mem_used_bytes", 2.0**20),
    "temperature.aip": ("temperature_c", 1.0),
    "power.draw": ("power_w", 1.0),
}
"""Columns of hl-smi: the field of a Reading and the factor to its unit."""
_HL_SMI_MISSING = ("clock_mhz", "memory_clock_mhz", "energy_j", "throttle", "power_limit_w")


class HlSmiSensors:
    """Gaudi through the command `hl-smi`, where pyhlml is not installed. It reports no clock and no energy."""

    kind = "hpu"

    def __init__(self, command: str = "hl-smi") -> None:
        self._command = command
        self._columns = ["index", "uuid", "name", *_HL_SMI_FIELDS]
        rows = self._query()
        self.devices = tuple(
            SensorDevice(kind="hpu", index=int(r["index"]), name=r["name"], uuid=r["uuid"]) for r in rows
        )
        self.missing = [
            MissingSensor(kind="hpu", device=i, sensor=sensor, why="not reported by hl-smi; pip install pyhlml")
            for i in range(len(rows))
            for sensor in _HL_SMI_MISSING
        ]
        self.missing += [
            MissingSensor(kind="hpu", device=i, sensor=field, why=f"hl-smi reports {row[column]!r}")
            for i, row in enumerate(rows)
            for column, (field, _) in _HL_SMI_FIELDS.items()
            if _parse_number(row[column]) is None
        ]

    def _query(self) -> list[dict[str, str]]:
        command = [self._command, "-Q", ",".join(self._columns), "-f", "csv,noheader,nounits"]
        output = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        lines = [line.split(",") for line in output.splitlines() if line.strip()]
        return [dict(zip(self._columns, (cell.strip() for cell in cells), strict=True)) for cells in lines]

    def read(self) -> list[Reading]:
        return [
            Reading(
                throttle=None,
                **{
                    field: value * factor
                    for column, (field, factor) in _HL_SMI_FIELDS.items()
                    if (value := _parse_number(row[column])) is not None
                },
            )
            for row in self._query()
        ]

    def close(self) -> None:
        """Each query is a process of its own."""


def _parse_number(text: str) -> float | None:
    """A number, with its unit or without; None for N/A."""
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None
