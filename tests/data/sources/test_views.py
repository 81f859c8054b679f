"""Sources seen with other class numbers, and in grey or in colour."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.sources.small_sets import write_image, write_tar, write_unsplit
from vernier.config import Augment, Data
from vernier.data.loading.readers import TrainReader
from vernier.data.sources import ArraySource, BoxSource, EncodedSource, FolderSource, open_boxes, open_split, views
from vernier.data.sources.synthetic import SyntheticSource
from vernier.data.sources.views import _CachedSource, _decoded_bytes, cache_in_memory, renumber_classes, with_channels
from vernier.tasks.detection.task import _ground_truth


def test_labels_get_the_numbers_of_the_model(tmp_path: Path) -> None:
    for name in ("train/b/1.jpg", "train/d/2.jpg", "train/d/3.jpg"):
        write_image(tmp_path / name)
    source = open_split(str(tmp_path), "train")
    view = renumber_classes(source, ("a", "b", "c", "d"), (1, 3))
    assert view.classes == ("a", "b", "c", "d")
    assert view.all_labels().tolist() == [1, 3, 3]
    assert [view.classes[int(view.labels[i])] for i in range(3)] == ["b", "d", "d"]
    assert np.array_equal(view.image(0), source.image(0))
    assert (view.describe(2), view.name(2)) == (source.describe(2), source.name(2))


def test_labels_that_are_looked_up_in_shards_are_mapped_too(tmp_path: Path) -> None:
    image = tmp_path / "one.png"
    write_image(image)
    samples = [
        (f"{i}.{kind}", content) for i in range(3) for kind, content in (("png", image.read_bytes()), ("cls", b"1"))
    ]
    write_tar(tmp_path / "set/val-0.tar", samples)
    view = renumber_classes(open_split(str(tmp_path / "set"), "val"), ("x", "y", "z"), (2, 0))
    assert view.all_labels().tolist() == [0, 0, 0]


def test_boxes_get_the_numbers_of_the_model_and_keep_the_ids_of_the_annotations(tmp_path: Path) -> None:
    write_unsplit(tmp_path, "coco", 4)
    source = open_boxes(str(tmp_path), "val", whole=True)
    assert (source.classes, source.category_ids) == (("cat", "dog"), (3, 7))
    view = renumber_classes(source, ("ape", "dog", "cat"), (2, 1))
    assert isinstance(view, BoxSource)
    assert view.category_ids == (8, 7, 3)
    assert [view.boxes(i).classes.tolist() for i in range(4)] == [[1], [2], [1], [2]]
    truth = _ground_truth(view)
    assert [a["category_id"] for a in truth["annotations"]] == [7, 3, 7, 3]
    assert truth["categories"] == [{"id": 8, "name": "ape"}, {"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}]
    assert (view.image_id(0), view.size(0)) == (100, (40, 30))


def test_ready_made_images_stay_ready_made() -> None:
    source = SyntheticSource("val")
    view = renumber_classes(source, source.classes, tuple(reversed(range(1000))))
    out = np.empty((2, 8, 8, 3), np.uint8)
    assert view.copy_ready_images(np.array([0, 1]), out) is not None
    assert view.labels[np.array([0, 1])].tolist() == [999, 998]


def test_grey_images_become_colour_and_say_so() -> None:
    pixels = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4, 1)
    grey = ArraySource(pixels, np.array([0, 1]), ("a", "b"), "set")
    colour = with_channels(grey, 3)
    assert colour.channels == 3
    assert np.array_equal(colour.image(1), np.repeat(pixels[1], 3, axis=2))
    assert colour.notes == (
        "the images are grey, the network takes colour: the one channel is used for red, green and blue",
    )
    assert with_channels(grey, 1) is grey


def test_colour_images_become_pillows_grey_and_say_so(tmp_path: Path) -> None:
    write_image(tmp_path / "a/1.png", (200, 10, 90))
    source = with_channels(FolderSource(tmp_path), 1)
    with Image.open(tmp_path / "a/1.png") as image:
        assert np.array_equal(source.image(0)[..., 0], np.asarray(image.convert("L")))
    assert (source.channels, source.image(0).shape, source.lazy_image(0).shape) == (1, (8, 10, 1), (8, 10, 1))
    assert "converted (ITU-R 601 luma)" in source.notes[0]


@pytest.mark.parametrize("channels", [2, 4])
def test_other_numbers_of_channels_are_left_to_the_model(channels: int, tmp_path: Path) -> None:
    write_image(tmp_path / "a/1.png")
    source = FolderSource(tmp_path)
    assert with_channels(source, channels) is source


def test_a_detection_set_in_grey_keeps_its_boxes(tmp_path: Path) -> None:
    write_unsplit(tmp_path, "coco", 2)
    grey = with_channels(open_boxes(str(tmp_path), "val", whole=True), 1)
    assert isinstance(grey, BoxSource)
    assert grey.image(0).shape == (30, 40, 1)
    assert len(grey.boxes(0).classes) == 1


def _source(shapes: Path) -> EncodedSource:
    source = open_split(str(shapes), "train")
    assert isinstance(source, EncodedSource)
    return source


def test_pixels_are_the_same_with_and_without(shapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _source(shapes)
    monkeypatch.setattr(views, "available_bytes", lambda: 100_000_000)
    cached, decision = cache_in_memory(source, 0.25)
    assert isinstance(cached, _CachedSource)
    assert decision.cache == "memory"
    batches = []
    for where in (source, cached, cached):
        out = np.empty((160, 24, 24, 3), np.uint8)
        TrainReader(where, Data(image_px=24), Augment(), 7).fill(1, np.arange(160), out)
        batches.append(out)
    assert np.array_equal(batches[0], batches[1])
    monkeypatch.setattr(type(source), "read", lambda *_: pytest.fail("decoded again"))
    TrainReader(cached, Data(image_px=24), Augment(), 7).fill(1, np.arange(160), out)
    assert np.array_equal(batches[0], out)


def test_what_does_not_fit_is_not_kept(shapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _source(shapes)
    needed = _decoded_bytes(source)
    assert 160 * 32 * 32 * 3 <= needed < 160 * 32 * 32 * 3.5
    for free, share, procs, fits in (
        (4 * needed, 0.25, 1, False),
        (8 * needed, 0.25, 1, True),
        (8 * needed, 0.25, 4, False),
    ):
        monkeypatch.setattr(views, "available_bytes", lambda free=free: free)
        cached, _ = cache_in_memory(source, share, procs)
        assert isinstance(cached, _CachedSource) == fits
    assert cache_in_memory(source, 0.0)[0] is source
    limited = _CachedSource(source, 10 * 32 * 32 * 3)
    for i in range(160):
        limited.image(i)
    assert sum(k is not None for k in limited._cache) == 10


def test_a_share_of_zero_keeps_nothing_however_much_memory_is_free(
    shapes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _source(shapes)
    monkeypatch.setattr(views, "available_bytes", lambda: 10**12)
    monkeypatch.setattr(views, "_decoded_bytes", lambda _: pytest.fail("measured for a cache"))
    same, decision = cache_in_memory(source, 0.0)
    assert same is source
    assert decision.cache == "off"
