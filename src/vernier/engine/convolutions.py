"""The contract of convolution kernels that plug in through the entry points `vernier.convolutions`.

`machine.convolution` names one for training; `vernier.kernels` has `winograd`. `config.checks` refuses settings that do
not go together before anything is loaded.
"""

from contextlib import suppress
from typing import Protocol

from torch import nn

from vernier.config import Config, override
from vernier.config.settings import CONVOLUTIONS
from vernier.devices import Device
from vernier.errors import ConfigError
from vernier.plugins import load_plugin, plugin_names

from .processes.world import World


class _ConvolutionKernels(Protocol):
    """Computes convolutions in another way than PyTorch. The entry point names a class without arguments."""

    def check(self, device: Device) -> None:
        """Raises ConfigError, with what would work, if this device has no use for them."""

    def suits(self, model: nn.Module, image_px: int) -> bool:
        """Whether machine.convolution = auto takes them: by a fixed rule of layers and processor, never by timing, so
        that the same command gives the same weights on the same kind of machine."""

    def convert(self, model: nn.Module) -> None:
        """Let the convolutions that fit compute with these kernels in training; parameters, hooks and names stay.
        Raises ConfigError if none fits, or if the kernels cannot be used on this machine."""


def _choose(config: Config, model: nn.Module, device: Device) -> str:
    """What machine.convolution = auto is for this model, device and processor."""
    machine = config.machine
    # Where kernels were measured to be faster; other settings never use them, or compile other ones.
    if (machine.precision, machine.channels_last, machine.reduction, machine.mode) == ("fp32", True, "ddp", "eager"):
        for name in plugin_names(CONVOLUTIONS):
            with suppress(ConfigError):
                kernels: _ConvolutionKernels = load_plugin(CONVOLUTIONS, "machine.convolution", name, "torch")()
                kernels.check(device)
                if kernels.suits(model, config.recipe.data.image_px):
                    return name
    return "torch"


def use_kernels(config: Config, model: nn.Module, device: Device, world: World) -> Config:
    """Let a model compute its convolutions as machine.convolution says: the configuration, with what `auto` was.
    Raises ConfigError if it cannot. Collective."""
    name = config.machine.convolution
    if name == "auto":  # processes on several kinds of hosts must agree
        name = world.broadcast_from_first(lambda: _choose(config, model, device))
    if name != "torch":
        kernels: _ConvolutionKernels = load_plugin(CONVOLUTIONS, "machine.convolution", name, "torch")()
        kernels.check(device)
        kernels.convert(model)
    return override(config, "machine.convolution", name)
