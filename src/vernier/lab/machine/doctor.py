"""What `vernier doctor` shows: versions, devices and what they support, threads, missing packages and advice."""

import os
import platform
import re
import shutil
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

from .trials import TriedDevice

if TYPE_CHECKING:
    from vernier.devices.base import Ability

EXTRAS = {
    "onnx": (("onnx", "onnxscript", "onnxruntime"), "export to ONNX"),
    "tensorboard": (("tensorboard",), "TensorBoard's event files of every run"),
    "dali": (("nvidia-dali-cuda120",), "NVIDIA's loader"),
    "remote": (("fsspec", "aiohttp"), "data from object storage"),
    "tfrecord": (("google-crc32c",), "checksums of TFRecords"),
    "wandb": (("wandb",), "tracking with Weights & Biases"),
    "mlflow": (("mlflow-skinny|mlflow",), "tracking with MLflow"),
}
"""Optional parts by extra: their packages (a|b: either one is enough), and what they are for."""

BY_CHOICE = ("wandb", "mlflow")
"""Extras that nobody needs who did not choose them: listed as not installed, never advised."""

INSTRUCTIONS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "avx512_fp16": "AVX-512 FP16",
    "amx_tile": "AMX",
    "amx_bf16": "AMX BF16",
    "asimd": "NEON",
    "sve": "SVE",
    "bf16": "BF16",
}
"""Instruction sets that matter for speed, as /proc/cpuinfo calls them and as people do."""


@frozen
class OptionalPart:
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
class ListedDevice(DeviceInfo):
    """A device with its kind: cpu, cuda, ..."""

    device: str


@frozen
class TrainingProbe:
    """Training images per second of one device; slowest and fastest step of how many."""

    model: str
    px: int
    batch: int
    device: str
    precision: str
    mode: str = "eager"
    threads: int
    images_per_s: float
    slowest: float
    fastest: float
    steps: int


@frozen
class DecodingProbe:
    """JPEGs per second that one core makes into training images; slowest and fastest round of how many."""

    images: str
    images_per_s_per_core: float
    slowest: float
    fastest: float
    rounds: int


@frozen
class Probe:
    """Measured speeds: training in each precision, and decoding."""

    training: tuple[TrainingProbe, ...]
    decoding: DecodingProbe


@frozen
class Examination:
    """Everything `vernier doctor` shows. `probe` is None where nothing was measured."""

    machine: Machine
    threads: dict[str, str | int | None]
    versions: dict[str, str | None]
    devices: tuple[ListedDevice, ...]
    abilities: "tuple[Ability, ...]"
    extras: tuple[OptionalPart, ...]
    advice: tuple[str, ...]
    probe: Probe | None = None
    unusable: dict[str, str] = field(default_factory=dict)
    """Why a device of another package cannot be used, by its name."""


@frozen
class DevicesPage:
    """Everything `vernier doctor --devices` shows, for a person who sends it back to us."""

    date: str
    machine: Machine
    versions: dict[str, str | None]
    variables: dict[str, str]
    """Environment variables that change what devices do."""
    unusable: dict[str, str]
    """Why a device of another package cannot be used, by its name."""
    tried: tuple[TriedDevice, ...]
    absent: tuple[str, ...]
    """Kinds of device that are not here."""


def list_extras() -> tuple[OptionalPart, ...]:
    """Every optional part, installed or not."""
    return tuple(
        OptionalPart(
            extra=extra,
            purpose=purpose,
            missing=tuple(p for p in packages if not any(installed_version(name) for name in p.split("|"))),
            install=f"pip install 'vernier[{extra}]'",
        )
        for extra, (packages, purpose) in EXTRAS.items()
    )


def describe_machine() -> Machine:
    """The host; no device is touched."""
    from vernier.devices.cpu import instruction_sets

    memory = psutil.virtual_memory()
    return Machine(
        host=platform.node(),
        system=platform.platform(),
        architecture=platform.machine(),
        cores=len(allowed_cores()),
        load=os.getloadavg()[0],
        memory_bytes=memory.total,
        memory_available_bytes=memory.available,
        disk_free_bytes=shutil.disk_usage(Path.cwd()).free,
        instructions=tuple(name for flag, name in INSTRUCTIONS.items() if flag in instruction_sets()),
        nvidia_driver=_nvidia_driver(),
        cache=str(cache_home()),
        data=str(data_home()),
    )


def examine() -> Examination:
    """Examine this machine without measuring."""
    from vernier.devices import matrix, unusable_plugins, usable

    machine, kinds, extras = describe_machine(), usable(), list_extras()
    devices = tuple(ListedDevice(device=kind.name, **vars(info)) for kind in kinds for info in kind.identity())
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
    path = Path("/proc/driver/nvidia/version")
    match = re.search(r"Module(?: for \S+)?\s+(\d[\d.]+)", path.read_text()) if path.is_file() else None
    return match[1] if match else None


def _advice(machine: Machine, devices: Iterable[ListedDevice], extras: Iterable[OptionalPart]) -> Iterable[str]:
    kinds = {d.device for d in devices}
    for part in extras:
        if part.missing and part.extra not in BY_CHOICE and (part.extra != "dali" or "cuda" in kinds):
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
