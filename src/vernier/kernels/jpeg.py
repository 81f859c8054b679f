"""machine.backend = compiled: windows of JPEGs decoded by windows.cpp, to the same pixels as by libjpeg-turbo.

What it does not decode, such as damaged or progressive files, libjpeg-turbo does (`data.decoding.base`).
"""

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
import simplejpeg

from vernier.data.decoding.decode import Image, LazyJpeg, decode, lazy_image
from vernier.errors import ConfigError

from .compiling import load_library

SETTING = "machine.backend = compiled"
_SOURCE = Path(__file__).with_name("windows.cpp")


class CompiledDecoder:
    """The decoder of windows.cpp, a `data.decoding.base.WindowDecoder`."""

    def check(self) -> None:
        """Compare what the compiler made with libjpeg-turbo, once: milliseconds."""
        rows, columns = np.mgrid[0:203, 0:301]
        wave = 127 + 60 * np.sin(rows * columns / 997) + 60 * np.cos((rows + 3 * columns) / 7)
        picture = np.stack([wave, wave.T[:203, :203].repeat(2, 1)[:, :301], 255 - wave], axis=2).astype(np.uint8)
        for sampling in ("444", "422", "420"):
            encoded = simplejpeg.encode_jpeg(np.ascontiguousarray(picture), 92, colorsubsampling=sampling)
            image, window = lazy_image(encoded), (slice(13, 190), slice(37, 250))
            assert isinstance(image, LazyJpeg)
            own = self.decode_window(image, window)
            if own is None or not np.array_equal(own, decode(encoded)[window]):
                raise ConfigError(
                    f"{SETTING}: what the C++ compiler of this machine made of {_SOURCE.name} gives other pixels than "
                    "libjpeg-turbo. Set $CXX to another compiler, or leave machine.backend out."
                )

    def decode_window(self, image: LazyJpeg, window: tuple[slice, slice]) -> Image | None:
        """The pixels of a window; None for what libjpeg must decode."""
        rows, columns = window
        coded = image.read_coded(window)
        if coded is None:
            return None
        out = np.empty((rows.stop - rows.start, columns.stop - columns.start, 3), np.uint8)
        body, table = np.frombuffer(coded.body, np.uint8), coded.table
        refused = _library().jpeg_window(
            *(coded.header, len(coded.header), body.ctypes.data, len(body)),
            None if table is None else table.ctypes.data,
            *(columns.start, rows.start, out.shape[1], out.shape[0], out.ctypes.data),
        )
        return None if refused else out


@cache
def _library() -> ctypes.CDLL:
    library = load_library(_SOURCE, SETTING)
    declare(library)
    return library


def declare(library: ctypes.CDLL) -> None:
    """The types of the arguments of its function."""
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    library.jpeg_window.argtypes = [ctypes.c_char_p, size, pointer, size, pointer, *[size] * 4, pointer]
