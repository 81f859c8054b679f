"""From encoded bytes to an RGB image: libjpeg-turbo through simplejpeg, everything else through Pillow.

What a file is, is decided by its first bytes, never by its name. Images are RGB whatever they were stored as. EXIF
orientation is not applied, as in the reference pipelines of this field. A file that ends early is bad; a fault inside a
complete JPEG is decoded as libjpeg recovers from it, as Pillow does. `check` is stricter, for `vernier data verify`.
"""

import base64
import io
from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import simplejpeg

from vernier.data.decoding.jpeg_slicing import EOI, SOI, Cut, Header, NotSliceable, Segments, parse_header, trimmed

Image = npt.NDArray[np.uint8]
MAX_PIXELS = 178_956_970  # Pillow's own error limit; read from the header, before memory is taken


WORTH_CUTTING = 12_000  # bytes; a smaller JPEG is decoded whole in less time than its header is read in Python


class BadImage(ValueError):
    """An image that cannot be decoded, with the reason."""


class Croppable(Protocol):
    """An image, or something that becomes one where it is sliced: `lazy_image[top:bottom, left:right]` is an Image."""

    @property
    def shape(self) -> tuple[Any, ...]: ...

    def __getitem__(self, window: Any, /) -> Any: ...


def decode(encoded: bytes) -> Image:
    """An RGB image [height, width, 3]."""
    return _decode(encoded, strict=not encoded.endswith(EOI))


def check(encoded: bytes) -> Image:
    """`decode` that also refuses what the decoder could recover from."""
    return _decode(encoded, strict=True)


def _decode(encoded: bytes, *, strict: bool) -> Image:
    if encoded[:2] != SOI:
        return _decode_with_pillow(encoded)
    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(encoded)
    except ValueError:  # also what libjpeg-turbo's interface has no name for, such as unusual subsampling
        return _decode_with_pillow(encoded)
    refuse_bomb(width, height)
    if colorspace in ("CMYK", "YCCK"):
        return _decode_with_pillow(encoded)
    try:
        return _pixels(encoded, strict=strict)
    except ValueError as error:
        raise BadImage(str(error)) from None


def _pixels(encoded: bytes | bytearray, *, strict: bool, height: int = 0, width: int = 0) -> Image:
    """With a size given, the smallest reduction (in eighths) that is not below it."""
    rgb: Image = simplejpeg.decode_jpeg(
        encoded, "RGB", fastdct=False, fastupsample=False, min_height=height, min_width=width, strict=strict
    )
    return rgb


def refuse_bomb(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise BadImage(f"{width} x {height} pixels is more than the limit of {MAX_PIXELS}")


def _decode_with_pillow(encoded: bytes) -> Image:
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    try:
        with Pillow.open(io.BytesIO(encoded)) as image:
            refuse_bomb(*image.size)
            return np.asarray(image.convert("RGB"))
    except UnidentifiedImageError:
        raise BadImage("it is no image of a known kind" if encoded else "it is empty") from None
    except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError) as error:
        raise BadImage(str(error)) from None


def size_of(encoded: bytes) -> tuple[int, int]:
    """Width and height from the header alone."""
    from PIL import Image as Pillow

    try:
        header = parse_header(encoded)
        return header.width, header.height
    except NotSliceable:
        pass
    try:
        with Pillow.open(io.BytesIO(encoded)) as image:
            return image.size
    except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError) as error:
        raise BadImage(str(error)) from None


def encode_thumbnail(image: Image, longest_px: int) -> str:
    """The image as a base64 JPEG with no side longer than `longest_px`; never enlarged.

    Runs store such thumbnails, so that a report can show single samples without the data set.
    """
    from PIL import Image as Pillow

    small = Pillow.fromarray(np.ascontiguousarray(image[..., 0] if image.shape[2] == 1 else image[..., :3]))
    small.thumbnail((longest_px, longest_px))
    out = io.BytesIO()
    small.save(out, "JPEG", quality=80)
    return base64.b64encode(out.getvalue()).decode("ascii")


# ------------------------------------------------------------------------------------------ only what a crop asks for


def lazy_image(encoded: bytes) -> Croppable:
    """The image, decoded no further down than it will be sliced where the format allows that."""
    if len(encoded) >= WORTH_CUTTING and encoded.startswith(SOI) and encoded.endswith(EOI):
        try:
            header = parse_header(encoded)
        except NotSliceable:
            return decode(encoded)
        if header.sequential and header.components in (1, 3):
            refuse_bomb(header.width, header.height)
            return _TrimmedJpeg(encoded, header)
    return decode(encoded)


class LazyJpeg(ABC):
    """A JPEG that is decoded when it is sliced, whole or reduced in size by the decoder itself."""

    __slots__ = ("shape",)

    shape: tuple[int, int, int]

    def __getitem__(self, window: tuple[slice, slice]) -> Image:
        return self.reduced(window, 1)

    @abstractmethod
    def reduced(self, window: tuple[slice, slice], factor: int) -> Image:
        """A window of the image at 1/factor (2, 4 or 8) of its size, counted in pixels of the small image."""


class _TrimmedJpeg(LazyJpeg):
    """A baseline JPEG, decoded from the top to the end of the crop."""

    __slots__ = ("_encoded", "_header")

    def __init__(self, encoded: bytes, header: Header) -> None:
        self._encoded, self._header = encoded, header
        self.shape = (header.height, header.width, 3)

    def reduced(self, window: tuple[slice, slice], factor: int) -> Image:
        rows, columns = window
        stream, height = trimmed(self._encoded, self._header, min(rows.stop * factor, self._header.height))
        try:
            return _pixels(stream, strict=False, **_reduced_size(height, self._header.width, factor))[rows, columns]
        except ValueError:
            whole = decode(self._encoded)
            return whole[rows.start * factor : rows.stop * factor, columns.start * factor : columns.stop * factor]


def _reduced_size(height: int, width: int, factor: int) -> dict[str, int]:
    return {} if factor == 1 else {"height": -(-height // factor), "width": -(-width // factor)}


class ByteRanges(Protocol):
    """A file of which parts can be read."""

    def read_range(self, start: int, stop: int) -> bytes: ...


class SegmentedJpeg(LazyJpeg):
    """A JPEG with known restart segments, of which only those that the crop touches are read and decoded."""

    __slots__ = ("_file", "_segments")

    def __init__(self, file: ByteRanges, segments: Segments) -> None:
        refuse_bomb(segments.width, segments.height)
        self._file, self._segments = file, segments
        self.shape = (segments.height, segments.width, 3)

    def reduced(self, window: tuple[slice, slice], factor: int) -> Image:
        rows, columns = window
        top, left = rows.start * factor, columns.start * factor
        bottom, right = min(rows.stop * factor, self.shape[0]), min(columns.stop * factor, self.shape[1])
        cut = self._segments.cut(left, top, right - left, bottom - top)
        try:
            whole = _pixels(self._stream(cut), strict=True, **_reduced_size(cut.height, cut.width, factor))
        except ValueError as error:
            raise BadImage(str(error)) from None
        y, x = cut.top // factor, cut.left // factor
        return whole[rows.start - y : rows.stop - y, columns.start - x : columns.stop - x]

    def _stream(self, cut: Cut) -> bytearray:
        header = self._file.read_range(0, self._segments.scan_at)
        body = self._file.read_range(cut.start, cut.stop)
        if len(header) + len(body) != self._segments.scan_at + cut.stop - cut.start:
            raise BadImage("the shard ends before the image does")
        return self._segments.assemble(cut, header, body)
