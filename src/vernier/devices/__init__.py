"""One small file a device, one contract. The only package that says torch.cuda and the like."""

from vernier.devices.base import Device
from vernier.devices.cpu import Cpu
from vernier.errors import ConfigError

__all__ = ["Device", "resolve", "usable"]

_BY_NAME: dict[str, type[Device]] = {"cpu": Cpu}


def resolve(name: str) -> Device:
    """The device to run on; `auto` takes the best one that is there."""
    if name == "auto":
        return next(kind() for kind in _BY_NAME.values() if kind.available())
    if name not in _BY_NAME or not _BY_NAME[name].available():
        usable = ", ".join(k for k, v in _BY_NAME.items() if v.available())
        raise ConfigError(f"--device {name} is not usable here. Usable: {usable}.")
    return _BY_NAME[name]()


def usable() -> list[Device]:
    """Every device that is here."""
    return [kind() for kind in _BY_NAME.values() if kind.available()]
