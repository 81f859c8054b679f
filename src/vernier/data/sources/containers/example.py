"""The bytes of TFRecord files: records with their checksums, and the Example messages in them.

A record is its length, the masked CRC-32C of the length, an Example message, and the masked CRC-32C of the message.
Not the protobuf library: it copies every image that it parses, and needs generated code; an Example has five kinds of
field, and here an image stays a range of bytes. What the features mean is up to `tfrecord`.
"""

import mmap
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError

Bytes = bytes | mmap.mmap
Feature = list[Any]
"""The values of one feature: whole numbers, floats, or (start, stop) of byte strings."""
_CRC_MASK = 0xA282EAD8


def _crc32c() -> Callable[[bytes], int]:
    try:
        import google_crc32c
    except ImportError:
        raise ConfigError(
            "Reading TFRecord files needs the package google-crc32c: pip install 'vernier[tfrecord]'"
        ) from None
    compute: Callable[[bytes], int] = google_crc32c.value
    return compute


def mask_crc(crc: int) -> int:
    """The form in which TFRecord stores a checksum."""
    return (((crc >> 15) | (crc << 17)) + _CRC_MASK) & 0xFFFFFFFF


def read_records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Position and content of every record. Raises ConfigError if a checksum is wrong or the file is truncated."""
    crc32c, size = _crc32c(), path.stat().st_size
    with path.open("rb") as f:
        while head := f.read(12):
            start = f.tell()
            length, length_crc = struct.unpack("<QI", head) if len(head) == 12 else (0, -1)
            if length_crc != mask_crc(crc32c(head[:8])):
                raise ConfigError(
                    f"{path} is damaged at byte {start - len(head):,}: the checksum of a record's length is wrong."
                )
            if start + length + 4 > size:
                raise ConfigError(
                    f"{path} is truncated: the record at byte {start:,} continues beyond the end of the file."
                )
            content, tail = f.read(length), f.read(4)
            if struct.unpack("<I", tail)[0] != mask_crc(crc32c(content)):
                raise ConfigError(f"{path} is damaged: the checksum of the record at byte {start:,} is wrong.")
            yield start, content


def parse_example(data: bytes) -> dict[str, Feature]:
    """The features of an Example message by name. Raises ValueError."""
    features: dict[str, Feature] = {}
    try:
        for number, _, start, stop in read_fields(data, 0, len(data)):
            for inner, _, entry_start, entry_stop in read_fields(data, start, stop) if number == 1 else ():
                if inner == 1:
                    parts = {n: (a, b) for n, _, a, b in read_fields(data, entry_start, entry_stop)}
                    name = data[slice(*parts[1])].decode()
                    features[name] = _read_values(data, *parts[2]) if 2 in parts else []
    except (IndexError, KeyError, UnicodeDecodeError, struct.error) as error:
        raise ValueError(f"not an Example message: {error!r}") from None
    return features


def _read_varint(data: Bytes, at: int) -> tuple[int, int]:
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
        tag, at = _read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 2:
            length, at = _read_varint(data, at)
            if at + length > end:
                raise ValueError("a field longer than its message")
            yield number, wire_type, at, at + length
            at += length
        elif wire_type == 0:
            value, at = _read_varint(data, at)
            yield number, wire_type, value, value
        elif wire_type in (1, 5):
            width = 8 if wire_type == 1 else 4
            yield number, wire_type, at, at + width
            at += width
        else:
            raise ValueError(f"wire type {wire_type}")


def _read_values(data: bytes, at: int, end: int) -> Feature:
    values: Feature = []
    for kind, _, list_start, list_stop in read_fields(data, at, end):
        for _, wire_type, start, stop in read_fields(data, list_start, list_stop):
            if kind == 1:
                values.append((start, stop))
            elif kind == 2:
                values += struct.unpack_from(f"<{(stop - start) // 4}f", data, start)
            elif wire_type == 0:
                values.append(_to_signed(start))
            else:
                position = start
                while position < stop:
                    value, position = _read_varint(data, position)
                    values.append(_to_signed(value))
    return values


def _to_signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
