"""The bytes of TensorFlow's files: numbers, fields and checksums."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vernier.compat.protobuf import (
    crc32c,
    length_delimited,
    mask_crc,
    packed_floats,
    read_fields,
    read_varint,
    to_signed,
    varint,
)


def test_the_checksum_is_castagnolis_masked() -> None:
    pytest.importorskip("google_crc32c", reason="the extra 'tfrecord' is not installed")
    assert crc32c()(b"123456789") == 0xE3069283  # RFC 3720's check value
    assert mask_crc(0) == 0xA282EAD8


@given(st.integers(-(2**63), 2**63 - 1))
@settings(deadline=None)
def test_numbers_are_read_as_they_were_written(number: int) -> None:
    content = varint(number)
    value, end = read_varint(content + b"more", 0)
    assert (to_signed(value), end) == (number, len(content))


def test_fields_are_read_as_they_were_written() -> None:
    message = length_delimited(1, b"name") + varint(2 << 3) + varint(300) + length_delimited(7, packed_floats([1.0]))
    fields = [
        (number, message[a:b] if kind == 2 else a) for number, kind, a, b in read_fields(message, 0, len(message))
    ]
    assert fields == [(1, b"name"), (2, 300), (7, b"\x00\x00\x80?")]
    with pytest.raises(ValueError, match="longer than its message"):
        list(read_fields(message[:4], 0, 4))
    with pytest.raises(ValueError, match="longer than 64 bits"):
        read_varint(b"\xff" * 12, 0)
