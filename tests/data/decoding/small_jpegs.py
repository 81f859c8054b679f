"""Small JPEGs with structure, of any size, sampling and mode."""

import io

import numpy as np
from PIL import Image


def small_jpeg(width: int, height: int, *, subsampling: int = 2, mode: str = "RGB", **options: object) -> bytes:
    """`options` are those of Pillow's JPEG writer."""
    rng = np.random.default_rng(width * 1000 + height)
    small = rng.integers(0, 255, (max(1, height // 6), max(1, width // 6), 3), dtype=np.uint8)
    out = io.BytesIO()
    extra = {} if mode == "L" else {"subsampling": subsampling}
    image = Image.fromarray(small).resize((width, height)).convert(mode)
    image.save(out, "JPEG", **{"quality": 90, **extra, **options})  # type: ignore[arg-type]
    return out.getvalue()
