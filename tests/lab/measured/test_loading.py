"""Loaders that take turns, and ratios of their rounds."""

from pathlib import Path

import pytest
import torch

from tests.conftest import load_benchmark
from vernier import recipes
from vernier.config import Machine, Recipe
from vernier.lab.measured.loading import LoaderRounds, LoaderSpec, Round, loaders_of, native_batches, speed_ratio


def _loader(name: str) -> LoaderRounds:
    return LoaderRounds(LoaderSpec(name=name, batches=native_batches, path=""), 10)


def test_ratios_are_taken_round_by_round() -> None:
    fast, slow = _loader("fast"), _loader("slow")
    for loader, seconds in (
        (fast, (1.0, 2.0, 4.0, 1.0, 2.0, 4.0)),
        (slow, (2.0, 4.0, 8.0, 2.0, 4.0, 8.0)),
    ):  # the machine slowed down; the ratio did not
        loader.rounds = [_round(s, cpu_s=5.0) for s in seconds]
    ratio = speed_ratio(fast, slow)
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 2.0, 2.0)
    assert speed_ratio(fast, slow, "processor").median == 1.0
    fast.rounds, slow.rounds = fast.rounds[:5], slow.rounds[:5]
    few = speed_ratio(fast, slow)
    assert (few.median, few.low, few.high) == (2.0, None, None)  # five rounds cannot bound a median with 95 %


def test_time_that_others_took_from_the_loader_can_be_left_out() -> None:
    two, one = _loader("two"), _loader("one")
    two.rounds, one.rounds = [_round(3.0, queued_s=2.0)] * 3, [_round(2.0)] * 3
    assert speed_ratio(two, one).median == pytest.approx(2 / 3)
    assert speed_ratio(two, one, "undisturbed").median == 2.0


def _round(seconds: float, *, cpu_s: float = 1.0, queued_s: float = 0.0) -> Round:
    return Round(seconds=seconds, cpu_s=cpu_s, rss_bytes=1, grew_bytes=1, queued_s=queued_s)


def test_the_compiled_decoder_gets_as_many_workers_and_one_worker_is_measured_too() -> None:
    specs, pairs = loaders_of("photos", Machine(workers=2), Recipe(), compiled=True)
    measured = [(spec.name, spec.workers, spec.machine.backend) for spec in specs]
    assert measured == [("vernier x2", 2, "native"), ("compiled x2", 2, "compiled"), ("vernier x1", 1, "native")]
    assert pairs == [("vernier x2", "compiled x2"), ("vernier x2", "vernier x1")]
    assert len(loaders_of("photos", Machine(workers=1), Recipe(), compiled=False)[0]) == 1


# ----------------------------------------------------------------------------------------------------- of the benchmark


def test_the_loaders_of_others_yield_batches(shapes: Path) -> None:
    peers = load_benchmark("peers")
    spec = LoaderSpec(name="peer", batches=peers.pillow_batches, path=str(shapes), workers=0)
    dataset = peers._PillowFolder(peers._image_paths(spec), spec.recipe)
    image, _ = dataset[0]
    assert (image.dtype, image.shape) == (torch.uint8, (3, 224, 224))


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
