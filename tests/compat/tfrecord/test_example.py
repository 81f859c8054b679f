"""The bytes of TFRecord files: checksums, truncation and Example messages."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("google_crc32c", reason="the extra 'tfrecord' is not installed")

from tests.compat.tfrecord.examples import encode_example, write_imagenet
from vernier.compat.tfrecord.example import parse_example, read_records
from vernier.data.sources import (
    open_split,
)
from vernier.errors import ConfigError


@pytest.mark.parametrize("at", [2, 9, 40, -2])
def test_every_flipped_bit_is_noticed(tmp_path: Path, at: int) -> None:
    path = tmp_path / "train-00000-of-00001"
    write_imagenet(path, [1])
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"damaged|truncated"):
        list(read_records(path))
    with pytest.raises(ConfigError):
        open_split(str(tmp_path), "train")


def test_a_truncated_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "train-00000-of-00001"
    write_imagenet(path, [1, 2])
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ConfigError, match="truncated"):
        open_split(str(tmp_path), "train")


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_are_parsed_or_refused(noise: bytes) -> None:
    try:
        parse_example(noise)
    except ValueError:
        return


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.binary(min_size=1, max_size=20))
@settings(deadline=None)
def test_numbers_and_bytes_survive(numbers: list[int], text: bytes) -> None:
    data = encode_example(numbers=numbers, text=[text])
    parsed = parse_example(data)
    assert parsed["numbers"] == numbers
    assert data[slice(*parsed["text"][0])] == text
    assert np.asarray(parse_example(encode_example(x=[0.5, 2.0]))["x"]).tolist() == [0.5, 2.0]
