"""benchmarks/loader.py: loaders that take turns, ratios of their rounds, and the loaders of others."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import load_benchmark
from vernier import recipes
from vernier.config import Config, Recipe, override
from vernier.errors import RunFailed

LOADER, LOADING = load_benchmark("loader"), load_benchmark("loading")


def _loader(name: str, *seconds: float, images: int = 10) -> Any:
    rounds = [LOADING.LoaderRound(images=images, seconds=s, cpu_s=0.5 * images) for s in seconds]
    return LOADING.LoaderRounds(LOADING.LoaderSpec(name=name, config=Config()), images, rounds)


def test_ratios_are_taken_round_by_round() -> None:
    """The machine slowed down; the ratio did not."""
    fast, slow = _loader("fast", 1.0, 2.0, 4.0, 1.0, 2.0, 4.0), _loader("slow", 2.0, 4.0, 8.0, 2.0, 4.0, 8.0)
    ratio = LOADING.speed_ratio(fast, slow)
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 2.0, 2.0)
    assert LOADING.speed_ratio(fast, slow, "processor").median == 1.0
    fast.rounds, slow.rounds = fast.rounds[:5], slow.rounds[:5]
    few = LOADING.speed_ratio(fast, slow)
    assert (few.median, few.low, few.high) == (2.0, None, None)  # five rounds cannot bound a median with 95 %


def test_rounds_of_other_lengths_are_compared_per_image() -> None:
    assert LOADING.speed_ratio(_loader("long", 20.0, images=200), _loader("short", 2.0)).median == 2.0


@pytest.mark.slow
def test_loaders_take_turns_in_processes_of_their_own(shapes: Path) -> None:
    config = LOADER.loading_config(str(shapes), 1, Recipe())
    specs = [LOADER.LoaderSpec(name="ours", config=override(config, "data.image_px", 32))]
    specs.append(LOADER.LoaderSpec(name="pillow", config=specs[0].config, loader="peers:pillow_batches"))
    loaders = LOADER.measure_loaders(specs, rounds=2, images=40)
    report = LOADER.summarize_loaders(loaders, [("ours", "pillow")])
    assert [(row.name, row.rounds, row.images_per_s > 0) for row in report.contenders] == [
        ("ours", 2, True),
        ("pillow", 2, True),
    ]
    assert {one.images for loader in loaders for one in loader.rounds} == {64}  # whole batches
    assert report.ratios[0].median > 0


@pytest.mark.slow
def test_a_loader_that_cannot_start_is_an_error_with_its_name() -> None:
    spec = LOADER.LoaderSpec(name="mine", config=override(Config(), "data.source", "/nowhere"))
    with pytest.raises(RunFailed, match=r"The loader mine failed: .*nowhere"):
        LOADER.measure_loaders([spec], rounds=1, images=1)


def test_the_loaders_of_others_yield_batches(shapes: Path) -> None:
    peers = load_benchmark("peers")
    config = override(Config(), "data.source", str(shapes))
    dataset = peers._PillowFolder(peers._image_paths(config), config.recipe)
    image, _ = dataset[0]
    assert (image.dtype, image.shape) == (torch.uint8, (3, 224, 224))


def test_the_box_loader_of_the_benchmark_gives_images_and_boxes_inside_them(shapes: Path) -> None:
    benchmark = load_benchmark("box_loader")
    specs, pairs = benchmark.plan(str(shapes), 1, recipes.get("mlperf-ssd"))
    assert pairs == [("vernier with jitter", "pillow with jitter"), ("vernier without", "pillow without")]
    peer = benchmark.PillowBoxes(specs[1].config)
    images, boxes, labels = benchmark.collate([peer[index] for index in range(24)])
    assert (images.dtype, images.shape) == (torch.uint8, (24, 3, 300, 300))
    for ltrb, classes in zip(boxes, labels, strict=True):
        assert len(ltrb) == len(classes) > 0
        assert (ltrb[:, 2:] > ltrb[:, :2]).all()
        assert ((ltrb >= 0) & (ltrb <= 1)).all()
        assert classes.min() >= 1
