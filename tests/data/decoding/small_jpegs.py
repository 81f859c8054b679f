"""Small JPEGs with structure, of any size, sampling and mode, and crops of them."""

import io

import numpy as np
from hypothesis import strategies as st
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


@st.composite
def crops(draw: st.DrawFn) -> tuple[int, int, int, int, int, int]:
    """Width and height of an image; left, top, width and height of a crop."""
    width, height = draw(st.integers(9, 330)), draw(st.integers(9, 200))
    w, h = draw(st.integers(1, width)), draw(st.integers(1, height))
    return width, height, draw(st.integers(0, width - w)), draw(st.integers(0, height - h)), w, h
