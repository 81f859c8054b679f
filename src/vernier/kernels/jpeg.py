"""machine.backend = compiled: windows of JPEGs decoded by windows.cpp, to the same pixels as by libjpeg-turbo, and
whole chunks of training images made in one call, without the interpreter's lock.

What it does not decode, such as damaged or progressive files, libjpeg-turbo does (`data.decoding.base`).
"""

import ctypes
import math
import os
import struct
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import simplejpeg

from vernier.config.settings import Augment, Data
from vernier.data.augment.crop_flip import BOX_ATTEMPTS, DRAWS, FLIP, Row, TrainTransform
from vernier.data.decoding.decode import Image, LazyJpeg, lazy_image
from vernier.data.sources.containers.shard_index import COLUMN_TYPES
from vernier.errors import ConfigError
from vernier.references import given, use

from .library import NeededBy, load_function

_NEEDED_BY = NeededBy("machine.backend", "compiled", "native")


class CompiledDecoder:
    """The decoder of windows.cpp, a `data.decoding.base.WindowDecoder`."""

    def check(self) -> None:
        """Compare what the compiler made with libjpeg-turbo and PyTorch, once: milliseconds."""
        rows, columns = np.mgrid[0:203, 0:301]
        # Waves of several lengths, because flat images would hide errors in high frequencies; sides are no multiples of
        # an MCU, so the check covers blocks that are cut off.
        wave = 127 + 60 * np.sin(rows * columns / 997) + 60 * np.cos((rows + 3 * columns) / 7)
        picture = np.stack([wave, wave.T[:203, :203].repeat(2, 1)[:, :301], 255 - wave], axis=2).astype(np.uint8)
        # Crops depend on the C library's functions, and pixels on PyTorch's kernel, which is another one elsewhere.
        draws, size = np.random.default_rng(0).random((4, DRAWS)), 56
        for sampling, mode in (("444", "bilinear"), ("422", "bicubic"), ("420", "bilinear")):
            encoded = simplejpeg.encode_jpeg(np.ascontiguousarray(picture), 92, colorsubsampling=sampling)
            recipe = Data(interpolation=mode), Augment(crop="random-resized")  # type: ignore[arg-type]
            own, expected = np.zeros((2, len(draws), size, size, 3), np.uint8)
            with tempfile.NamedTemporaryFile() as file:
                file.write(encoded)
                file.flush()
                done = self.plan_chunks(*recipe, exif=True)([file.name] * len(draws), draws, own)
            for row, out in zip(draws, expected, strict=True):
                TrainTransform(*recipe)(lazy_image(encoded), row, out)
            if not done.all() or not np.array_equal(own, expected):
                raise ConfigError(
                    f"{given(*_NEEDED_BY[:2])}: what the C++ compiler made of windows.cpp gives other pixels than "
                    f"libjpeg-turbo and PyTorch. Use {use('machine.backend', 'native')}."
                )

    def plan_chunks(self, data: Data, augment: Augment, *, exif: bool) -> Callable[..., npt.NDArray[np.bool_]]:
        """Crops, resizing and flips of many images in one call (`data.decoding.base`)."""
        (low, high), ratio, described = augment.area, augment.ratio, dict[int, tuple[Any, ...]]()
        logs = math.log(ratio[0]), math.log(ratio[1])
        numbers = (low, high - low, logs[0], logs[1] - logs[0], *ratio, augment.flip)
        switches = (data.interpolation == "bicubic", data.scaled_decode, exif)

        def address(shard: tuple[int, int, Mapping[str, npt.NDArray[Any]]]) -> int:
            # By identity: tables live as long as their source, and the arrays as long as this dictionary.
            if id(shard[2]) not in described:
                described[id(shard[2])] = _describe_shard(*shard)
            return int(described[id(shard[2])][0])

        def fill(stored: Any, draws: Row, out: Image) -> npt.NDArray[np.bool_]:
            count, paths, shards, rows = len(out), None, None, None
            if isinstance(stored, list):
                paths = (ctypes.c_char_p * count)(*map(os.fsencode, stored))
            else:
                shards = (ctypes.c_void_p * count)(*map(address, stored[0]))
                rows = (ctypes.c_int64 * count)(*stored[1])
            crops = struct.pack("7d7q", *numbers, BOX_ATTEMPTS, DRAWS, DRAWS + FLIP, out.shape[1], *switches)
            done = np.empty(count, np.bool_)
            pointers = draws.ctypes.data, out.ctypes.data, done.ctypes.data
            _jpeg_chunk()(paths, shards, rows, count, crops, *pointers)
            return done

        return fill

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


# The order and types of the struct Shard in windows.cpp.
_COLUMNS = {**COLUMN_TYPES, "row_starts": "u4", "within": "u2"}


def _describe_shard(handle: int, size: int, table: Mapping[str, npt.NDArray[Any]]) -> tuple[Any, ...]:
    """The address of a shard's description, and what must live as long as it is used."""
    columns = {name: np.require(table[name], dtype, "C") for name, dtype in _COLUMNS.items()}
    lengths = (len(columns[name]) for name in ("offset", "row_starts", "within"))
    pointers = (column.ctypes.data for column in columns.values())
    description = np.array([handle, size, *lengths, *pointers], np.int64)
    return description.ctypes.data, description, columns, table


@cache
def _jpeg_chunk() -> Callable[..., None]:
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    arguments = [pointer, pointer, pointer, size, ctypes.c_char_p, pointer, pointer, pointer]
    return load_function("jpeg_chunk", *arguments, returns=None, by=_NEEDED_BY)


@cache
def _jpeg_window() -> Callable[..., int]:
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    arguments = [ctypes.c_char_p, size, pointer, size, pointer, *[size] * 4, pointer]
    return load_function("jpeg_window", *arguments, by=_NEEDED_BY)
