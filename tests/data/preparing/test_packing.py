"""What writing shards and raw files have in common."""

import threading
from pathlib import Path

import pytest

from vernier.data.preparing.packing import forget_progress, make_room, map_in_order, pack_order
from vernier.data.sources import open_split
from vernier.errors import ConfigError


def test_results_come_in_order_and_few_are_made_ahead() -> None:
    started: list[int] = []
    lock = threading.Lock()

    def double(number: int) -> int:
        with lock:
            started.append(number)
        return 2 * number

    results = map_in_order(double, range(1000), workers=2)
    assert [next(results) for _ in range(10)] == list(range(0, 20, 2))
    assert len(started) < 100
    assert list(results) == list(range(20, 2000, 2))


def test_training_samples_are_shuffled_once_and_for_all_and_others_are_not(shapes: Path) -> None:
    source = open_split(str(shapes), "train")
    order = pack_order(source, "train")
    assert sorted(order) == list(range(len(source)))
    assert order != sorted(order)
    assert order == pack_order(source, "train")
    assert pack_order(source, "val") == sorted(order)


def test_only_hidden_files_are_forgotten_and_whole_ones_are_not_overwritten(tmp_path: Path) -> None:
    for name in ("train.raw", ".train.raw.progress", ".val.raw.tmp-77", ".train-000001.tar.writing"):
        (tmp_path / name).touch()
    forget_progress(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["train.raw"]
    with pytest.raises(ConfigError, match="exists already"):
        make_room(tmp_path, "train.raw")
