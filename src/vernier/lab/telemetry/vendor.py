"""Sensors of accelerators: the vendors' management libraries NVML and HLML, and Habana's command `hl-smi`.

A management library knows every device of the host, whichever this process may use. So devices are looked up by the
UUIDs of those in use, and a device that is not recognised has no sensors: never those of its neighbours.
"""

import contextlib
import io
import subprocess
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from vernier.frozen import frozen
from vernier.records.telemetry import ALL_SENSORS, MissingSensor, Reading, SensorDevice

_Getters = dict[str, Callable[[Any, Any], Any]]
"""By field of a Reading; each takes the library's module and a device handle."""

NO_UUID = "the device has no UUID by which to recognise its sensors"


@frozen
class Library:
    """A vendor's management library: NVML, and HLML which is modelled on it.

    `lost` are the names of errors after which a device answers no more, `not_of_a_part` the sensors that only a whole
    device has, not one of the parts it is split into.
    """

    kind: str
    module: str
    prefix: str
    package: str
    getters: _Getters
    lost: tuple[str, ...]
    not_of_a_part: tuple[str, ...] = ()

    def error_of(self, module: ModuleType) -> type[Exception]:
        """The base of the library's own exceptions."""
        error: type[Exception] = getattr(module, f"{self.prefix.upper()}Error")
        return error


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
_HLML_ON_AIP = 0
"""The temperature sensor of the processor, not of the board."""

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
    lost=("NVMLError_GpuIsLost", "NVMLError_GpuNotFound", "NVMLError_NotFound", "NVMLError_ResetRequired"),
    not_of_a_part=("power_w", "power_limit_w", "energy_j"),
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
        "temperature_c": lambda m, h: m.hlmlDeviceGetTemperature(h, _HLML_ON_AIP),
        "power_w": lambda m, h: m.hlmlDeviceGetPowerUsage(h) / 1000,
        "power_limit_w": lambda m, h: m.hlmlDeviceGetPowerManagementDefaultLimit(h) / 1000,
        "energy_j": lambda m, h: m.hlmlDeviceGetTotalEnergyConsumption(h) / 1000,
        "throttle": lambda m, h: _bits(m.hlmlDeviceGetCurrentClocksThrottleReasons(h), _HLML_REASONS),
    },
    lost=("HLMLError_AipIsLost", "HLMLError_NotFound"),
)


class LibrarySensors:
    """The devices of a management library that are in use, in the order of their UUIDs.

    What the library refuses to read is missing from then on: at first, or when a device vanishes. Only the library's
    own exceptions mean a missing sensor: a function that does not exist is an AttributeError.
    """

    def __init__(self, library: Library, module: ModuleType, uuids: Sequence[str | None]) -> None:
        self.kind = library.kind
        self.missing: list[MissingSensor] = []
        self._library, self._module = library, module
        self._error = library.error_of(module)
        with contextlib.redirect_stdout(io.StringIO()):  # pyhlml prints that it found no library, besides raising
            self._call("Init")
        self._getters: dict[int, _Getters] = {}
        self._handles: dict[int, Any] = {}
        self.devices: tuple[SensorDevice, ...] = ()
        for index, uuid in enumerate(uuids):
            self._open(index, uuid)

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._module, f"{self._library.prefix}{name}")(*arguments)

    def _miss(self, index: int, sensor: str, why: str) -> None:
        self.missing.append(MissingSensor(kind=self.kind, device=index, sensor=sensor, why=why))

    def _explain(self, error: Exception) -> str:
        name = type(error).__name__.partition("_")[2]
        return f"{self._library.package}: {error}" + (f" ({name})" if name and self._library is HLML else "")

    def _open(self, index: int, uuid: str | None) -> None:
        """Look the device up, and try each of its sensors once."""
        if uuid is None:
            self._miss(index, ALL_SENSORS, NO_UUID)
            return
        try:
            handle = self._call("DeviceGetHandleByUUID", uuid)
            # pyhlml gives the same handle object for every device, and changes its content
            handle = type(handle).from_buffer_copy(handle)
            name = self._call("DeviceGetName", handle)
            split = self._library is NVML and not uuid.startswith("MIG-") and self._is_split(handle)
        except self._error as error:
            self._miss(index, ALL_SENSORS, f"{uuid} is not recognised: {self._explain(error)}")
            return
        if split:
            self._miss(index, ALL_SENSORS, f"{uuid} is split into MIG instances, whose sensors are not its own")
            return
        text = name.decode() if isinstance(name, bytes) else str(name)
        self.devices += (SensorDevice(kind=self.kind, index=index, name=text, uuid=uuid),)
        self._handles[index] = handle
        self._getters[index] = self._working_getters(index, handle, is_part=uuid.startswith("MIG-"))

    def _is_split(self, handle: Any) -> bool:
        """Whether a GPU is in MIG mode; processes then compute on instances of it only."""
        try:
            current, _ = self._module.nvmlDeviceGetMigMode(handle)
        except self._error:  # a GPU that has no such mode
            return False
        return bool(current == self._module.NVML_DEVICE_MIG_ENABLE)

    def _working_getters(self, index: int, handle: Any, *, is_part: bool) -> _Getters:
        working: _Getters = {}
        for name, getter in self._library.getters.items():
            if is_part and name in self._library.not_of_a_part:
                self._miss(index, name, "a MIG instance has none of its own: its GPU's is that of all instances")
                continue
            try:
                getter(self._module, handle)
            except self._error as error:
                self._miss(index, name, self._explain(error))
            else:
                working[name] = getter
        return working

    def read(self) -> list[Reading]:
        return [self._read(index, handle) for index, handle in self._handles.items()]

    def _read(self, index: int, handle: Any) -> Reading:
        values: dict[str, Any] = {}
        for name, getter in list(self._getters[index].items()):
            try:
                values[name] = getter(self._module, handle)
            except self._error as error:
                if type(error).__name__ in self._library.lost:
                    self._getters[index] = {}
                    self._miss(index, ALL_SENSORS, self._explain(error))
                    return Reading()
                del self._getters[index][name]
                self._miss(index, name, self._explain(error))
        return Reading(**values)

    def close(self) -> None:
        with contextlib.suppress(self._error):  # the driver may be gone
            self._call("Shutdown")


_HL_SMI_FIELDS = {
    "utilization.aip": ("util_pct", 1.0),
    "memory.used": ("mem_used_bytes", 2.0**20),
    "temperature.aip": ("temperature_c", 1.0),
    "power.draw": ("power_w", 1.0),
}
"""Columns of hl-smi: the field of a Reading and the factor to its unit."""
_HL_SMI_MISSING = ("clock_mhz", "memory_clock_mhz", "energy_j", "throttle", "power_limit_w")
HL_SMI_TIMEOUT_S = 10.0
HL_SMI_FAILURES = (OSError, subprocess.SubprocessError, ValueError)
"""It is not there, it fails or does not answer, or it answers with something else."""


class HlSmiSensors:
    """Gaudi devices through the command `hl-smi`, where pyhlml is not installed. It reports no clock and no energy.

    Raises one of HL_SMI_FAILURES when the command does not work at first; later the devices are missing.
    """

    kind = "hpu"

    def __init__(self, uuids: Sequence[str | None], command: str = "hl-smi") -> None:
        self._command = command
        self._columns = ["uuid", "name", *_HL_SMI_FIELDS]
        self.missing: list[MissingSensor] = []
        rows = self._query()
        listed = ", ".join(rows) or "none"
        for index, uuid in enumerate(uuids):
            if uuid not in rows:
                why = NO_UUID if uuid is None else f"{uuid} is not recognised: hl-smi lists {listed}"
                self._miss(index, (ALL_SENSORS,), why)
        self.devices = tuple(
            SensorDevice(kind="hpu", index=index, name=rows[uuid]["name"], uuid=uuid)
            for index, uuid in enumerate(uuids)
            if uuid in rows and uuid is not None
        )
        for device in self.devices:
            self._miss(device.index, _HL_SMI_MISSING, "not reported by hl-smi; pip install pyhlml")
            for column, (field, _) in _HL_SMI_FIELDS.items():
                cell = rows[str(device.uuid)][column]
                if _parse_number(cell) is None:
                    self._miss(device.index, (field,), f"hl-smi reports {cell!r}")
        self._lost: set[int] = set()

    def _miss(self, index: int, sensors: Iterable[str], why: str) -> None:
        self.missing += [MissingSensor(kind="hpu", device=index, sensor=sensor, why=why) for sensor in sensors]

    def _query(self) -> dict[str, dict[str, str]]:
        """The cells of each device, by its UUID."""
        command = [self._command, "-Q", ",".join(self._columns), "-f", "csv,noheader,nounits"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HL_SMI_TIMEOUT_S, check=True)
        lines = [line.split(",") for line in done.stdout.splitlines() if line.strip()]
        rows = [dict(zip(self._columns, (cell.strip() for cell in cells), strict=True)) for cells in lines]
        return {row["uuid"]: row for row in rows}

    def read(self) -> list[Reading]:
        rows, why = dict[str, dict[str, str]](), "hl-smi does not list it any more"
        if len(self._lost) < len(self.devices):
            try:
                rows = self._query()
            except HL_SMI_FAILURES as error:
                why = str(error)
        return [self._read(device, rows, why) for device in self.devices]

    def _read(self, device: SensorDevice, rows: dict[str, dict[str, str]], why: str) -> Reading:
        if device.index in self._lost:
            return Reading()
        if device.uuid not in rows:
            self._lost.add(device.index)
            self._miss(device.index, (ALL_SENSORS,), why)
            return Reading()
        row = rows[str(device.uuid)]
        values = {
            field: value * factor
            for column, (field, factor) in _HL_SMI_FIELDS.items()
            if (value := _parse_number(row[column])) is not None
        }
        return Reading(throttle=None, **values)

    def close(self) -> None:
        """Each query is a process of its own."""


def _parse_number(text: str) -> float | None:
    """A number, with its unit or without; None for N/A."""
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None
