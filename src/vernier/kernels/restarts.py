"""Restart markers by restarts.cpp: files that are identical to those of `jpegtran -copy none -optimize -restart NB`."""

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
import simplejpeg

from vernier.data.decoding.decode import decode
from vernier.errors import ConfigError

from .library import NeededBy, load_function


class CompiledRestarts:
    """The writer of restarts.cpp, a `compat.preparing.restarts.RestartWriter`."""

    def check(self) -> None:
        """Compare what the compiler made with libjpeg-turbo, once: milliseconds."""
        # Noise in all channels: every table and every MCU has something that an error would change.
        picture = (np.arange(100 * 60 * 3) ** 2 % 251).astype(np.uint8).reshape(60, 100, 3)
        encoded = simplejpeg.encode_jpeg(picture)
        rewritten = self.rewrite(encoded, 3)
        if rewritten is None or not np.array_equal(decode(rewritten), decode(encoded)):
            raise ConfigError("what the C++ compiler made of restarts.cpp changes pixels")

    def rewrite(self, encoded: bytes, interval: int) -> bytes | None:
        """The image with a restart marker every `interval` MCUs; None for damaged, progressive and unusual files."""
        out = ctypes.c_void_p()
        size = _jpeg_restarts()(encoded, len(encoded), interval, ctypes.byref(out))
        # The memory is the library's, and overwritten by this thread's next call: hence the copy.
        return ctypes.string_at(out, size) if size else None


@cache
def _jpeg_restarts() -> Callable[..., int]:
    size, out = ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p)
    return load_function(
        "jpeg_restarts", ctypes.c_char_p, size, size, out, returns=size, by=NeededBy("restarts", True, False)
    )
