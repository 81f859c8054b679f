"""The bytes of TFRecord files: records with their checksums, and the Example messages in them.

A record is its length, the masked CRC-32C of the length, an Example message, and the masked CRC-32C of the message.
An image stays a range of bytes. What the features mean is up to `tfrecord`.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError
from vernier.protobuf import crc32c, mask_crc, read_fields, read_varint, to_signed

Feature = list[Any]
"""The values of one feature: whole numbers, floats, or (start, stop) of byte strings."""


def read_records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Position and content of every record. Raises ConfigError if a checksum is wrong or the file is truncated."""
    checksum, size = crc32c(), path.stat().st_size
    with path.open("rb") as f:
        while head := f.read(12):
            start = f.tell()
            length, length_crc = struct.unpack("<QI", head) if len(head) == 12 else (0, -1)
            if length_crc != mask_crc(checksum(head[:8])):
                raise ConfigError(
                    f"{path} is damaged at byte {start - len(head):,}: the checksum of a record's length is wrong."
                )
            if start + length + 4 > size:
                raise ConfigError(
                    f"{path} is truncated: the record at byte {start:,} continues beyond the end of the file."
                )
            content, tail = f.read(length), f.read(4)
            if struct.unpack("<I", tail)[0] != mask_crc(checksum(content)):
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


def _read_values(data: bytes, at: int, end: int) -> Feature:
    values: Feature = []
    for kind, _, list_start, list_stop in read_fields(data, at, end):
        for _, wire_type, start, stop in read_fields(data, list_start, list_stop):
            if kind == 1:
                values.append((start, stop))
            elif kind == 2:
                values += struct.unpack_from(f"<{(stop - start) // 4}f", data, start)
            elif wire_type == 0:
                values.append(to_signed(start))
            else:
                position = start
                while position < stop:
                    value, position = read_varint(data, position)
                    values.append(to_signed(value))
    return values
