import io

import numpy as np
import pytest
from PIL import Image

from vernier.data.decoding.decode import BadImage, decode


def _encoded(mode: str, kind: str) -> bytes:
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(0, 255, (20, 30, 3), dtype=np.uint8)).convert(mode)
    out = io.BytesIO()
    picture.save(out, kind, **({"quality": 95} if kind == "JPEG" else {}))
    return out.getvalue()


@pytest.mark.parametrize(
    ("mode", "kind"), [("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG"), ("RGB", "PNG"), ("RGBA", "PNG"), ("P", "PNG")]
)
def test_every_kind_becomes_rgb(mode: str, kind: str) -> None:
    image = decode(_encoded(mode, kind))
    assert image.shape == (20, 30, 3)
    assert image.dtype == np.uint8


def test_jpeg_pixels_agree_with_pillow() -> None:
    encoded = _encoded("RGB", "JPEG")
    theirs = np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB")).astype(int)
    assert np.abs(decode(encoded).astype(int) - theirs).max() <= 2


@pytest.mark.parametrize("encoded", [b"", b"hello", b"\xff\xd8\xff", _encoded("RGB", "PNG")[:60]])
def test_what_is_no_image_says_so(encoded: bytes) -> None:
    with pytest.raises(BadImage):
        decode(encoded)


def test_a_bomb_is_refused_from_its_header() -> None:
    encoded = bytearray(_encoded("RGB", "JPEG"))
    frame = encoded.index(b"\xff\xc0")
    encoded[frame + 5 : frame + 9] = (60_000).to_bytes(2, "big") * 2
    with pytest.raises(BadImage, match="more than the limit"):
        decode(bytes(encoded))
