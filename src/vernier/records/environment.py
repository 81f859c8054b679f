"""What a run happened on: environment.json."""

from dataclasses import field
from typing import Any

from vernier.frozen import frozen

from .codec import DamagedRecord, decode, omitted
from .events import ProcessInfo


@frozen
class DeviceInfo:
    """One device as PyTorch or the operating system describes it. `uuid` identifies it for good; None: it has none."""

    index: int
    name: str
    uuid: str | None = None
    memory_bytes: int | None = omitted()
    capability: str | None = omitted()


@frozen
class CpuInfo:
    """The host's processor and memory, and the load average over 1, 5 and 15 minutes."""

    cores_logical: int | None = None
    cores_physical: int | None = None
    memory_bytes: int = 0
    load_average: tuple[float, ...] = ()


@frozen
class SensorDevice:
    """A device whose sensors are read. `kind` is cpu, cuda or hpu; `index` counts the devices in use on this host."""

    kind: str
    index: int
    name: str
    uuid: str | None = None


@frozen
class MissingSensor:
    """A sensor that cannot be read, and why. `device` is None where a kind of device has no sensors at all."""

    kind: str
    device: int | None
    sensor: str
    why: str


@frozen
class SensorSetup:
    """Which sensors a run reads and how often, and which are missing. Only devices that it computes on are listed.

    `device_kind` is the kind that computes; None in files of earlier versions, which list all devices of the host.
    """

    hz: float = 0.0
    device_kind: str | None = omitted()
    devices: tuple[SensorDevice, ...] = ()
    missing: tuple[MissingSensor, ...] = ()


@frozen
class Environment:
    """Everything another person needs to judge or repeat a measurement.

    A package that is not installed has the version None. `variables` are those that change speed or results.
    """

    host: str = ""
    system: str = ""
    cpu: CpuInfo = field(default_factory=CpuInfo)
    device_kind: str = ""
    devices: tuple[DeviceInfo, ...] = ()
    compute_threads: int = 1
    sensors: SensorSetup | None = None
    versions: dict[str, str | None] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    git_commit: str | None = None
    processes: tuple[ProcessInfo, ...] | None = omitted()


def decode_environment(tree: Any) -> Environment | None:
    """From environment.json; None where that was lost or damaged."""
    try:
        return decode(Environment, tree) if tree else None
    except DamagedRecord:
        return None
