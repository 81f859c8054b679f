"""The bytes of TensorFlow's files: protocol buffer fields, and the masked CRC-32C that its files store.

Not the protobuf library: it copies every image that it parses, and needs generated code. What the fields mean is up to
`data.sources.containers` (TFRecord) and `compat.tensorflow`.
"""

import mmap
import struct
from collections.abc import Callable, Iterable, Iterator

from vernier.errors import ConfigError

Bytes = bytes | mmap.mmap
_CRC_MASK = 0xA282EAD8


def crc32c() -> Callable[[bytes], int]:
    """The checksum function. Raises ConfigError where its package is not installed."""
    try:
        import google_crc32c
    except ImportError:
        raise ConfigError(
            "TensorFlow's files need the package google-crc32c: pip install 'vernier[tfrecord]'"
        ) from None
    compute: Callable[[bytes], int] = google_crc32c.value
    return compute


def mask_crc(crc: int) -> int:
    """The form in which TensorFlow's files store a checksum."""
    return (((crc >> 15) | (crc << 17)) + _CRC_MASK) & 0xFFFFFFFF


# ------------------------------------------------------------------------------------------------------------- reading


def read_varint(data: Bytes, at: int) -> tuple[int, int]:
    """A number and where the next byte is. Raises ValueError or IndexError."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number longer than 64 bits")


def read_fields(data: Bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Field number, wire type, and where its content begins and ends (for numbers: the value, twice)."""
    while at < end:
        tag, at = read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 2:
            length, at = read_varint(data, at)
            if at + length > end:
                raise ValueError("a field longer than its message")
            yield number, wire_type, at, at + length
            at += length
        elif wire_type == 0:
            value, at = read_varint(data, at)
            yield number, wire_type, value, value
        elif wire_type in (1, 5):
            width = 8 if wire_type == 1 else 4
            yield number, wire_type, at, at + width
            at += width
        else:
            raise ValueError(f"wire type {wire_type}")


def to_signed(value: int) -> int:
    """A 64-bit number as signed."""
    return value - (1 << 64) if value >= 1 << 63 else value


# ------------------------------------------------------------------------------------------------------------- writing


def varint(value: int) -> bytes:
    """A number, seven bits per byte."""
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def length_delimited(number: int, content: bytes) -> bytes:
    """A field whose content is a message, a string or packed numbers."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def packed_floats(values: Iterable[float]) -> bytes:
    """The content of a packed field of 32-bit floats."""
    numbers = list(values)
    return struct.pack(f"<{len(numbers)}f", *numbers)
