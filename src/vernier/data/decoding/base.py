"""The contract of a JPEG decoder that plugs in through the entry points `vernier.decoders`, such as `vernier.kernels`.

`machine.backend` names one for training images. What it does not decode, libjpeg-turbo does (`decode`).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from vernier.config.checks import CROPS_OF_WHOLE_IMAGES
from vernier.config.settings import DECODERS, Augment, Data
from vernier.errors import ConfigError
from vernier.plugins import load_plugin, plugin_names

from .decode import Croppable, Image, LazyJpeg, TurnedJpeg


class WindowDecoder(Protocol):
    """Decodes windows of JPEGs to the same pixels as libjpeg-turbo. The entry point names a class without arguments."""

    def check(self) -> None:
        """Raises ConfigError, with the reason and what would work, if it cannot be used on this machine."""

    def decode_window(self, image: LazyJpeg, window: tuple[slice, slice]) -> Image | None:
        """The pixels of a window at full size; None for what libjpeg-turbo must decode. Called by several threads."""


_Fill = Callable[[Any, npt.NDArray[np.float64], Image], npt.NDArray[np.bool_]]


@runtime_checkable
class _ChunkDecoder(WindowDecoder, Protocol):
    """One that also makes many training images in one call, so that threads rarely need the interpreter's lock."""

    def plan_chunks(self, data: Data, augment: Augment, *, exif: bool) -> _Fill:
        """A function of where images are (`sources.base.Stored`), their random numbers (`crop_flip.augment_rows`) and
        an array for the results: it makes random-resized crops as `crop_flip.TrainTransform` does, and returns which
        rows it made. The others, such as damaged images, are made one by one."""


class _PluginJpeg(LazyJpeg):
    """A JPEG whose windows are decoded by a plug-in, where it can."""

    __slots__ = ("_decoder", "_image")

    def __init__(self, image: LazyJpeg, decoder: WindowDecoder) -> None:
        self._image, self._decoder, self.shape = image, decoder, image.shape

    def decode_window(self, window: tuple[slice, slice], factor: int) -> Image:
        # Plug-ins decode at full size only.
        image = self._decoder.decode_window(self._image, window) if factor == 1 else None
        return self._image.decode_window(window, factor) if image is None else image


_Opened = tuple[str, Callable[[int], Croppable], _Fill | None]


def open_with_plugin(name: str, source: Any, data: Data, augment: Augment) -> _Opened | None:
    """Let the JPEGs of a source of encoded images be decoded by the decoder of this name: its name, a function that
    opens a sample, and one that makes those of a chunk of samples that it can, if it can. Raises ConfigError if the
    decoder cannot be used.

    `auto` is the first one that can be used, all of which give the same pixels; None without any.
    """
    if name == "auto":
        for each in plugin_names(DECODERS) if augment.crop not in CROPS_OF_WHOLE_IMAGES else ():
            with suppress(ConfigError):
                return open_with_plugin(each, source, data, augment)
        return None
    decoder: WindowDecoder = load_plugin(DECODERS, "machine.backend", name, "native")()
    decoder.check()

    def open_image_with_plugin(sample: int) -> Croppable:
        image = source.lazy_image(sample)
        if isinstance(image, TurnedJpeg):
            return TurnedJpeg(_PluginJpeg(image.stored, decoder), image.orientation)
        return _PluginJpeg(image, decoder) if isinstance(image, LazyJpeg) else image

    if not isinstance(decoder, _ChunkDecoder) or augment.crop != "random-resized":
        return name, open_image_with_plugin, None
    fill_stored = decoder.plan_chunks(data, augment, exif=source.exif)

    def fill(samples: Any, draws: npt.NDArray[np.float64], out: Image) -> npt.NDArray[np.bool_]:
        stored = source.stored(samples)
        return np.zeros(len(out), np.bool_) if stored is None else fill_stored(stored, draws, out)

    return name, open_image_with_plugin, fill
