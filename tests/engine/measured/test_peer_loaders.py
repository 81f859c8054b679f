"""Vernier's loader beside those of others, through the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import Done, load_benchmark
from vernier import recipes
from vernier.config import Augment, Machine, Recipe
from vernier.engine.measured.peer_loaders import loaders_of_folder
from vernier.errors import ConfigError


def test_peers_get_as_many_workers_and_one_worker_is_measured_beside() -> None:
    specs, pairs = loaders_of_folder("photos", Machine(workers=2), ("pillow",), Recipe())
    assert [(spec.name, spec.workers) for spec in specs] == [("vernier x2", 2), ("pillow x2", 2), ("vernier x1", 1)]
    assert pairs == [("vernier x2", "pillow x2"), ("vernier x2", "vernier x1")]


def test_peers_are_not_compared_on_other_work() -> None:
    padded = Recipe(name="mine", augment=Augment(crop="pad"))
    assert len(loaders_of_folder("photos", Machine(workers=1), (), padded)[0]) == 1
    with pytest.raises(ConfigError, match=r"the recipe mine has augment.crop = pad") as error:
        loaders_of_folder("photos", Machine(workers=1), ("pillow",), padded)
    assert error.value.given["against"] == ["pillow"]


@pytest.mark.slow
def test_bench_data_beside_pillow(vernier_here: Callable[..., Done], shapes: Path) -> None:
    few = "--against pillow --rounds 2 --images 64 --image-px 24 --json"
    done = vernier_here("bench", "data", "--data", str(shapes), *few.split())
    assert done.code == 0, done.err
    report = done.json()
    assert [c["name"] for c in report["contenders"]] == ["vernier x2", "pillow x2", "vernier x1"]
    assert all(c["images_per_s"] > 0 and c["rss_mib"] > 0 for c in report["contenders"])
    assert report["ratios"][0]["rounds"] == 2
    assert all(c["cpu_us_per_image"] > 0 for c in report["contenders"])
    assert report["contenders"][0]["grew_mib"] < 64


def test_a_folder_that_is_not_there_is_one_message(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    done = vernier_here("bench", "data", "--data", str(tmp_path / "none"), "--rounds", "1")
    assert done.code == 2
    assert "does not exist" in done.err


def test_the_box_loader_of_the_benchmark_gives_images_and_boxes_inside_them(shapes: Path) -> None:
    benchmark = load_benchmark("box_loader")
    specs, pairs = benchmark.plan(str(shapes), 1, recipes.get("mlperf-ssd"))
    assert pairs == [("vernier with jitter", "pillow with jitter"), ("vernier without", "pillow without")]
    peer = benchmark.PillowBoxes(specs[1])
    images, boxes, labels = benchmark.collate([peer[index] for index in range(24)])
    assert (images.dtype, images.shape) == (torch.uint8, (24, 3, 300, 300))
    for ltrb, classes in zip(boxes, labels, strict=True):
        assert len(ltrb) == len(classes) > 0
        assert (ltrb[:, 2:] > ltrb[:, :2]).all()
        assert ((ltrb >= 0) & (ltrb <= 1)).all()
        assert classes.min() >= 1
