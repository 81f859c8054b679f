"""From encoded bytes to an RGB image: JPEG through simplejpeg (libjpeg-turbo), everything else through Pillow.

The first bytes of a file decide its format, never its name. A photograph that its EXIF data (or XMP) calls turned is
turned upright, to the pixels of Pillow's `ImageOps.exif_transpose`, unless `exif` is False. A truncated file is bad; a
fault inside a complete JPEG is decoded as libjpeg recovers from it, as Pillow does. `decode_strictly` refuses such
faults, for `vernier data verify`. 16-bit grey images are scaled to 8 bits. Cutting JPEG streams is up to
`jpeg_slicing`.
"""

import base64
import io
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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


def decode(encoded: bytes, *, exif: bool = True) -> Image:
    """Decode to RGB [height, width, 3]. Raises BadImage."""
    # Without the end marker a file may be cut off, and then the decoder's warnings are errors.
    return _decode(encoded, strict=not encoded.endswith(EOI), exif=exif)


def decode_strictly(encoded: bytes) -> Image:
    """Decode as stored, but raise BadImage also for faults from which the decoder could recover."""
    return _decode(encoded, strict=True, exif=False)


def _decode(encoded: bytes, *, strict: bool, exif: bool) -> Image:
    if encoded[:2] != SOI:
        return _decode_with_pillow(encoded, exif)
    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(encoded)
    except _REFUSED:  # also what simplejpeg does not support, such as unusual subsampling
        return _decode_with_pillow(encoded, exif)
    refuse_bomb(width, height, len(encoded))
    if colorspace in ("CMYK", "YCCK"):
        return _decode_with_pillow(encoded, exif)
    try:
        pixels = _decode_jpeg(encoded, strict=strict)
        return _turn(pixels, read_orientation(encoded)) if exif else pixels
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


def _decode_with_pillow(encoded: bytes, exif: bool) -> Image:
    with _opened(encoded) as image:
        width, height = image.size
        refuse_bomb(width, height, len(encoded))
        return rgb_of(image, exif=exif)


@contextmanager
def _opened(encoded: bytes) -> Iterator[Any]:
    """The file as an open Pillow image. Errors of Pillow become BadImage."""
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    try:
        _refuse_webp_bomb(encoded)
        with Pillow.open(io.BytesIO(encoded)) as image:
            yield image
    except (BadImage, MemoryError):
        raise
    except UnidentifiedImageError:
        raise BadImage("it is not an image of a known format" if encoded else "it is empty") from None
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


def rgb_of(image: Any, *, exif: bool = True) -> Image:
    """The upright RGB pixels of an open Pillow image; `exif` False: as they are stored."""
    pixels = _to_rgb(image)
    # After the pixels: the EXIF data of a PNG may follow them.
    return _turn(pixels, _orientation_of(image)) if exif else pixels


def _to_rgb(image: Any) -> Image:
    """8 bits per channel; 16 bits are scaled from their whole range, where Pillow would cut them off at 255."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        # 257 = 65535 / 255; 128 rounds to the nearest level.
        grey = ((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=2)
    if image.mode in ("I", "F"):
        kind = "whole" if image.mode == "I" else "floating-point"
        raise BadImage(f"its pixels are 32-bit {kind} numbers, whose range is not known; convert it to 8 or 16 bits")
    return np.asarray(image.convert("RGB"))


# -------------------------------------------------------------------------------------------------------- orientation

_ORIENTATION = 0x0112
# The entry of an EXIF table up to its value: tag, type (16, 8 or 32 bits; cameras write 16) and the count 1.
_EXIF_ENTRIES = tuple(struct.pack(f"{order}HHI", _ORIENTATION, kind, 1) for order in "<>" for kind in (3, 1, 4))
_MARKS = (b"eXIf", b"EXIF", b"tiff:Orientation", b"Raw profile type")  # PNG, WebP, XMP, ImageMagick's PNG


def read_orientation(encoded: bytes) -> int:
    """The EXIF orientation of an encoded image, or of the header of a JPEG: 1 is upright, 5 to 8 swap its sides."""
    # Pillow's answer is the reference. It takes 0.1 ms and more, so it is asked only about files that may be turned.
    if not (_may_be_turned(encoded) if encoded[:2] == SOI else any(mark in encoded for mark in _MARKS)):
        return 1
    try:
        with _opened(encoded) as image:
            return _orientation_of(image)
    except Exception:  # decoding will report what is wrong
        return 1


def _may_be_turned(jpeg: bytes) -> bool:
    """Whether a segment APP1, where EXIF and XMP are, has an orientation other than upright."""
    at = 2
    # Up to the first table (DQT): the standard puts EXIF before it, and small images have no time for more.
    while jpeg[at : at + 1] == b"\xff" and (marker := jpeg[at + 1 : at + 2]) not in (b"\xdb", b"\xda"):
        length = 0 if marker == b"\xff" else 1 + int.from_bytes(jpeg[at + 2 : at + 4])  # any number of FF may precede
        if marker == b"\xe1":
            segment = jpeg[at : at + length + 1]
            at_entries = (segment.find(entry) for entry in _EXIF_ENTRIES)
            # The value follows in four bytes; only 0 and 1 leave nothing when these are taken away.
            if b"tiff:Orientation" in segment or any(
                entry >= 0 and segment[entry + 8 : entry + 12].strip(b"\0\1") for entry in at_entries
            ):
                return True
        at += length + 1
    return False


def _orientation_of(image: Any) -> int:
    """The EXIF orientation of an open Pillow image."""
    value = 1 if image.format == "TIFF" else image.getexif().get(_ORIENTATION, 1)  # Pillow turns TIFF itself
    return value if value in range(2, 9) else 1


def _turn(image: Image, orientation: int) -> Image:
    """Turn stored pixels upright. An orientation is where the first row and column are: 6 is right and top."""
    if orientation == 1:
        return image
    if orientation >= 5:
        image = image.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return np.ascontiguousarray(image)


def read_size(encoded: bytes, *, exif: bool = True) -> tuple[int, int]:
    """Width and height from the header alone. Raises BadImage."""
    size = _stored_size(encoded)
    return size[::-1] if exif and read_orientation(encoded) >= 5 else size


def _stored_size(encoded: bytes) -> tuple[int, int]:
    with suppress(NotSliceable):
        header = parse_header(encoded)
        return header.width, header.height
    with _opened(encoded) as image:
        size: tuple[int, int] = image.size
        return size


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


def lazy_image(encoded: bytes, *, exif: bool = True) -> Croppable:
    """An image that is decoded when it is sliced, as far as the slice needs; decoded now if its format requires it."""
    if len(encoded) >= LAZY_FROM_BYTES and encoded.startswith(SOI) and encoded.endswith(EOI):
        try:
            header = parse_header(encoded)
        except NotSliceable:
            return decode(encoded, exif=exif)
        if header.sequential and header.components in (1, 3) and header.common_sampling:
            refuse_bomb(header.width, header.height, len(encoded))
            image = _TrimmedJpeg(encoded, header)
            return upright(image, read_orientation(encoded)) if exif else image
    return decode(encoded, exif=exif)


class _Coded(NamedTuple):
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

    def read_coded(self, window: tuple[slice, slice]) -> _Coded | None:
        """What another decoder needs for a window; None where it should not try."""
        return None


class TurnedJpeg(LazyJpeg):
    """A JPEG whose stored pixels are turned: a window is mapped to them, decoded there, and turned."""

    __slots__ = ("orientation", "stored")

    def __init__(self, stored: LazyJpeg, orientation: int) -> None:
        self.stored, self.orientation = stored, orientation
        height, width, channels = stored.shape
        self.shape = (width, height, channels) if orientation >= 5 else stored.shape

    def decode_window(self, window: tuple[slice, slice], factor: int) -> Image:
        rows, columns = window
        height, width = (-(-side // factor) for side in self.shape[:2])
        # The steps of `_turn`, backwards.
        if self.orientation in (2, 3, 6, 7):
            columns = slice(width - columns.stop, width - columns.start)
        if self.orientation in (3, 4, 7, 8):
            rows = slice(height - rows.stop, height - rows.start)
        stored = (columns, rows) if self.orientation >= 5 else (rows, columns)
        return _turn(self.stored.decode_window(stored, factor), self.orientation)


def upright(image: LazyJpeg, orientation: int) -> LazyJpeg:
    """The JPEG as its EXIF orientation shows it."""
    return image if orientation == 1 else TurnedJpeg(image, orientation)


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
            whole = decode(self._encoded, exif=False)
            return whole[rows.start * factor : rows.stop * factor, columns.start * factor : columns.stop * factor]

    def read_coded(self, window: tuple[slice, slice]) -> _Coded:
        scan_at = self._header.scan_at
        return _Coded(self._encoded[:scan_at], memoryview(self._encoded)[scan_at:])


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

    __slots__ = ("_read_range", "_segments", "header")

    def __init__(self, read_range: Callable[[int, int], bytes], segments: Segments) -> None:
        refuse_bomb(segments.width, segments.height)
        self._read_range, self._segments = read_range, segments
        self.header = read_range(0, segments.scan_at)
        self.shape = (segments.height, segments.width, 3)

    def decode_window(self, window: tuple[slice, slice], factor: int) -> Image:
        rows, columns = window
        top, left = rows.start * factor, columns.start * factor
        bottom, right = min(rows.stop * factor, self.shape[0]), min(columns.stop * factor, self.shape[1])
        try:
            cut = self._segments.cut(left, top, right - left, bottom - top)
            # Strict: an assembled cut is a complete JPEG, so every warning means damage.
            stream = self._segments.assemble(cut, *self._read_parts(cut))
            image = _decode_jpeg(stream, strict=True, **_reduced_size(cut.height, cut.width, factor))
        except (IndexError, struct.error):
            raise BadImage("the table of its shard is damaged: prepare the shards again") from None
        except _REFUSED as error:
            # Tables of version 0.2 also have segments of samplings that simplejpeg does not decode.
            if _is_supported(self.header):
                raise BadImage(str(error)) from None
            return self._decode_whole()[top:bottom, left:right]
        y, x = cut.top // factor, cut.left // factor  # exact: a cut begins at multiples of 8 pixels
        return image[rows.start - y : rows.stop - y, columns.start - x : columns.stop - x]

    def read_coded(self, window: tuple[slice, slice]) -> _Coded | None:
        rows, columns = window
        segments = self._segments
        try:
            cut = segments.cut(columns.start, rows.start, columns.stop - columns.start, rows.stop - rows.start)
            header, body = self._read_parts(cut)
            sized = bytearray(header)  # the table knows the size better than a damaged header
            struct.pack_into(">HH", sized, segments.frame_at + 5, segments.height, segments.width)
        except (IndexError, struct.error):
            return None
        return _Coded(bytes(sized), body, segments.table(cut))

    def _decode_whole(self) -> Image:
        """For the sampling of chroma that only Pillow decodes; a caller that reduces gets the window at full size."""
        end = int(self._segments.row_starts[-1]) + int(self._segments.within[-1, -1])
        encoded = self._read_range(0, end)
        if len(encoded) != end:
            raise BadImage("the shard ends before the image does")
        return decode_strictly(encoded)

    def _read_parts(self, cut: Cut) -> tuple[bytes, bytes]:
        """The header, and the bytes of a cut."""
        header = self.header
        body = self._read_range(cut.start, cut.stop) if cut.stop > cut.start else b""
        if len(header) + len(body) != self._segments.scan_at + cut.stop - cut.start:
            raise BadImage("the shard ends before the image does")
        return header, body
