"""From encoded bytes to an RGB image: libjpeg-turbo through simplejpeg, everything else through Pillow.

EXIF orientation is not applied, as in the reference pipelines of this field. Images are RGB whatever they were stored as.
"""

import io

import numpy as np
import numpy.typing as npt
import simplejpeg

Image = npt.NDArray[np.uint8]
MAX_PIXELS = 178_956_970  # Pillow's own error limit; read from the header, before memory is taken


class BadImage(ValueError):
    """An image that cannot be decoded, with the reason."""


def decode(encoded: bytes) -> Image:
    """An RGB image [height, width, 3]."""
    if encoded[:2] == b"\xff\xd8":
        try:
            height, width, colorspace, _ = simplejpeg.decode_jpeg_header(encoded)
            _refuse_bomb(width, height)
            if colorspace not in ("CMYK", "YCCK"):
                rgb: Image = simplejpeg.decode_jpeg(encoded, "RGB", fastdct=False, fastupsample=False)
                return rgb
        except ValueError as error:
            raise BadImage(str(error)) from None
    return _decode_with_pillow(encoded)


def _refuse_bomb(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise BadImage(f"{width} x {height} pixels is more than the limit of {MAX_PIXELS}")


def _decode_with_pillow(encoded: bytes) -> Image:
    from PIL import Image as Pillow

    try:
        with Pillow.open(io.BytesIO(encoded)) as image:
            _refuse_bomb(*image.size)
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError) as error:
        raise BadImage(str(error)) from None
