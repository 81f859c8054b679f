"""Fashion-MNIST and CIFAR-10, real and damaged."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from vernier.data.sources import open_split
from vernier.data.sources.arrays import _read_idx
from vernier.errors import ConfigError


def test_damaged_idx_files_are_refused(tmp_path: Path) -> None:
    short = tmp_path / "a-images-idx3-ubyte"
    short.write_bytes(b"\0\0\x08\x03" + (2).to_bytes(4, "big") * 3 + b"1234")
    with pytest.raises(ConfigError, match="says 8 bytes, but it has 4"):
        _read_idx(short)
    short.write_bytes(b"hello")
    with pytest.raises(ConfigError, match="not an IDX file"):
        _read_idx(short)
    torn = tmp_path / "b-images-idx3-ubyte.gz"
    torn.write_bytes(gzip.compress(b"x" * 1000)[:20])
    with pytest.raises(ConfigError, match="Cannot read"):
        _read_idx(torn)

    content = bytearray(gzip.compress(b"x" * 1000))
    content[12] ^= 0xFF
    torn.write_bytes(content)
    with pytest.raises(ConfigError, match="Cannot read"):
        _read_idx(torn)
    short.write_bytes(b"\0\0\x08\xff" + bytes(40))
    with pytest.raises(ConfigError, match="not an IDX file"):
        _read_idx(short)


def _idx(shape: tuple[int, ...], value: int) -> bytes:
    sizes = b"".join(side.to_bytes(4, "big") for side in shape)
    return b"\0\0\x08" + bytes([len(shape)]) + sizes + bytes([value]) * int(np.prod(shape))


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (_idx((2, 4, 4), 0), _idx((3,), 0), "are not one set"),
        (_idx((2, 4), 0), _idx((2,), 0), "are not one set"),
        (_idx((2, 4, 4), 0), _idx((2,), 10), "a label is 10"),
    ],
)
def test_images_and_labels_that_do_not_fit_are_refused(
    tmp_path: Path, images: bytes, labels: bytes, message: str
) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(images)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels)
    with pytest.raises(ConfigError, match=message):
        open_split(str(tmp_path), "train")


def test_cifar10_binary_layout(tmp_path: Path) -> None:
    record = bytes([7]) + bytes(range(256)) * 12
    (tmp_path / "test_batch.bin").write_bytes(record * 2)
    source = open_split(str(tmp_path), "val")
    assert len(source) == 2
    assert source.classes[int(source.labels[0])] == "horse"
    assert source.images[0, 0, :3].tolist() == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]  # type: ignore[union-attr]
    (tmp_path / "test_batch.bin").write_bytes(bytes([10]) + record[1:])
    with pytest.raises(ConfigError, match="a label is 10"):
        open_split(str(tmp_path), "val")
    (tmp_path / "test_batch.bin").write_bytes(record[:-1])
    with pytest.raises(ConfigError, match="3,073-byte"):
        open_split(str(tmp_path), "val")


def test_real_fashion_mnist(real_data: Callable[[str], Path]) -> None:
    root = real_data("fashion-mnist")
    train, val = open_split(str(root), "train"), open_split(str(root), "val")
    assert (len(train), len(val), train.channels) == (60_000, 10_000, 1)
    assert np.bincount(val.labels).tolist() == [1000] * 10


def test_real_cifar10_test_batch(real_data: Callable[[str], Path]) -> None:
    source = open_split(str(real_data("cifar10")), "val")
    assert (len(source), source.channels) == (10_000, 3)
    assert np.bincount(source.labels).tolist() == [1000] * 10
