"""Devices: one small file per kind, and one contract (`base`). The only package that calls torch.cuda and the like.

May import `errors` and `records`. Sensors (power, clocks, temperature) are in `measure.telemetry`, processes and their
devices in `engine.processes`, execution modes in `engine.execution`.
"""

import sys
from pathlib import Path

from vernier.errors import ConfigError

from .base import MODES, PRECISIONS, Ability, Device
from .cpu import Cpu
from .cuda import Cuda
from .hpu import Hpu
from .mps import Mps
from .xpu import Xpu

__all__ = ["KINDS", "Device", "likely_kind", "matrix", "refuse_early", "resolve", "usable"]

KINDS: dict[str, type[Device]] = {"cuda": Cuda, "hpu": Hpu, "xpu": Xpu, "mps": Mps, "cpu": Cpu}
"""By name, in the order in which `auto` tries them."""


def resolve(name: str) -> Device:
    """Give the device of that name; `auto` takes the best one of this machine. Raises ConfigError."""
    if name == "auto":
        return usable()[0]
    if name not in KINDS or not KINDS[name].available():
        here = ", ".join(device.name for device in usable())
        raise ConfigError(f"--device {name} cannot be used on this machine. Usable: {here}.")
    return KINDS[name]()


def refuse_early(name: str, precision: str, mode: str, *, allow_slow: bool) -> None:
    """Refuse what this machine surely cannot do, without loading PyTorch: that takes seconds. Raises ConfigError."""
    if _may_have_accelerator():
        return
    if name not in ("auto", "cpu"):
        raise ConfigError(f"--device {name} cannot be used on this machine. Usable: cpu.")
    if why_not := Cpu().refuse(precision, mode, allow_slow=allow_slow):
        raise ConfigError(why_not)


def likely_kind(name: str) -> str:
    """The kind of device that is most likely meant, without loading PyTorch; `auto` where it may be an accelerator."""
    return "cpu" if name == "auto" and not _may_have_accelerator() else name


def _may_have_accelerator() -> bool:
    return sys.platform != "linux" or any(node for pattern in _DEVICE_NODES for node in Path("/dev").glob(pattern))


_DEVICE_NODES = ("nvidia*", "dxg", "kfd", "accel*", "hl*", "dri/renderD*")
"""What Linux has in /dev where there may be an accelerator."""


def usable() -> list[Device]:
    """List the devices of this machine, the CPU last."""
    return [kind() for kind in KINDS.values() if kind.available()]


def matrix(names: tuple[str, ...] = tuple(KINDS)) -> list[Ability]:
    """List what each device answers for every precision and mode; a device that is not here answers in general."""
    return [
        Ability(device=name, precision=precision, mode=mode, **vars(KINDS[name]().answer(precision, mode)))
        for name in names
        for precision in PRECISIONS
        for mode in MODES
    ]
