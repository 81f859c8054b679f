"""Small pictures of samples, as text: so that what a run says of single images can be looked at without its data."""

import base64
import io

import numpy as np
from PIL import Image as Picture

from vernier.data.decoding.decode import Image


def thumbnail(image: Image, longest_px: int) -> str:
    """The image as JPEG in base64, no side longer than `longest_px`; never enlarged."""
    picture = Picture.fromarray(np.ascontiguousarray(image[..., 0] if image.shape[2] == 1 else image[..., :3]))
    picture.thumbnail((longest_px, longest_px))
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=80)
    return base64.b64encode(out.getvalue()).decode("ascii")
