"""Which sensors there are: the contract of their readers, the fields of a reading, and opening those of this machine.

A reader opens whatever it can, once, and names what it cannot: a missing sensor is never a zero.
"""

import importlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import psutil

from vernier.devices import kinds
from vernier.errors import RunFailed
from vernier.lab.records.telemetry import ALL_SENSORS, Reading
from vernier.records.environment import MissingSensor, SensorDevice
from vernier.references import use

from .cpu import CpuSensors
from .vendor import HL_SMI_FAILURES, HLML, NVML, TABLES, HlSmiSensors, Library, LibrarySensors

FIELDS = TABLES.fields
"""The fields of a `Reading`, explained; written to the header of telemetry.jsonl."""


class Sensors(Protocol):
    """The sensors of one kind of device. `missing` grows when one fails while it is read."""

    kind: str
    devices: tuple[SensorDevice, ...]
    missing: list[MissingSensor]

    def read(self) -> list[Reading]:
        """One reading per device, in the order of `devices`."""
        ...

    def close(self) -> None: ...


def open_sensors(
    device_kind: str,
    uuids: Sequence[str | None] = (),
    own_processes: Callable[[], list[psutil.Process]] | None = None,
    cores: Sequence[int] = (),
) -> tuple[list[Sensors], tuple[MissingSensor, ...]]:
    """The sensors of the accelerators in use, known by their UUIDs, and of the host; and all that are missing, and why.

    Accelerators of the host that are not in use are never read. `cores`: only these cores of the CPU are in use.
    """
    opened: list[Sensors] = [CpuSensors(Path(os.environ.get("VERNIER_SENSOR_ROOT", "/")), own_processes, cores)]
    problem: str | None = None
    uuids = tuple(dict.fromkeys(uuids))  # several processes may share a device
    kind = kinds().get(device_kind)
    if kind is not None and kind.available() and (own := kind().sensors(uuids)) is not None:
        opened.insert(0, own)
    elif device_kind in TABLES.libraries:
        try:
            opened.insert(0, _open_accelerators(TABLES.libraries[device_kind], uuids))
        except _NoSensors as error:
            problem = str(error)
    elif device_kind != "cpu":
        problem = f"no sensor library is known for {device_kind}"
    missing = [m for sensors in opened for m in sensors.missing]
    if problem is not None:
        # First, since people read why the accelerator has no sensors before what the CPU lacks.
        missing.insert(0, MissingSensor(kind=device_kind, device=None, sensor=ALL_SENSORS, why=problem))
    return opened, tuple(missing)


class _NoSensors(Exception):
    """A kind of device whose sensors cannot be read here at all, and why."""


def _open_accelerators(library: Library, uuids: Sequence[str | None]) -> Sensors:
    """By the vendor's library, or by hl-smi. Raises _NoSensors, or RunFailed for a library without our functions."""
    # PyTorch calls AMD's devices cuda, too: NVML of a mixed host would find others than those in use.
    if library is NVML and uuids and not any(uuid and uuid.startswith(("GPU-", "MIG-")) for uuid in uuids):
        raise _NoSensors("sensors are read from NVIDIA's GPUs only, and this is not one, or it has no UUID")
    try:
        module = importlib.import_module(library.module)
    except ImportError as error:
        return _by_hl_smi(library, uuids, f"{library.package}: {error}")
    try:
        return LibrarySensors(library, module, uuids)
    except library.error_of(module) as error:
        return _by_hl_smi(library, uuids, f"{library.package}: {error}")
    except AttributeError as error:  # an old version, or our mistake: neither is a sensor that a device does not have
        raise RunFailed(
            f"The sensors cannot be read: {error}. Update the library (pip install -U {library.package}; a "
            f"package called pynvml is an old one), or omit the sensors: {use('machine.telemetry_hz', 0)}."
        ) from error


def _by_hl_smi(library: Library, uuids: Sequence[str | None], why_no_library: str) -> Sensors:
    if library is not HLML or not shutil.which("hl-smi"):
        raise _NoSensors(why_no_library)
    try:
        return HlSmiSensors(uuids)
    except HL_SMI_FAILURES as error:
        raise _NoSensors(f"{why_no_library}; hl-smi: {error}") from None


def describe_unknown_devices(missing: Sequence[MissingSensor]) -> list[str]:
    """Sentences about the accelerators in use that have no sensors at all."""
    return [
        f"no sensors of {m.kind}{'' if m.device is None else f' device {m.device}'}: {m.why}"
        for m in missing
        if m.sensor == ALL_SENSORS
    ]
