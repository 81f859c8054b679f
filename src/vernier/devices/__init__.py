"""Devices: one small file per kind, and one contract (`base`). Only devices call torch.cuda and the like.

A kind of device is found through the entry-point group `vernier.devices`: the CPU and CUDA here, those of other vendors
in `vernier.compat`, and those of any other installed package (docs/add-a-device.md). May import `errors` and `records`.
Sensors (power, clocks, temperature) are in `lab.telemetry`, processes and their devices in `engine.processes`,
execution modes in `engine.execution`.
"""

import functools
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from vernier.errors import ConfigError, did_you_mean
from vernier.references import given

from .base import MODES, PRECISIONS, Ability, Device
from .cpu import Cpu

__all__ = [
    "Device",
    "describe_lost_device",
    "kinds",
    "likely_kind",
    "matrix",
    "refuse_early",
    "resolve",
    "unusable_plugins",
    "usable",
]

GROUP = "vernier.devices"
BUILT_IN = ("cuda", "hpu", "xpu", "mps", "cpu")
"""In the order in which `auto` tries them; devices of other packages come before the CPU."""


def kinds() -> dict[str, type[Device]]:
    """Every kind of device by name, in the order in which `auto` tries them."""
    return _discover()[0]


def unusable_plugins() -> dict[str, str]:
    """Why a kind of device is left out whose code failed, by its name; one that is merely not here has no reason."""
    failed = {name: why for name, kind in kinds().items() if (why := _probe(kind)[1])}
    return {**failed, **_unloadable_plugins()}


def _unloadable_plugins() -> dict[str, str]:
    """Why a kind of device could not even be loaded, by its name; no driver is touched."""
    return _discover()[1]


def _probe(kind: type[Device]) -> tuple[bool, str]:
    """Whether this kind of device is here, and what went wrong if that cannot be said: others stay usable."""
    try:
        return kind.available(), ""
    except Exception as error:  # a vendor's package may raise anything, such as for another release of PyTorch
        return False, f"{kind.__module__} failed: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


@functools.cache
def _discover() -> tuple[dict[str, type[Device]], dict[str, str]]:
    """The kinds of device, and why others could not be loaded; a plug-in cannot take a built-in one's name."""
    classes, failed = dict[str, type[Device]](), dict[str, str]()
    for entry in sorted(entry_points(group=GROUP), key=_rank):
        if entry.name in classes:
            failed[entry.name] = f"the name {entry.name} is taken; {_origin(entry)} is left out"
            continue
        try:
            classes[entry.name] = _load(entry)
        except Exception as error:  # whatever a foreign package raises, other devices stay usable
            failed[entry.name] = f"{_origin(entry)} cannot be used: {_first_line(error)}"
    if "cpu" not in classes:
        raise ConfigError("Vernier is not installed properly: it cannot find its own devices. Install it again.")
    # Last: `auto` takes the first kind that is usable, and the CPU always is.
    cpu = classes.pop("cpu")
    return {**classes, "cpu": cpu}, failed


def _rank(entry: EntryPoint) -> tuple[int, bool, str]:
    own = entry.value.startswith("vernier.")
    return BUILT_IN.index(entry.name) if entry.name in BUILT_IN else len(BUILT_IN), not own, entry.name


def _load(entry: EntryPoint) -> type[Device]:
    kind = entry.load()
    if not (isinstance(kind, type) and issubclass(kind, Device)):
        raise TypeError("it is not a class derived from vernier.devices.base.Device")
    if getattr(kind, "name", None) != entry.name:
        raise TypeError(f"its `name` is {getattr(kind, 'name', None)!r}, not {entry.name!r}")
    return kind


def _origin(entry: EntryPoint) -> str:
    package = f" of {entry.dist.name}" if entry.dist is not None else ""
    return f"{entry.value}{package}"


def resolve(name: str) -> Device:
    """Give the device of that name; `auto` takes the best one of this machine. Raises ConfigError."""
    if name == "auto":
        return usable()[0]
    if name in kinds() and _probe(kinds()[name])[0]:
        return kinds()[name]()
    here = ", ".join(device.name for device in usable())
    if why := unusable_plugins().get(name):
        raise ConfigError(f"{given('machine.device', name)}: {why.rstrip('.')}. Usable: {here}.")
    if name in kinds():
        raise ConfigError(f"{given('machine.device', name)} cannot be used on this machine. Usable: {here}.")
    near = did_you_mean(name, ("auto", *kinds()))
    raise ConfigError(f"{given('machine.device', name)} is not known. {near} Usable: {here}.")


def refuse_unknown(name: str) -> None:
    """Refuse the name of no kind of device, whether this machine has one or not. Raises ConfigError."""
    names = ("auto", *BUILT_IN, *_plugin_names())
    if name not in names:
        raise ConfigError(f"{given('machine.device', name)} is not known. {did_you_mean(name, names)}")


def refuse_early(name: str, precision: str, mode: str, *, allow_slow: bool) -> None:
    """Refuse what this machine surely cannot do, without loading PyTorch: that takes seconds. Raises ConfigError."""
    plugins = _plugin_names()
    refuse_unknown(name)
    if _has_device_node():
        return
    if name not in ("auto", "cpu", *plugins) and not plugins:  # which plug-ins work is known once they are loaded
        raise ConfigError(f"{given('machine.device', name)} cannot be used on this machine. Usable: cpu.")
    if likely_kind(name) == "cpu" and (why_not := Cpu().refuse(precision, mode, allow_slow=allow_slow)):
        raise ConfigError(why_not)


def likely_kind(name: str) -> str:
    """The kind of device that is most likely meant, without loading PyTorch; `auto` where it may be an accelerator."""
    return "cpu" if name == "auto" and not _has_device_node() and not _plugin_names() else name


def describe_lost_device(error: BaseException) -> str:
    """Which device does not answer, and its own words; empty for any other error."""
    name = next((name for name, kind in kinds().items() if kind.is_lost(error)), "")
    return f"The device {name} does not answer: {_first_line(error)}" if name else ""


def _plugin_names() -> list[str]:
    return sorted({entry.name for entry in entry_points(group=GROUP)} - set(BUILT_IN))


def _has_device_node() -> bool:
    """Whether there may be an accelerator."""
    # Other systems have no such files, so that PyTorch has to be asked.
    return sys.platform != "linux" or any(node for pattern in _DEVICE_NODES for node in Path("/dev").glob(pattern))


_DEVICE_NODES = ("nvidia*", "dxg", "kfd", "accel*", "hl*", "dri/renderD*")
"""What Linux has in /dev where there may be an accelerator."""


def usable() -> list[Device]:
    """List the devices of this machine, the CPU last."""
    return [kind() for kind in kinds().values() if _probe(kind)[0]]


def matrix(names: tuple[str, ...] = ()) -> list[Ability]:
    """List what each device answers for every precision and mode; a device that is not here answers in general."""
    return [
        Ability(device=name, precision=precision, mode=mode, **vars(kinds()[name]().answer(precision, mode)))
        for name in names or kinds()
        for precision in PRECISIONS
        for mode in MODES
    ]
