"""The classifier's readers."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from PIL import Image

from tests.kernels.built import needs_library
from vernier.config import Augment, Data
from vernier.data.loading.bad_images import _substitutes
from vernier.data.loading.loader import Loader
from vernier.data.loading.order import TrainOrder
from vernier.data.loading.readers import BoxEvalReader, BoxTrainReader, TrainReader
from vernier.data.loading.targets import BoxTargets
from vernier.data.sources import BoxSource, open_boxes, open_split, views
from vernier.data.sources.views import _CachedSource, cache_in_memory
from vernier.errors import RunFailed


def test_epochs_are_augmented_differently(shapes: Path) -> None:
    source = open_split(str(shapes), "train")
    reader = TrainReader(source, Data(image_px=24), Augment(), seed=5)
    out = np.empty((2, 4, 24, 24, 3), dtype=np.uint8)
    for epoch in (0, 1):
        reader.fill(epoch, np.arange(4), out[epoch])
    assert not np.array_equal(out[0], out[1])


def test_copies_of_a_repeated_sample_look_different(shapes: Path) -> None:
    source = open_split(str(shapes), "train")
    reader = TrainReader(source, Data(image_px=24), Augment(repeats=2), seed=5)
    out = np.empty((2, 24, 24, 3), dtype=np.uint8)
    reader.fill(0, np.array([7, 7 + len(source)]), out)
    assert not np.array_equal(out[0], out[1])


DATA = Data(image_px=64, eval_px=48, max_bad_images="3")
SSD = Augment(crop="ssd", jitter="mlperf")


def _row(image: torch.Tensor, targets: BoxTargets, at: int) -> tuple[Any, ...]:
    valid = targets.valid[at]
    boxes, classes = targets.ltrb[at][valid].tolist(), targets.classes[at][valid].tolist()
    return image[at].numpy().tobytes(), boxes, classes, int(targets.samples[at]), targets.sizes[at].tolist()


def _stream(
    source: BoxSource, workers: int, world: int = 1, rank: int = 0, start: int = 0, *, decoder: str = "native"
) -> list[tuple[Any, ...]]:
    order = TrainOrder(samples=len(source), seed=5, global_batch=12, world=world, rank=rank)
    reader = BoxTrainReader(source, DATA, SSD, 5, decoder=decoder)
    loader = Loader(reader, batch=12 // world, workers=workers, prefetch=2)
    steps = [(e, s) for e in (0, 1) for s in range(4)][start:]
    batches = loader.batches((e, order.indices(e, s, 0)) for e, s in steps)
    out = [_row(b.images, b.targets, i) for b in batches for i in range(len(b.targets))]
    loader.close()
    return out


def test_one_stream_for_any_workers_processes_and_start(
    real_data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_boxes(str(real_data("coco")), "train")
    alone = _stream(source, 1)
    assert _stream(source, 3) == alone
    halves = [_stream(source, 2, world=2, rank=r, start=3) for r in (0, 1)]
    together = [row for step in range(5) for half in halves for row in half[6 * step : 6 * step + 6]]
    assert together == alone[36:]
    monkeypatch.setattr(views, "available_bytes", lambda: 10**9)
    cached, decision = cache_in_memory(source, 0.9)
    assert (decision.cache, isinstance(cached, _CachedSource)) == ("memory", True)
    assert isinstance(cached, BoxSource)
    assert _stream(cached, 2) == alone


@needs_library
def test_the_compiled_decoder_gives_the_same_stream(real_data: Callable[[str], Path]) -> None:
    source = open_boxes(str(real_data("coco")), "train")
    assert _stream(source, 2, decoder="compiled") == _stream(source, 2)


def test_training_targets_lie_inside_and_crowds_are_not_learned(real_data: Callable[[str], Path]) -> None:
    source = open_boxes(str(real_data("coco")), "train")
    reader = BoxTrainReader(source, DATA, Augment(crop="none", flip=0), 1)
    out = np.empty((len(source), *reader.shape), np.uint8)
    indices = np.arange(len(source))
    targets = reader.targets(indices, [reader.fill(0, indices, out)])
    crowds = [source.boxes(i).crowd for i in range(len(source))]
    assert sum(int(c.sum()) for c in crowds) > 0
    assert targets.valid.sum(1).tolist() == [int((~c).sum()) for c in crowds]
    ltrb = targets.ltrb[targets.valid]
    assert ((ltrb >= 0) & (ltrb <= 1)).all()
    assert (ltrb[:, 2:] > ltrb[:, :2]).all()
    assert 1 <= targets.classes[targets.valid].min() <= targets.classes.max() <= 80
    first, real = source.boxes(0), ~source.boxes(0).crowd
    height, width = targets.sizes[0].tolist()
    assert (height, width) == source.image(0).shape[:2]
    np.testing.assert_allclose(
        ltrb[: int(real.sum())] * torch.tensor([width, height] * 2), first.ltrb[real], atol=0.05, rtol=0
    )
    assert targets.classes[0, : int(real.sum())].tolist() == (first.classes[real] + 1).tolist()


def test_evaluation_gives_whole_images_sizes_and_samples(real_data: Callable[[str], Path]) -> None:
    source = open_boxes(str(real_data("bccd")), "test")
    reader = BoxEvalReader(source, DATA)
    loader = Loader(reader, batch=30, workers=2, prefetch=2)
    parts = [np.arange(a, min(a + 30, 72)) for a in range(0, 72, 30)]
    batches = [(b.images.clone(), b.targets) for b in loader.batches((0, p) for p in parts)]
    loader.close()
    assert torch.cat([t.samples for _, t in batches]).tolist() == list(range(72))
    assert batches[2][0].shape == (12, 3, 48, 48)
    assert {tuple(s) for _, t in batches for s in t.sizes.tolist()} == {(480, 640)}
    pillow = np.asarray(Image.open(source.describe(0)).convert("RGB").resize((48, 48), Image.Resampling.BILINEAR))
    assert np.abs(batches[0][0][0].permute(1, 2, 0).numpy().astype(int) - pillow).max() <= 2


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Twelve images with one box each at x = the image's number; 4 is not an image, 7 is a grey PNG, 8 has alpha."""
    tree: dict[str, Any] = {"images": [], "annotations": [], "categories": [{"id": 5, "name": "thing"}]}
    (tmp_path / "images").mkdir()
    for i in range(12):
        mode, name = {7: ("L", "7.png"), 8: ("RGBA", "8.png")}.get(i, ("RGB", f"{i}.jpg"))
        Image.new(mode, (40, 30)).save(tmp_path / "images" / name)
        tree["images"].append({"id": i, "file_name": name})
        tree["annotations"].append({"id": i, "image_id": i, "category_id": 5, "bbox": [i, 0, 20, 10]})
    (tmp_path / "images/4.jpg").write_bytes(b"nothing")
    for split in ("train", "val"):
        (tmp_path / f"{split}.json").write_text(json.dumps(tree))
    return tmp_path


def test_a_substitute_for_a_bad_image_brings_its_own_boxes(broken: Path) -> None:
    source = open_boxes(str(broken), "train")
    reader = BoxTrainReader(source, DATA, Augment(crop="none", flip=0), 1)
    loader = Loader(reader, batch=12, workers=2, prefetch=1)
    (batch,) = loader.batches([(0, np.arange(12))])
    loader.close()
    other = next(_substitutes(4, 12))
    assert batch.targets.samples.tolist() == [0, 1, 2, 3, other, 5, 6, 7, 8, 9, 10, 11]
    assert (batch.targets.ltrb[:, 0, 0] * 40).round().int().tolist() == batch.targets.samples.tolist()
    assert [Path(b.path).name for b in reader.bad.samples()] == ["4.jpg"]
    with pytest.raises(RunFailed, match=r"4\.jpg"):
        BoxTrainReader(source, Data(max_bad_images="0"), Augment(crop="ssd"), 1).fill(
            0, np.arange(12), np.empty((12, 224, 224, 3), np.uint8)
        )


def test_a_bad_image_in_evaluation_is_black_and_stays(broken: Path) -> None:
    reader = BoxEvalReader(open_boxes(str(broken), "val"), DATA)
    out = np.full((12, 48, 48, 3), 9, np.uint8)
    targets = reader.targets(np.arange(12), [reader.fill(0, np.arange(12), out)])
    assert out[4].max() == 0
    assert targets.samples.tolist() == list(range(12))
    assert targets.valid[:, 0].all()
    assert targets.sizes[0].tolist() == [30, 40]


def test_copies_of_a_repeated_sample_are_cropped_differently(real_data: Callable[[str], Path]) -> None:
    source = open_boxes(str(real_data("coco")), "train")
    reader = BoxTrainReader(source, DATA, Augment(crop="ssd", repeats=4), 1)
    out = np.empty((4, 64, 64, 3), np.uint8)
    indices = 3 + len(source) * np.arange(4)
    targets = reader.targets(indices, [reader.fill(0, indices, out)])
    assert targets.samples.tolist() == [3] * 4
    assert any(not np.array_equal(a, b) for a, b in pairwise(out))


@pytest.mark.parametrize("name", ["synthetic", "static"])
def test_synthetic_batches_cost_a_copy(name: Literal["synthetic", "static"]) -> None:
    source = open_boxes(name, "train")
    loader = Loader(BoxTrainReader(source, DATA, SSD, 1), batch=8, workers=1, prefetch=1)
    first, second = (
        [_row(b.images, b.targets, i)[:3] for i in range(8)]
        for b in loader.batches((0, np.arange(8 * s, 8 * s + 8)) for s in (0, 1))
    )
    loader.close()
    assert (first == second) == (name == "static")
    assert all(0 < len(boxes) <= 15 for _, boxes, _ in first)


def test_images_grow_with_their_epoch(broken: Path) -> None:
    reader = BoxTrainReader(
        open_boxes(str(broken), "train"), DATA, Augment(crop="ssd", start_px=32, ramp_epochs=(0, 1)), 1
    )
    assert (reader.shape_at(0), reader.shape_at(1), reader.shape) == ((32, 32, 3), (64, 64, 3), (64, 64, 3))


def test_an_image_that_was_turned_after_it_was_annotated_is_bad(broken: Path) -> None:
    tree = json.loads((broken / "train.json").read_text())
    tree["images"][2] |= {"width": 30, "height": 40}
    (broken / "train.json").write_text(json.dumps(tree))
    reader = BoxTrainReader(open_boxes(str(broken), "train"), DATA, SSD, 1)
    indices = np.arange(4)
    reader.fill(0, indices, np.empty((4, 64, 64, 3), np.uint8))
    assert indices.tolist() == [0, 1, next(_substitutes(2, 12)), 3]
    assert "its annotation says 30 x 40" in reader.bad.samples()[0].reason
