"""Decoding: every format becomes RGB, damage is an error, and a lazy image has the pixels of the whole."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from vernier.data.decoding.decode import (
    BadImage,
    LazyJpeg,
    decode,
    decode_strictly,
    encode_thumbnail,
    lazy_image,
    read_size,
)


def _encode(mode: str, kind: str, size: tuple[int, int] = (30, 20), **options: object) -> bytes:
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 255, (*size[::-1], 3), dtype=np.uint8)).convert(mode)
    out = io.BytesIO()
    image.save(out, kind, **({"quality": 95} if kind == "JPEG" else {}), **options)  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.parametrize(
    ("mode", "kind"), [("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG"), ("RGB", "PNG"), ("RGBA", "PNG"), ("P", "PNG")]
)
def test_every_kind_becomes_rgb(mode: str, kind: str) -> None:
    image = decode(_encode(mode, kind))
    assert image.shape == (20, 30, 3)
    assert image.dtype == np.uint8


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM", "JPEG2000"])
def test_sixteen_bit_grey_is_scaled_from_its_whole_range(kind: str) -> None:
    levels = np.linspace(0, 65535, 600).reshape(20, 30).astype(np.uint16)
    out = io.BytesIO()
    Image.fromarray(levels).save(out, kind)
    image = decode(out.getvalue())
    assert image.shape == (20, 30, 3)
    assert np.abs(image - levels[..., None] / 257).max() <= 0.5


@pytest.mark.parametrize(("number", "name"), [(np.float32, "floating-point"), (np.int32, "whole")])
def test_numbers_without_a_known_range_are_bad(number: type, name: str) -> None:
    out = io.BytesIO()
    Image.fromarray(np.linspace(0, 1000, 600).reshape(20, 30).astype(number)).save(out, "TIFF")
    with pytest.raises(BadImage, match=f"32-bit {name} numbers.*convert it to 8 or 16 bits"):
        decode(out.getvalue())


@pytest.mark.parametrize(
    "options", [{}, {"lossless": True}, {"save_all": True, "append_images": [Image.new("RGB", (30, 20))]}]
)
def test_a_webp_with_a_damaged_size_is_refused_before_pillow_takes_memory_for_it(options: dict[str, object]) -> None:
    sound = _encode("RGB", "WEBP", **options)
    assert decode(sound).shape == (20, 30, 3)
    assert read_size(sound) == (30, 20)
    at = {b"VP8 ": (26, 30), b"VP8L": (21, 25), b"VP8X": (24, 30)}[sound[12:16]]
    damaged = sound[: at[0]] + b"\xff\x3f" * ((at[1] - at[0]) // 2) + sound[at[1] :]
    for read in (decode, read_size):
        with pytest.raises(BadImage, match=r"is more than the limit|its header is damaged"):
            read(damaged)


def test_jpeg_pixels_agree_with_pillow() -> None:
    encoded = _encode("RGB", "JPEG")
    reference = np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB")).astype(int)
    assert np.abs(decode(encoded).astype(int) - reference).max() <= 2


@pytest.mark.parametrize("encoded", [b"", b"hello", b"\xff\xd8\xff", _encode("RGB", "PNG")[:60]])
def test_other_files_are_bad_images(encoded: bytes) -> None:
    with pytest.raises(BadImage):
        decode(encoded)


def test_a_bomb_is_refused_from_its_header() -> None:
    encoded = bytearray(_encode("RGB", "JPEG"))
    frame = encoded.index(b"\xff\xc0")
    encoded[frame + 5 : frame + 9] = (60_000).to_bytes(2, "big") * 2
    with pytest.raises(BadImage, match="more than the limit"):
        decode(bytes(encoded))


def test_a_header_that_claims_more_than_its_file_can_hold_is_bad() -> None:
    encoded = bytearray(_encode("RGB", "JPEG"))
    frame = encoded.index(b"\xff\xc0")
    encoded[frame + 5 : frame + 9] = (12_000).to_bytes(2, "big") * 2
    with pytest.raises(BadImage, match="cannot be in"):
        decode(bytes(encoded))
    blank = io.BytesIO()
    Image.new("1", (5000, 4000)).save(blank, "PNG")  # a white page is small, and an image all the same
    assert decode(blank.getvalue()).shape == (4000, 5000, 3)


@pytest.mark.parametrize("keep", [0.3, 0.7, 0.99])
def test_a_truncated_jpeg_is_bad_whatever_the_crop(keep: float) -> None:
    encoded = _encode("RGB", "JPEG", (200, 160))
    cut_short = encoded[: int(keep * len(encoded))]
    for _ in range(2):
        with pytest.raises(BadImage):
            _ = lazy_image(cut_short)[0:8, 0:8]
        cut_short += bytes(500)  # a download that was padded


def test_progressive_and_cmyk_images_are_decoded_whole() -> None:
    for encoded in (_encode("RGB", "JPEG", (50, 40), progressive=True), _encode("CMYK", "JPEG", (50, 40))):
        assert np.array_equal(lazy_image(encoded)[3:30, 5:40], decode(encoded)[3:30, 5:40])


def test_a_lazy_bomb_is_refused_before_it_is_sliced() -> None:
    encoded = bytearray(_encode("RGB", "JPEG", (150, 150)))
    frame = encoded.index(b"\xff\xc0")
    encoded[frame + 5 : frame + 9] = (60_000).to_bytes(2, "big") * 2
    with pytest.raises(BadImage, match="more than the limit"):
        lazy_image(bytes(encoded))


def test_a_large_jpeg_is_lazy_and_a_slice_has_the_pixels_of_the_whole() -> None:
    encoded = _encode("RGB", "JPEG", (200, 160))
    assert isinstance(lazy_image(encoded), LazyJpeg)
    assert np.array_equal(lazy_image(encoded)[30:90, 20:150], decode(encoded)[30:90, 20:150])
    assert not isinstance(lazy_image(_encode("RGB", "JPEG")), LazyJpeg)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_the_size_is_read_from_the_header_alone(kind: str) -> None:
    encoded = _encode("RGB", kind, (200, 160))
    assert read_size(encoded) == (200, 160)
    assert read_size(encoded[:1000]) == (200, 160)
    with pytest.raises(BadImage):
        read_size(b"hello")


def test_a_fault_inside_a_jpeg_is_recovered_from_unless_decoding_is_strict() -> None:
    encoded = bytearray(_encode("RGB", "JPEG", (200, 160)))
    encoded[len(encoded) // 2 : len(encoded) // 2 + 2] = b"\xff\xd0"  # a restart marker where none belongs
    assert decode(bytes(encoded)).shape == (160, 200, 3)
    with pytest.raises(BadImage):
        decode_strictly(bytes(encoded))


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB")])
def test_a_thumbnail_is_a_small_jpeg_as_text_and_never_enlarged(channels: int, mode: str) -> None:
    for longest_px, size in ((15, (15, 10)), (90, (30, 20))):
        text = encode_thumbnail(np.full((20, 30, channels), 120, np.uint8), longest_px)
        with Image.open(io.BytesIO(base64.b64decode(text))) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", mode, size)
