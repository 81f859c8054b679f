"""TFRecord files written by hand: the format is small, and the tests need no TensorFlow."""

import io
import struct
from pathlib import Path
from typing import Any

from PIL import Image

from vernier.compat.protobuf import mask_crc


def _varint(value: int) -> bytes:
    out = b""
    value &= (1 << 64) - 1
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _feature(values: list[Any]) -> bytes:
    if isinstance(values[0], bytes):
        return _field(1, b"".join(_field(1, v) for v in values))
    if isinstance(values[0], float):
        return _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)))
    return _field(3, _field(1, b"".join(_varint(v) for v in values)))


def encode_example(**features: list[Any]) -> bytes:
    entries = [
        _field(1, _field(1, k.replace("__", "/").encode()) + _field(2, _feature(v))) for k, v in features.items() if v
    ]
    return _field(1, b"".join(entries))


def encode_record(content: bytes) -> bytes:
    """The bytes of a record in a file."""
    import google_crc32c

    length = struct.pack("<Q", len(content))
    length_crc, content_crc = (struct.pack("<I", mask_crc(google_crc32c.value(part))) for part in (length, content))
    return length + length_crc + content + content_crc


def encode_jpeg(shade: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (40, 20), (shade, shade, shade)).save(out, "JPEG")
    return out.getvalue()


def write_imagenet(path: Path, labels: list[int]) -> None:
    parts = [
        encode_example(
            image__encoded=[encode_jpeg(10 * label)],
            image__class__label=[label],
            image__class__synset=[b"n%08d" % label],
            image__height=[20],
        )
        for label in labels
    ]
    path.write_bytes(b"".join(encode_record(p) for p in parts))
