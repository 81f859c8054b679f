"""The contract of convolution kernels that plug in through the entry points `vernier.convolutions`.

`machine.convolution` names one for training; `vernier.kernels` has `winograd`. `config.checks` refuses settings that do
not go together before anything is loaded.
"""

from typing import Protocol

from torch import nn

from vernier.config.settings import CONVOLUTIONS
from vernier.devices import Device
from vernier.plugins import load_plugin


class _ConvolutionKernels(Protocol):
    """Computes convolutions in another way than PyTorch. The entry point names a class without arguments."""

    def check(self, device: Device) -> None:
        """Raises ConfigError, with what would work, if this device has no use for them."""

    def convert(self, model: nn.Module) -> None:
        """Let the convolutions that fit compute with these kernels in training; parameters, hooks and names stay.
        Raises ConfigError if none fits, or if the kernels cannot be used on this machine."""


def use_kernels(name: str, model: nn.Module, device: Device) -> None:
    """Let a model compute its convolutions with the kernels of this name. Raises ConfigError if it cannot."""
    kernels: _ConvolutionKernels = load_plugin(CONVOLUTIONS, "machine.convolution", name, "torch")()
    kernels.check(device)
    kernels.convert(model)
