"""machine.backend = compiled: windows of JPEGs decoded by windows.cpp, to the same pixels as by libjpeg-turbo.

What it does not decode, such as damaged or progressive files, libjpeg-turbo does (`data.decoding.base`).
"""

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
import simplejpeg

from vernier.data.decoding.decode import Image, LazyJpeg, decode, lazy_image
from vernier.errors import ConfigError
from vernier.references import given, use

from .library import NeededBy, load_function

_NEEDED_BY = NeededBy("machine.backend", "compiled", "native")


class CompiledDecoder:
    """The decoder of windows.cpp, a `data.decoding.base.WindowDecoder`."""

    def check(self) -> None:
        """Compare what the compiler made with libjpeg-turbo, once: milliseconds."""
        rows, columns = np.mgrid[0:203, 0:301]
        # Waves of several lengths, because flat images would hide errors in high frequencies; sides are no multiples of
        # an MCU, so the check covers blocks that are cut off.
        wave = 127 + 60 * np.sin(rows * columns / 997) + 60 * np.cos((rows + 3 * columns) / 7)
        picture = np.stack([wave, wave.T[:203, :203].repeat(2, 1)[:, :301], 255 - wave], axis=2).astype(np.uint8)
        for sampling in ("444", "422", "420"):
            encoded = simplejpeg.encode_jpeg(np.ascontiguousarray(picture), 92, colorsubsampling=sampling)
            image, window = lazy_image(encoded), (slice(13, 190), slice(37, 250))
            assert isinstance(image, LazyJpeg)
            own = self.decode_window(image, window)
            if own is None or not np.array_equal(own, decode(encoded)[window]):
                raise ConfigError(
                    f"{given(*_NEEDED_BY[:2])}: what the C++ compiler made of windows.cpp gives other pixels than "
                    f"libjpeg-turbo. Use {use('machine.backend', 'native')}."
                )

    def decode_window(self, image: LazyJpeg, window: tuple[slice, slice]) -> Image | None:
        """The pixels of a window; None for what libjpeg must decode."""
        rows, columns = window
        coded = image.read_coded(window)
        if coded is None:
            return None
        # Every pixel is written, or the window is refused.
        out = np.empty((rows.stop - rows.start, columns.stop - columns.start, 3), np.uint8)
        body, table = np.frombuffer(coded.body, np.uint8), coded.table
        refused = _jpeg_window()(
            coded.header,
            len(coded.header),
            body.ctypes.data,
            len(body),
            # Without a table `body` is the whole scan, not segments between restart markers.
            None if table is None else table.ctypes.data,
            columns.start,
            rows.start,
            out.shape[1],
            out.shape[0],
            out.ctypes.data,
        )
        return None if refused else out


@cache
def _jpeg_window() -> Callable[..., int]:
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    arguments = [ctypes.c_char_p, size, pointer, size, pointer, *[size] * 4, pointer]
    return load_function("jpeg_window", *arguments, by=_NEEDED_BY)
