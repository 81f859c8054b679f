"""Images that cannot be read."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import TINY, Done
from vernier.config import Augment, Data
from vernier.data.decoding.decode import BadImage
from vernier.data.loading.bad_images import BadImages, _substitutes, parse_limit
from vernier.data.loading.loader import Loader
from vernier.data.loading.readers import EvalReader, TrainReader
from vernier.data.sources import open_split
from vernier.errors import ConfigError, RunFailed


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Forty pictures, of which sample 3 is truncated and sample 20 is no picture."""
    for i in range(40):
        path = tmp_path / "train" / "ab"[i // 20] / f"{i:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30, 20), (5 * i, 100, 200)).save(path)
    (tmp_path / "train/a/03.jpg").write_bytes((tmp_path / "train/a/03.jpg").read_bytes()[:-30])
    (tmp_path / "train/b/20.jpg").write_bytes(b"no picture at all")
    (tmp_path / "val").symlink_to(tmp_path / "train")
    return tmp_path


def _batches(root: Path, limit: str, workers: int) -> tuple[list[tuple[list[int], list[int]]], list[str]]:
    source = open_split(str(root), "train")
    reader = TrainReader(source, Data(image_px=8, max_bad_images=limit), Augment(), 1)
    loader = Loader(reader, batch=10, workers=workers, prefetch=1)
    out = [
        (b.targets.tolist(), b.images.flatten().tolist())
        for b in loader.batches((0, np.arange(i, i + 10)) for i in range(0, 40, 10))
    ]
    loader.close()
    return out, [Path(bad.path).name for bad in reader.bad.samples()]


def test_bad_images_are_replaced_the_same_way_by_any_number_of_workers(broken: Path) -> None:
    alone, bad = _batches(broken, "2", 1)
    assert bad == ["03.jpg", "20.jpg"]
    assert _batches(broken, "5%", 4) == (alone, bad)
    labels = np.concatenate([labels for labels, _ in alone])
    replaced = [next(_substitutes(i, 40)) for i in (3, 20)]
    assert labels[[3, 20]].tolist() == [int(r >= 20) for r in replaced]


@pytest.mark.parametrize("limit", ["1", "2.5%", "0.1%"])
def test_too_many_bad_images_stop_the_run_and_name_one(broken: Path, limit: str) -> None:
    with pytest.raises(RunFailed, match=r"(03|20)\.jpg") as error:
        _batches(broken, limit, 1)
    assert ("data.max_bad_images", None) in error.value.works


def test_an_unreadable_validation_image_is_black_and_keeps_its_label(broken: Path) -> None:
    source = open_split(str(broken), "val")
    reader = EvalReader(source, Data(eval_px=8, eval_short_side_px=8, max_bad_images="2"))
    loader = Loader(reader, batch=40, workers=2, prefetch=1)
    (batch,) = loader.batches([(0, np.arange(40))])
    assert batch.targets.labels.tolist() == source.all_labels().tolist()
    assert batch.images.amax(dim=(1, 2, 3)).eq(0).nonzero().flatten().tolist() == [3, 20]
    loader.close()
    assert len(reader.bad.samples()) == len(reader.bad.pop_new()) == 2
    assert reader.bad.pop_new() == []


def test_limits_are_counts_or_shares() -> None:
    assert [parse_limit(t, 1_281_167) for t in ("0.1%", "20", "0", "100 %")] == [1281, 20, 0, 1_281_167]
    for wrong in ("many", "-1", "150%", "0.1", ""):
        with pytest.raises(ConfigError, match=r"0\.1%"):
            parse_limit(wrong, 100)


def test_a_png_named_jpeg_is_read(broken: Path) -> None:
    Image.new("RGB", (30, 20), (1, 2, 3)).save(broken / "train/b/20.jpg", "PNG")
    _, bad = _batches(broken, "1", 1)
    assert bad == ["03.jpg"]


@pytest.mark.slow
def test_two_processes_share_one_limit(vernier: Callable[..., Done], broken: Path, tmp_path: Path) -> None:
    for name in ("train/a/07.jpg", "train/b/33.jpg"):
        (broken / name).write_bytes(b"neither is this")
    whole = [
        "train",
        "--data",
        str(broken),
        *TINY,
        *["--procs", "2", "--global-batch", "8", "--max-steps", "5", "--train-only"],
    ]
    done = vernier(*whole, "--max-bad-images", "4", "--json", "--out", str(tmp_path / "four"))
    assert done.code == 0, done.err
    assert [Path(b["path"]).name for b in done.json()["bad_images"]] == ["03.jpg", "07.jpg", "20.jpg", "33.jpg"]
    (run,) = (tmp_path / "four").iterdir()
    first, second = (
        {
            Path(event["message"].removeprefix("bad image ").partition(": ")[0]).name
            for event in map(json.loads, (run / name).read_text().splitlines())
            if event.get("kind") == "warning" and event["message"].startswith("bad image")
        }
        for name in ("events.jsonl", "events.rank1.jsonl")
    )
    assert first == {"03.jpg", "07.jpg", "20.jpg", "33.jpg"}, "the first process reports those of all"
    assert second < first
    done = vernier(*whole, "--max-bad-images", "3", "--out", str(tmp_path / "three"))
    assert done.code == 1
    assert "4 bad images of 40; the limit is 3" in done.err


def test_bad_images_are_in_the_summary(
    vernier_here: Callable[..., Done], shapes: Path, tiny: list[str], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(shapes, copy)
    victim = min((copy / "train").rglob("*.jpg"))
    victim.write_bytes(b"nothing")
    done = vernier_here("train", *tiny, "--data", str(copy), "--epochs", "1", "--max-bad-images", "1%", "--json")
    assert done.code == 0, done.err
    assert [Path(b["path"]).name for b in done.json()["bad_images"]] == [victim.name]
    assert f"bad image {victim}" in done.err
    assert vernier_here("train", *tiny, "--max-bad-images", "lots").code == 2


def test_a_set_without_any_readable_image_fails(tmp_path: Path) -> None:
    (tmp_path / "train/a").mkdir(parents=True)
    for i in range(5):
        (tmp_path / "train/a" / f"{i}.jpg").write_bytes(b"nothing")
    bad = BadImages(open_split(str(tmp_path), "train"), "100%")

    def fail(sample: int) -> None:
        raise BadImage("no")

    with pytest.raises(RunFailed, match=r"2\.jpg cannot be read, nor can"):
        bad.read_or_substitute(2, fail)
    assert len(bad.samples()) == 5
