"""Choosing a device, and the matrix of what devices can do."""

from typing import Any

import pytest

from vernier.devices import kinds, matrix, resolve, usable
from vernier.errors import ConfigError


def test_the_matrix_covers_every_combination_once() -> None:
    rows = matrix()
    assert len({(r.device, r.precision, r.mode) for r in rows}) == len(rows) == 5 * 4 * 3


def test_auto_takes_an_accelerator_before_the_cpu(mps: Any) -> None:
    assert resolve("auto").name == "mps"
    assert [d.name for d in usable()] == ["mps", "cpu"]


def test_a_device_that_is_not_here_is_named_with_those_that_are() -> None:
    absent = next(name for name, kind in kinds().items() if not kind.available())
    with pytest.raises(ConfigError, match=r"Usable: .*cpu"):
        resolve(absent)
