"""Sensors of accelerators: the vendors' management libraries NVML and HLML, and Habana's command `hl-smi`.

A management library knows every device of the host, whichever this process may use. So devices are looked up by the
UUIDs of those in use, and a device that is not recognised has no sensors: never those of its neighbours. Which function
or column gives which sensor is in `sensors.toml`.
"""

import contextlib
import io
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from vernier.frozen import frozen
from vernier.lab.records.telemetry import ALL_SENSORS, Reading
from vernier.records.codec import decode
from vernier.records.environment import MissingSensor, SensorDevice


@frozen
class _Getter:
    """A function of a library that reads a sensor of a device, and what makes its result a field of a Reading."""

    function: str
    argument: int | str | None = None
    attribute: str | None = None
    divisor: int | None = None
    bits: tuple[str, ...] = ()
    """Reasons by bit, the lowest one first; without text: not a reason."""

    def __call__(self, module: ModuleType, handle: Any) -> Any:
        argument = getattr(module, self.argument) if isinstance(self.argument, str) else self.argument
        value = getattr(module, self.function)(handle, *(() if argument is None else (argument,)))
        if self.bits:
            # Several reasons can hold at once.
            return tuple(reason for bit, reason in enumerate(self.bits) if reason and value >> bit & 1)
        value = getattr(value, self.attribute) if self.attribute else value
        return value / self.divisor if self.divisor else value


@frozen
class Library:
    """A vendor's management library: NVML, and HLML which is modelled on it. See `sensors.toml`."""

    kind: str
    module: str
    prefix: str
    package: str
    getters: dict[str, _Getter]
    lost: tuple[str, ...]
    not_of_a_part: tuple[str, ...] = ()

    def error_of(self, module: ModuleType) -> type[Exception]:
        """The base of the library's own exceptions."""
        error: type[Exception] = getattr(module, f"{self.prefix.upper()}Error")
        return error


@frozen
class _Column:
    name: str
    factor: float = 1.0


@frozen
class _HlSmi:
    missing: tuple[str, ...]
    columns: dict[str, _Column]


@frozen
class _Tables:
    fields: dict[str, str]
    libraries: dict[str, Library]
    hl_smi: _HlSmi


TABLES = decode(_Tables, tomllib.loads(Path(__file__).with_name("sensors.toml").read_text("utf-8")))
NVML, HLML = TABLES.libraries.values()
HL_SMI_TIMEOUT_S = 10.0
HL_SMI_FAILURES = (OSError, subprocess.SubprocessError, ValueError)
"""It is not there, it fails or does not answer, or it answers with something else."""
_NO_UUID = "the device has no UUID by which to recognise its sensors"


class _Accelerators:
    """Devices of one kind that are in use. `missing` grows while they are read."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.missing: list[MissingSensor] = []
        self.devices: tuple[SensorDevice, ...] = ()

    def _miss(self, index: int, why: str, *sensors: str) -> None:
        """Note that these sensors, or all of a device, cannot be read."""
        names = sensors or (ALL_SENSORS,)
        self.missing += [MissingSensor(kind=self.kind, device=index, sensor=name, why=why) for name in names]

    def _add(self, index: int, name: str, uuid: str) -> None:
        self.devices += (SensorDevice(kind=self.kind, index=index, name=name, uuid=uuid),)


class LibrarySensors(_Accelerators):
    """The devices of a management library that are in use, in the order of their UUIDs.

    What the library refuses to read is missing from then on: at first, or when a device vanishes. Only the library's
    own exceptions mean a missing sensor: a function that does not exist is an AttributeError.
    """

    def __init__(self, library: Library, module: ModuleType, uuids: Sequence[str | None]) -> None:
        super().__init__(library.kind)
        self._library, self._module = library, module
        self._error = library.error_of(module)
        with contextlib.redirect_stdout(io.StringIO()):  # pyhlml prints that it found no library, besides raising
            self._call("Init")
        self._getters: dict[int, dict[str, _Getter]] = {}
        self._handles: dict[int, Any] = {}
        for index, uuid in enumerate(uuids):
            if uuid is None:
                self._miss(index, _NO_UUID)
            else:
                self._open(index, uuid)

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._module, f"{self._library.prefix}{name}")(*arguments)

    def _explain(self, error: Exception) -> str:
        name = type(error).__name__.partition("_")[2]
        return f"{self._library.package}: {error}" + (f" ({name})" if name and self._library is HLML else "")

    def _open(self, index: int, uuid: str) -> None:
        """Look the device up, and try each of its sensors once."""
        is_part = uuid.startswith("MIG-")
        try:
            handle = self._call("DeviceGetHandleByUUID", uuid)
            # pyhlml gives the same handle object for every device, and changes its content
            handle = type(handle).from_buffer_copy(handle)
            name = self._call("DeviceGetName", handle)
            split = self._library is NVML and not is_part and self._is_split(handle)
        except self._error as error:
            self._miss(index, f"{uuid} is not recognised: {self._explain(error)}")
            return
        # Processes compute on instances of such a GPU only, each with a UUID of its own.
        if split:
            self._miss(index, f"{uuid} is split into MIG instances, whose sensors are not its own")
            return
        self._add(index, name.decode() if isinstance(name, bytes) else str(name), uuid)
        self._handles[index], self._getters[index] = handle, dict(self._library.getters)
        for sensor in self._library.not_of_a_part if is_part else ():
            del self._getters[index][sensor]
            self._miss(index, "a MIG instance has none of its own: its GPU's is that of all instances", sensor)
        # The first reading tells which sensors work: what a card lacks is then missing from the header on.
        self._read(index, handle)

    def _is_split(self, handle: Any) -> bool:
        """Whether a GPU is in MIG mode."""
        try:
            current, _ = self._module.nvmlDeviceGetMigMode(handle)
        except self._error:  # a GPU that has no such mode
            return False
        return bool(current == self._module.NVML_DEVICE_MIG_ENABLE)

    def read(self) -> list[Reading]:
        return [self._read(index, handle) for index, handle in self._handles.items()]

    def _read(self, index: int, handle: Any) -> Reading:
        values: dict[str, Any] = {}
        for name, getter in list(self._getters[index].items()):
            try:
                values[name] = getter(self._module, handle)
            except self._error as error:
                # By name: pyhlml makes its exception classes at run time, so there is nothing to import.
                if type(error).__name__ in self._library.lost:
                    self._getters[index] = {}
                    self._miss(index, self._explain(error))
                    return Reading()
                del self._getters[index][name]
                self._miss(index, self._explain(error), name)
        return Reading(**values)

    def close(self) -> None:
        with contextlib.suppress(self._error):  # the driver may be gone
            self._call("Shutdown")


class HlSmiSensors(_Accelerators):
    """Gaudi devices through the command `hl-smi`, where pyhlml is not installed. It reports no clock and no energy.

    Raises one of HL_SMI_FAILURES when the command does not work at first; later the devices are missing.
    """

    def __init__(self, uuids: Sequence[str | None], command: str = "hl-smi") -> None:
        super().__init__("hpu")
        self._command = command
        rows = self._query()
        listed = ", ".join(rows) or "none"
        for index, uuid in enumerate(uuids):
            if uuid is None or uuid not in rows:
                self._miss(index, _NO_UUID if uuid is None else f"{uuid} is not recognised: hl-smi lists {listed}")
                continue
            self._add(index, rows[uuid]["name"], uuid)
            self._miss(index, "not reported by hl-smi; pip install pyhlml", *TABLES.hl_smi.missing)
            for field, column in TABLES.hl_smi.columns.items():
                if _parse_number(cell := rows[uuid][column.name]) is None:
                    self._miss(index, f"hl-smi reports {cell!r}", field)
        self._lost: set[int] = set()

    def _query(self) -> dict[str, dict[str, str]]:
        """The cells of each device, by its UUID."""
        columns = ["uuid", "name", *(column.name for column in TABLES.hl_smi.columns.values())]
        command = [self._command, "-Q", ",".join(columns), "-f", "csv,noheader,nounits"]
        # A hung driver hangs hl-smi as well, hence the time limit.
        done = subprocess.run(command, capture_output=True, text=True, timeout=HL_SMI_TIMEOUT_S, check=True)
        lines = [line.split(",") for line in done.stdout.splitlines() if line.strip()]
        rows = [dict(zip(columns, map(str.strip, cells), strict=True)) for cells in lines]
        return {row["uuid"]: row for row in rows}

    def read(self) -> list[Reading]:
        rows, why = dict[str, dict[str, str]](), "hl-smi does not list it any more"
        # A command that hangs costs its whole time limit, so it is not asked again once every device is lost.
        if len(self._lost) < len(self.devices):
            try:
                rows = self._query()
            except HL_SMI_FAILURES as error:
                why = str(error)
        return [self._read(device, rows, why) for device in self.devices]

    def _read(self, device: SensorDevice, rows: dict[str, dict[str, str]], why: str) -> Reading:
        if device.index in self._lost:
            return Reading()
        row = rows.get(str(device.uuid))
        if row is None:
            self._lost.add(device.index)
            self._miss(device.index, why)
            return Reading()
        numbers = {field: (_parse_number(row[c.name]), c.factor) for field, c in TABLES.hl_smi.columns.items()}
        values = {field: value * factor for field, (value, factor) in numbers.items() if value is not None}
        return Reading(throttle=None, **values)

    def close(self) -> None:
        """Each query is a process of its own."""


def _parse_number(text: str) -> float | None:
    """A number, with its unit or without; None for N/A."""
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None
