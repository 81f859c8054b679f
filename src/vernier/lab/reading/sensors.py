"""Joins samples of nvidia-smi or hl-smi with the step times of the same devices, which are in other files.

A device is recognised by its UUID, or by host and number where the name of the file has the host.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vernier.frozen import frozen
from vernier.lab.logs.smi import SmiDevice, host_of
from vernier.lab.study.analysis import Measurement
from vernier.wording import plural


@frozen
class SensorFile:
    """The devices of one file of samples."""

    path: Path
    devices: list[SmiDevice]


def describe_sensors(files: Sequence[SensorFile]) -> str:
    """What files of samples have, in a sentence."""
    devices = sum(len(f.devices) for f in files)
    names = sorted({name for f in files for d in f.devices for name in d.sensors})
    paths = ", ".join(str(f.path) for f in files)
    return f"{paths}: sensors ({', '.join(names)}) of {plural(devices, 'device')}, but no step times."


def join_sensors(rows: Sequence[Measurement], files: Sequence[SensorFile], notes: list[str]) -> list[Measurement]:
    """The rows with the sensors of their devices; what a row has already is not replaced."""
    hosts = {match[1] for r in rows if (match := re.fullmatch(r"(.+)-\d+", r.device))}
    by_device: dict[str, dict[str, float]] = {}
    for file in files:
        host = host_of(file.path) or (next(iter(hosts)) if len(hosts) == 1 else None)
        for device in file.devices:
            names = [device.uuid, f"{host}-{device.index}" if host and device.index is not None else None]
            by_device |= {name: device.sensors for name in names if name}
    matched = {r.device for r in rows} & set(by_device)
    if files:
        left = len({r.device for r in rows}) - len(matched)
        more = f"; {plural(left, 'device')} without" if left else ""
        paths = ", ".join(f.path.name for f in files)
        notes.append(f"sensors of {plural(len(matched), 'device')} from {paths}, medians while busy{more}")
    return [replace(r, sensors={**by_device.get(r.device, {}), **_known(r)}) if files else r for r in rows]


def _known(row: Measurement) -> dict[str, float | None]:
    return {name: value for name, value in row.sensors.items() if value is not None}
