"""Which sensors there are: the contract of their readers, the fields of a reading, and opening those of this machine.

A reader opens whatever it can, once, and names what it cannot: a missing sensor is never a zero.
"""

import importlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import psutil

from vernier.records.telemetry import MissingSensor, Reading, SensorDevice

from .cpu import CpuSensors
from .vendor import HLML, NVML, HlSmiSensors, LibrarySensors

FIELDS = {
    "util_pct": "busy share of the device",
    "own_pct": "busy share of the CPU that is this process's (and its children's)",
    "others_pct": "busy share of the CPU that is other programs'",
    "steal_pct": "share of the CPU that the hypervisor gave to other guests",
    "mem_used_bytes": "memory in use on the device",
    "rss_bytes": "memory of this process",
    "clock_mhz": "core clock; CPU: mean over cores",
    "memory_clock_mhz": "memory clock",
    "temperature_c": "temperature; CPU: the hottest of its sensors",
    "power_w": "power draw; CPU: from the energy counter since the sample before",
    "power_limit_w": "power limit in force",
    "energy_j": "energy counter, joules since some moment before the run",
    "throttle": "why the clock is held down, empty when it is not",
}
"""The fields of a `Reading`, explained; written to the header of telemetry.jsonl."""


class Sensors(Protocol):
    """All sensors of one kind of device."""

    kind: str
    devices: tuple[SensorDevice, ...]
    missing: list[MissingSensor]

    def read(self) -> list[Reading]:
        """One reading per device, in the order of `devices`."""
        ...

    def close(self) -> None: ...


def open_sensors(
    device_kind: str, own_processes: Callable[[], list[psutil.Process]] | None = None
) -> tuple[list[Sensors], tuple[MissingSensor, ...]]:
    """The sensors of the accelerator in use and of the host, and all that are missing, with the reason."""
    opened: list[Sensors] = [CpuSensors(Path(os.environ.get("VERNIER_SENSOR_ROOT", "/")), own_processes)]
    problem: str | None = None
    if device_kind in ("cuda", "hpu"):
        library = NVML if device_kind == "cuda" else HLML
        try:
            opened.insert(0, LibrarySensors(library, importlib.import_module(library.module)))
        except Exception as error:  # not installed, no driver, or the library's own exception
            if device_kind == "hpu" and shutil.which("hl-smi"):
                opened.insert(0, HlSmiSensors())
            else:
                problem = f"{library.package}: {error or type(error).__name__}"
    elif device_kind != "cpu":
        problem = "no sensor library is known"
    missing = [m for sensors in opened for m in sensors.missing]
    if problem is not None:
        missing.insert(0, MissingSensor(kind=device_kind, device=None, sensor="all", why=problem))
    return opened, tuple(missing)
