"""From encoded bytes to an RGB image: JPEG through simplejpeg (libjpeg-turbo), everything else through Pillow.

The first bytes of a file decide its format, never its name. EXIF orientation is not applied, as in the reference
pipelines of this field. A truncated file is bad; a fault inside a complete JPEG is decoded as libjpeg recovers from it,
as Pillow does. `decode_strictly` refuses such faults, for `vernier data verify`. 16-bit grey images are scaled to 8
bits. Cutting JPEG streams is up to `jpeg_slicing`.
"""

import base64
import io
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import simplejpeg

from .jpeg_slicing import EOI, SOI, Cut, Header, NotSliceable, Segments, parse_header, trim

Image = npt.NDArray[np.uint8]
MAX_PIXELS = 178_956_970  # Pillow's own error limit; compared with the header before memory is allocated
_REFUSED = (ValueError, KeyError)  # what simplejpeg raises; KeyError for a chroma subsampling that it has no name for
_SMALL_PIXELS = 1 << 24  # smaller ones cost little, whatever their file has
_MAX_PIXELS_PER_BYTE = 10_000  # a white page of one bit per pixel is a PNG of 8,000, a grey JPEG of 1,400
LAZY_FROM_BYTES = 12_000  # a smaller JPEG is decoded in less time than Python needs to read its header


class BadImage(ValueError):
    """An image that cannot be decoded, with the reason."""


class Croppable(Protocol):
    """An image, or an object of which `[top:bottom, left:right]` is an image."""

    @property
    def shape(self) -> tuple[Any, ...]: ...

    def __getitem__(self, window: Any, /) -> Any: ...


def decode(encoded: bytes) -> Image:
    """Decode to RGB [height, width, 3]. Raises BadImage."""
    # Without the end marker a file may be cut off, and then the decoder's warnings are errors.
    return _decode(encoded, strict=not encoded.endswith(EOI))


def decode_strictly(encoded: bytes) -> Image:
    """Decode, but raise BadImage also for faults from which the decoder could recover."""
    return _decode(encoded, strict=True)


def _decode(encoded: bytes, *, strict: bool) -> Image:
    if encoded[:2] != SOI:
        return _decode_with_pillow(encoded)
    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(encoded)
    except _REFUSED:  # also what simplejpeg does not support, such as unusual subsampling
        return _decode_with_pillow(encoded)
    refuse_bomb(width, height, len(encoded))
    if colorspace in ("CMYK", "YCCK"):
        return _decode_with_pillow(encoded)
    try:
        return _decode_jpeg(encoded, strict=strict)
    except _REFUSED as error:
        raise BadImage(str(error)) from None


def _decode_jpeg(encoded: bytes | bytearray, *, strict: bool, height: int = 0, width: int = 0) -> Image:
    """With a height and width, the smallest reduced size (in eighths) that is not below them."""
    # Not the fast variants: the accurate DCT and upsampling give Pillow's pixels.
    rgb: Image = simplejpeg.decode_jpeg(
        encoded, "RGB", fastdct=False, fastupsample=False, min_height=height, min_width=width, strict=strict
    )
    return rgb


def refuse_bomb(width: int, height: int, size_bytes: int | None = None) -> None:
    """Raise BadImage for a decompression bomb: more than MAX_PIXELS, or a large image in a file without content.

    A damaged header can claim any size, and decoders take memory for all of it before they read on.
    """
    if width * height > MAX_PIXELS:
        raise BadImage(f"{width} x {height} pixels is more than the limit of {MAX_PIXELS}")
    if size_bytes is not None and width * height > max(_SMALL_PIXELS, size_bytes * _MAX_PIXELS_PER_BYTE):
        raise BadImage(f"{width} x {height} pixels cannot be in {size_bytes:,} bytes: its header is damaged")


def _decode_with_pillow(encoded: bytes) -> Image:
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    try:
        _refuse_webp_bomb(encoded)
        with Pillow.open(io.BytesIO(encoded)) as image:
            refuse_bomb(*image.size, len(encoded))
            return to_rgb(image)
    except BadImage:
        raise
    except UnidentifiedImageError:
        raise BadImage("it is not an image of a known format" if encoded else "it is empty") from None
    except MemoryError:
        raise
    except Exception as error:  # each of Pillow's formats has errors of its own for a damaged file
        raise BadImage(str(error) or type(error).__name__) from None


def _refuse_webp_bomb(encoded: bytes) -> None:
    """Pillow reads only the header of most formats when it opens them, but takes memory for all pixels of a WebP."""
    if encoded[:4] != b"RIFF" or encoded[8:12] != b"WEBP" or len(encoded) < 30:
        return
    kind, content = encoded[12:16], encoded[20:30]
    if kind == b"VP8 ":  # 14 bits per side; the upper two are a scale
        width, height = (side & 0x3FFF for side in struct.unpack("<HH", content[6:10]))
    elif kind == b"VP8L":  # 14 bits each, minus one, after a signature byte
        bits = int.from_bytes(content[1:5], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8X":
        width, height = (int.from_bytes(content[at : at + 3], "little") + 1 for at in (4, 7))
    else:
        return
    refuse_bomb(width, height, len(encoded))


def to_rgb(image: Any) -> Image:
    """8 bits per channel; 16 bits are scaled from their whole range, where Pillow would cut them off at 255."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        # 257 = 65535 / 255; 128 rounds to the nearest level.
        grey = ((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=2)
    if image.mode in ("I", "F"):
        kind = "whole" if image.mode == "I" else "floating-point"
        raise BadImage(f"its pixels are 32-bit {kind} numbers, whose range is not known; convert it to 8 or 16 bits")
    return np.asarray(image.convert("RGB"))


def read_size(encoded: bytes) -> tuple[int, int]:
    """Width and height from the header alone. Raises BadImage."""
    from PIL import Image as Pillow

    try:
        header = parse_header(encoded)
        return header.width, header.height
    except NotSliceable:
        pass
    try:
        _refuse_webp_bomb(encoded)
        with Pillow.open(io.BytesIO(encoded)) as image:
            return image.size
    except BadImage:
        raise
    except MemoryError:
        raise
    except Exception as error:  # as above
        raise BadImage(str(error) or type(error).__name__) from None


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


# -------------------------------------------------------------------------------------------------------- lazy images


def lazy_image(encoded: bytes) -> Croppable:
    """An image that is decoded when it is sliced, as far as the slice needs; decoded now if its format requires it."""
    if len(encoded) >= LAZY_FROM_BYTES and encoded.startswith(SOI) and encoded.endswith(EOI):
        try:
            header = parse_header(encoded)
        except NotSliceable:
            return decode(encoded)
        if header.sequential and header.components in (1, 3) and header.common_sampling:
            refuse_bomb(header.width, header.height, len(encoded))
            return _TrimmedJpeg(encoded, header)
    return decode(encoded)


class Coded(NamedTuple):
    """The entropy-coded bytes of a window, and the header before them.

    `body` is the whole scan, or the restart segments of a table (`Segments.table`).
    """

    header: bytes
    body: bytes | memoryview
    table: npt.NDArray[np.int64] | None = None


class LazyJpeg(ABC):
    """A JPEG that is decoded when it is sliced, at full size or reduced by the decoder."""

    __slots__ = ("shape",)

    shape: tuple[int, int, int]

    def __getitem__(self, window: tuple[slice, slice]) -> Image:
        return self.decode_window(window, 1)

    @abstractmethod
    def decode_window(self, window: tuple[slice, slice], factor: int) -> Image:
        """A window of the image at 1/factor (1, 2, 4 or 8) of its size, in pixels of the reduced image."""

    def read_coded(self, window: tuple[slice, slice]) -> Coded | None:
        """What another decoder needs for a window; None where it should not try."""
        return None


class _TrimmedJpeg(LazyJpeg):
    """A baseline JPEG, decoded from the top to the bottom of the crop."""

    __slots__ = ("_encoded", "_header")

    def __init__(self, encoded: bytes, header: Header) -> None:
        self._encoded, self._header = encoded, header
        self.shape = (header.height, header.width, 3)

    def decode_window(self, window: tuple[slice, slice], factor: int) -> Image:
        rows, columns = window
        stream, height = trim(self._encoded, self._header, min(rows.stop * factor, self._header.height))
        try:
            image = _decode_jpeg(stream, strict=False, **_reduced_size(height, self._header.width, factor))
            return image[rows, columns]
        except _REFUSED:
            whole = decode(self._encoded)
            return whole[rows.start * factor : rows.stop * factor, columns.start * factor : columns.stop * factor]

    def read_coded(self, window: tuple[slice, slice]) -> Coded:
        scan_at = self._header.scan_at
        return Coded(self._encoded[:scan_at], memoryview(self._encoded)[scan_at:])


def _reduced_size(height: int, width: int, factor: int) -> dict[str, int]:
    return {} if factor == 1 else {"height": -(-height // factor), "width": -(-width // factor)}


def _is_supported(header: bytes) -> bool:
    """Whether simplejpeg decodes images with this header."""
    try:
        simplejpeg.decode_jpeg_header(header + EOI)
    except _REFUSED:
        return False
    return True


class SegmentedJpeg(LazyJpeg):
    """A JPEG with known restart segments: only those that the crop touches are read and decoded.

    `read_range` reads the file from one position to another.
    """

    __slots__ = ("_read_range", "_segments")

    def __init__(self, read_range: Callable[[int, int], bytes], segments: Segments) -> None:
        refuse_bomb(segments.width, segments.height)
        self._read_range, self._segments = read_range, segments
        self.shape = (segments.height, segments.width, 3)

    def decode_window(self, window: tuple[slice, slice], factor: int) -> Image:
        rows, columns = window
        top, left = rows.start * factor, columns.start * factor
        bottom, right = min(rows.stop * factor, self.shape[0]), min(columns.stop * factor, self.shape[1])
        try:
            cut = self._segments.cut(left, top, right - left, bottom - top)
            # Strict: an assembled cut is a complete JPEG, so every warning means damage.
            image = _decode_jpeg(self._read_stream(cut), strict=True, **_reduced_size(cut.height, cut.width, factor))
        except (IndexError, struct.error):
            raise BadImage("the table of its shard is damaged: prepare the shards again") from None
        except _REFUSED as error:
            # Tables of version 0.2 also have segments of samplings that simplejpeg does not decode.
            if _is_supported(self._read_range(0, self._segments.scan_at)):
                raise BadImage(str(error)) from None
            return self._decode_whole()[top:bottom, left:right]
        y, x = cut.top // factor, cut.left // factor  # exact: a cut begins at multiples of 8 pixels
        return image[rows.start - y : rows.stop - y, columns.start - x : columns.stop - x]

    def read_coded(self, window: tuple[slice, slice]) -> Coded | None:
        rows, columns = window
        segments = self._segments
        try:
            cut = segments.cut(columns.start, rows.start, columns.stop - columns.start, rows.stop - rows.start)
            header, body = self._read_parts(cut)
            sized = bytearray(header)  # the table knows the size better than a damaged header
            struct.pack_into(">HH", sized, segments.frame_at + 5, segments.height, segments.width)
        except (IndexError, struct.error):
            return None
        return Coded(bytes(sized), body, segments.table(cut))

    def _decode_whole(self) -> Image:
        """For the sampling of chroma that only Pillow decodes; a caller that reduces gets the window at full size."""
        end = int(self._segments.row_starts[-1]) + int(self._segments.within[-1, -1])
        encoded = self._read_range(0, end)
        if len(encoded) != end:
            raise BadImage("the shard ends before the image does")
        return decode_strictly(encoded)

    def _read_stream(self, cut: Cut) -> bytearray:
        return self._segments.assemble(cut, *self._read_parts(cut))

    def _read_parts(self, cut: Cut) -> tuple[bytes, bytes]:
        """The header, and the bytes of a cut."""
        header = self._read_range(0, self._segments.scan_at)
        body = self._read_range(cut.start, cut.stop) if cut.stop > cut.start else b""
        if len(header) + len(body) != self._segments.scan_at + cut.stop - cut.start:
            raise BadImage("the shard ends before the image does")
        return header, body
