"""Training on real data, in short versions: what takes minutes is in the docs with its command."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done


@pytest.mark.slow
def test_fashion_mnist_learns_in_half_an_epoch(
    real_data: Callable[[str], Path], vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    done = vernier_here(
        "train",
        "fashion-mnist",
        "--data",
        str(real_data("fashion-mnist")),
        "--out",
        str(tmp_path),
        "--epochs",
        "0.5",
        "--set",
        "schedule.warmup_epochs=0.1",
        "--set",
        "ema.decay=0.9",
        "--json",
    )
    assert done.code == 0, done.err
    assert done.json()["result"]["samples"] == 10_000
    assert done.json()["result"]["top1"] > 82
