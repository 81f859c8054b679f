"""One small file a device, one contract. The only package that says torch.cuda and the like."""

from vernier.devices.base import MODES, PRECISIONS, Answer, Device, Memory
from vernier.devices.cpu import Cpu
from vernier.devices.cuda import Cuda
from vernier.devices.hpu import Hpu
from vernier.devices.mps import Mps
from vernier.devices.xpu import Xpu
from vernier.errors import ConfigError

__all__ = ["KINDS", "Answer", "Device", "Memory", "matrix", "resolve", "usable"]

KINDS: dict[str, type[Device]] = {"cuda": Cuda, "hpu": Hpu, "xpu": Xpu, "mps": Mps, "cpu": Cpu}
"""By name, in the order in which `auto` looks for them."""


def resolve(name: str) -> Device:
    """The device to run on; `auto` takes the best one that is there."""
    if name == "auto":
        return next(kind() for kind in KINDS.values() if kind.available())
    if name not in KINDS or not KINDS[name].available():
        here = ", ".join(k for k, v in KINDS.items() if v.available())
        raise ConfigError(f"--device {name} is not usable here. Usable: {here}.")
    return KINDS[name]()


def usable() -> list[Device]:
    """Every device that is here, the CPU last."""
    return [kind() for kind in KINDS.values() if kind.available()]


def matrix(names: tuple[str, ...] = tuple(KINDS)) -> list[dict[str, str]]:
    """Device x precision x mode with the device's answer: as this machine answers where the device is here, else in general."""
    return [
        {"device": name, "precision": precision, "mode": mode, "verdict": found.verdict, "why": found.why, "instead": found.instead}
        for name in names
        for precision in PRECISIONS
        for mode in MODES
        for found in (KINDS[name]().answer(precision, mode),)
    ]  # fmt: skip
