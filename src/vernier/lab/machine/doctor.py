"""What `vernier doctor` shows: versions, devices and what they support, threads, missing packages and advice."""

import os
import platform
import re
import shutil
import tomllib
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from vernier.cores import allowed_cores
from vernier.folders import cache_home, data_home
from vernier.frozen import frozen
from vernier.measure.environment import THREAD_VARIABLES, installed_version, read_versions
from vernier.records.codec import named
from vernier.records.environment import DeviceInfo
from vernier.references import command

if TYPE_CHECKING:
    from vernier.devices.base import Ability

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@frozen
class _OptionalPart:
    """An optional part of Vernier: its purpose, its missing packages, and the command that installs them."""

    extra: str
    purpose: str = named("for")
    missing: tuple[str, ...]
    install: str


@frozen
class Machine:
    """The host as this process sees it: cores it may use, load, memory, and free space in the current folder.

    `nvidia_driver`: version of the NVIDIA driver; None where there is none. `cache` and `data`: folders of what can be
    fetched again, and of data sets that were fetched or rendered.
    """

    host: str
    system: str
    architecture: str = ""
    """The processor's architecture, as `uname -m` says it."""
    cores: int
    load: float
    memory_bytes: int
    memory_available_bytes: int
    disk_free_bytes: int
    instructions: tuple[str, ...] = ()
    """Instruction sets of the processor that matter for speed."""
    nvidia_driver: str | None = None
    cache: str = ""
    data: str = ""


@frozen
class _ListedDevice(DeviceInfo):
    """A device with its kind: cpu, cuda, ..."""

    device: str


@frozen
class Examination:
    """Everything `vernier doctor` shows."""

    machine: Machine
    threads: dict[str, str | int | None]
    versions: dict[str, str | None]
    devices: tuple[_ListedDevice, ...]
    abilities: "tuple[Ability, ...]"
    extras: tuple[_OptionalPart, ...]
    advice: tuple[str, ...]
    unusable: dict[str, str] = field(default_factory=dict)
    """Why a device of another package cannot be used, by its name."""


def list_extras() -> tuple[_OptionalPart, ...]:
    """Every optional part, installed or not."""
    return tuple(
        _OptionalPart(
            extra=extra,
            purpose=purpose,
            # `a|b`: one of several packages is enough.
            missing=tuple(p for p in packages if not any(installed_version(name) for name in p.split("|"))),
            install=f"pip install 'vernier[{extra}]'",
        )
        for extra, (purpose, *packages) in _TABLES["optional"].items()
    )


def _describe_machine() -> Machine:
    """The host; no device is touched."""
    from vernier.devices.cpu import instruction_sets

    memory = psutil.virtual_memory()
    return Machine(
        host=platform.node(),
        system=platform.platform(),
        architecture=platform.machine(),
        # Not os.cpu_count: containers and Slurm give a process fewer cores than the machine has.
        cores=len(allowed_cores()),
        # Over one minute: it should show what runs now, before a measurement.
        load=os.getloadavg()[0],
        memory_bytes=memory.total,
        memory_available_bytes=memory.available,
        disk_free_bytes=shutil.disk_usage(Path.cwd()).free,
        instructions=tuple(name for flag, name in _TABLES["instructions"].items() if flag in instruction_sets()),
        nvidia_driver=_nvidia_driver(),
        cache=str(cache_home()),
        data=str(data_home()),
    )


def examine() -> Examination:
    """Examine this machine."""
    from vernier.devices import matrix, unusable_plugins, usable

    machine, kinds, extras = _describe_machine(), usable(), list_extras()
    devices = tuple(_ListedDevice(device=kind.name, **vars(info)) for kind in kinds for info in kind.identity())
    return Examination(
        machine=machine,
        threads={"compute": machine.cores, **{name: os.environ.get(name) for name in THREAD_VARIABLES}},
        versions=read_versions(),
        devices=devices,
        abilities=tuple(matrix(tuple(kind.name for kind in kinds))),
        extras=extras,
        advice=tuple(_advice(machine, devices, extras)),
        unusable=unusable_plugins(),
    )


def _nvidia_driver() -> str | None:
    """The version of the NVIDIA driver, as Linux shows it."""
    # Not nvidia-smi: it is missing in many containers, and hangs with a broken driver.
    path = Path("/proc/driver/nvidia/version")
    match = re.search(r"Module(?: for \S+)?\s+(\d[\d.]+)", path.read_text()) if path.is_file() else None
    return match[1] if match else None


def _advice(machine: Machine, devices: Iterable[_ListedDevice], extras: Iterable[_OptionalPart]) -> Iterable[str]:
    kinds = {d.device for d in devices}
    for part in extras:
        # DALI is advised on machines with a GPU only: elsewhere it cannot be used.
        if part.missing and part.extra not in _TABLES["by_choice"] and (part.extra != "dali" or "cuda" in kinds):
            yield f"{part.extra} ({part.purpose}): {part.install}"
    if machine.nvidia_driver and "cuda" not in kinds:
        yield (
            f"NVIDIA driver {machine.nvidia_driver} is installed, but PyTorch sees no GPU: check CUDA_VISIBLE_DEVICES, "
            "or install a CUDA build of PyTorch (pytorch.org)"
        )
    elif kinds == {"cpu"}:
        yield "no accelerator is visible to PyTorch: training runs on the CPU"
    if machine.load > machine.cores / 2:
        yield (
            f"other programs are busy (load {machine.load:.1f} on {machine.cores} cores): "
            "speeds measured now will be too low"
        )
    if machine.disk_free_bytes < 5e9:
        yield (
            f"only {machine.disk_free_bytes / 1e9:.1f} GB are free in this folder: write runs to another disk "
            f"({command('train', out='DIR')}), or keep fewer checkpoints"
        )
