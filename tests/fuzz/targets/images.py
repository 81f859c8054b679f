"""Images: decoded whole, strictly, by their header alone, and cropped lazily and by restart segments."""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vernier.compat.preparing.restarts import add_restart_markers
from vernier.data.decoding.decode import (
    BadImage,
    Croppable,
    LazyJpeg,
    SegmentedJpeg,
    decode,
    decode_strictly,
    lazy_image,
    read_size,
)
from vernier.data.decoding.jpeg_slicing import NotSliceable, find_segments
from vernier.kernels.jpeg import CompiledDecoder
from vernier.kernels.library import PATH
from vernier.kernels.restarts import CompiledRestarts

from .base import Files, Target

_LARGEST_SIDE = 400
"""Of images that are cropped: the time for larger ones says nothing about the reader."""


def picture(width: int, height: int, seed: int = 1) -> Image.Image:
    """Smooth colours with some noise, so that a JPEG has all kinds of coefficients."""
    random = np.random.default_rng(seed)
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    pixels = np.stack([x, y, (x + y) / 2], axis=-1) + random.normal(0, 12, (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def _jpegs() -> dict[str, Files]:
    small, large = picture(40, 32), picture(200, 150)
    forms: dict[str, bytes] = {
        "baseline": encoded(small, "JPEG"),
        "progressive": encoded(small, "JPEG", progressive=True),
        "grey": encoded(small.convert("L"), "JPEG"),
        "cmyk": encoded(small.convert("CMYK"), "JPEG"),
        "4-4-4": encoded(small, "JPEG", subsampling=0, restart_marker_blocks=2),
        "large": encoded(large, "JPEG", quality=97),
        "restarts": encoded(large, "JPEG", restart_marker_blocks=5),
    }
    return {name: {"image.jpg": content} for name, content in forms.items()}


def _others() -> dict[str, Files]:
    small = picture(20, 16)
    forms = {
        "png": encoded(small, "PNG"),
        "png-palette": encoded(small.convert("P"), "PNG"),
        "png-16": encoded(Image.fromarray(np.arange(320, dtype=np.uint16).reshape(16, 20)), "PNG"),
        "png-alpha": encoded(small.convert("RGBA"), "PNG"),
        "gif": encoded(small.convert("P"), "GIF"),
        "bmp": encoded(small, "BMP"),
        "webp": encoded(small, "WEBP"),
        "tiff": encoded(small, "TIFF"),
        "ppm": encoded(small, "PPM"),
        "tga": encoded(small, "TGA"),
        "ico": encoded(small, "ICO"),
        "jp2": encoded(small, "JPEG2000"),
    }
    return {name: {f"image.{name.partition('-')[0]}": content} for name, content in forms.items()}


def _read(folder: Path) -> None:
    content = next(folder.glob("image.*")).read_bytes()
    size: tuple[int, int] | None = None
    for read in (read_size, decode_strictly, decode):
        try:
            result = read(content)
        except BadImage:
            continue
        if isinstance(result, tuple):
            size = result
        else:
            assert result.shape[2:] == (3,)
            assert result.dtype == np.uint8
    if size is not None and max(size) <= _LARGEST_SIDE:
        _crop(content)


def _crop(content: bytes) -> None:
    with contextlib.suppress(BadImage):
        _crop_lazily(lazy_image(content))
    with contextlib.suppress(BadImage, NotSliceable):
        _crop_lazily(SegmentedJpeg(lambda start, stop: content[start:stop], find_segments(content)))
    if PATH.exists():
        _rewrite(content)


def _rewrite(content: bytes) -> None:
    with contextlib.suppress(BadImage, NotSliceable):
        rewritten, _ = add_restart_markers(content, CompiledRestarts())
        assert np.array_equal(decode_strictly(rewritten), decode(content)), "restart markers change pixels"


def _crop_lazily(image: Croppable) -> None:
    height, width = image.shape[:2]
    for window in (
        (slice(0, height), slice(0, width)),
        (slice(height // 3, height // 2 + 1), slice(width // 4, width)),
    ):
        crop = image[window]
        rows, columns = (s.stop - s.start for s in window)
        assert crop.shape == (rows, columns, 3), "a crop of another size"
        if isinstance(image, LazyJpeg) and PATH.exists():
            # Not through PluginJpeg: of some damaged files libjpeg itself has other pixels in the next call.
            own = CompiledDecoder().decode_window(image, window)
            assert own is None or np.array_equal(own, crop), "the compiled decoder has other pixels"
    if isinstance(image, LazyJpeg):
        image.decode_window((slice(0, -(-height // 2)), slice(0, -(-width // 2))), 2)


TARGETS = (Target("jpeg", _jpegs, _read), Target("image", _others, _read))
