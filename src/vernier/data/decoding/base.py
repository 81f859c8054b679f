"""The contract of a JPEG decoder that plugs in through the entry points `vernier.decoders`, such as `vernier.kernels`.

`machine.backend` names one for training images. What it does not decode, libjpeg-turbo does (`decode`).
"""

from collections.abc import Callable
from typing import Protocol

from vernier.config.settings import DECODERS
from vernier.plugins import load_plugin

from .decode import Croppable, Image, LazyJpeg, TurnedJpeg


class WindowDecoder(Protocol):
    """Decodes windows of JPEGs to the same pixels as libjpeg-turbo. The entry point names a class without arguments."""

    def check(self) -> None:
        """Raises ConfigError, with the reason and what would work, if it cannot be used on this machine."""

    def decode_window(self, image: LazyJpeg, window: tuple[slice, slice]) -> Image | None:
        """The pixels of a window at full size; None for what libjpeg-turbo must decode. Called by several threads."""


class _PluginJpeg(LazyJpeg):
    """A JPEG whose windows are decoded by a plug-in, where it can."""

    __slots__ = ("_decoder", "_image")

    def __init__(self, image: LazyJpeg, decoder: WindowDecoder) -> None:
        self._image, self._decoder, self.shape = image, decoder, image.shape

    def decode_window(self, window: tuple[slice, slice], factor: int) -> Image:
        # Plug-ins decode at full size only.
        image = self._decoder.decode_window(self._image, window) if factor == 1 else None
        return self._image.decode_window(window, factor) if image is None else image


def open_with_plugin(name: str, open_image: Callable[[int], Croppable]) -> Callable[[int], Croppable]:
    """Let the JPEGs that a source opens be decoded by the decoder of this name. Raises ConfigError if it cannot be
    used."""
    decoder: WindowDecoder = load_plugin(DECODERS, "machine.backend", name, "native")()
    decoder.check()

    def open_image_with_plugin(sample: int) -> Croppable:
        image = open_image(sample)
        if isinstance(image, TurnedJpeg):
            return TurnedJpeg(_PluginJpeg(image.stored, decoder), image.orientation)
        return _PluginJpeg(image, decoder) if isinstance(image, LazyJpeg) else image

    return open_image_with_plugin
