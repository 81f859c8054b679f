"""Engines that run a trained model in place of PyTorch (`machine.engine`): their contract, and which are here.

They plug in through the entry points `vernier.engines`; `vernier.compat` has onnxruntime, OpenVINO, and `auto`, which
measures them. Loads neither PyTorch nor an engine, so that commands refuse at once.
"""

from typing import TYPE_CHECKING, Protocol

from vernier.config import Machine
from vernier.config.settings import ENGINES
from vernier.errors import ConfigError
from vernier.plugins import load_group, load_plugin
from vernier.references import given, use

if TYPE_CHECKING:
    from vernier.data.sources import Source

    from .trained import Trained


class _Engine(Protocol):
    """Runs a trained model in place of PyTorch. The entry point names a class without arguments."""

    def why_not(self) -> str:
        """What is missing to use it here, and how to install it; empty if nothing is."""

    def check(self, machine: Machine) -> None:
        """Raises ConfigError, before anything is loaded, for settings that it cannot do."""

    def use(self, trained: "Trained", source: "Source", *, batch: int, labelled: bool = True) -> "Trained":
        """The model, run by the engine, with a report of how it was checked on images of `source`.

        It will be given `batch` images at a time, `labelled` or not. Raises ConfigError and RunFailed.
        """


def find_engine(machine: Machine) -> _Engine | None:
    """The engine of these settings; None for PyTorch itself. Raises ConfigError if it cannot do what they say."""
    if machine.engine == "torch":
        if machine.allow_lower_precision:
            raise ConfigError(
                f"{given('machine.allow_lower_precision', True)} needs {use('machine.engine', 'auto')}. Omit it."
            )
        if machine.int8:
            raise ConfigError(
                f"{given('machine.int8', True)} needs another engine, because PyTorch has no INT8 here. Use "
                f"{use('machine.engine', 'onnxruntime')} or {use('machine.engine', 'auto')}."
            )
        return None
    # Its class is created here, and loads the engine only when it is used.
    engine: _Engine = load_plugin(ENGINES, "machine.engine", machine.engine, "torch")()
    engine.check(machine)
    return engine


def installed_engines() -> list[str]:
    """The engines besides PyTorch that can be used here; not `auto`, which is one of them."""
    return [name for name, kind in load_group(ENGINES, type).items() if name != "auto" and not kind().why_not()]
