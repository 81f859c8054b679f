"""The files of the built-in set: always the same, complete or not there, never written over something else."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import simplejpeg

from vernier.data.shapes import CLASSES, ShapesSpec, make_cached_shapes, make_shapes, render
from vernier.data.shapes.files import JPEG_QUALITY
from vernier.data.sources import FolderSource
from vernier.errors import ConfigError

SMALL = ShapesSpec(train=600, val=40, size_px=32, seed=5)  # more than one chunk, so that two processes have work
DETECT = ShapesSpec(kind="detect", train=60, val=20, size_px=96, seed=5)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shapes(tmp_path_factory.mktemp("shapes") / "small", SMALL, workers=2)


@pytest.fixture(scope="module")
def detect(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shapes(tmp_path_factory.mktemp("shapes") / "detect", DETECT)


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def instances(root: Path, split: str) -> Any:
    return json.loads((root / "annotations" / f"instances_{split}.json").read_text())


def partials(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if ".partial-" in p.name]


def test_files_are_the_same_for_one_process_and_two(small: Path, tmp_path: Path) -> None:
    assert contents(make_shapes(tmp_path / "again", SMALL, workers=1)) == contents(small)


def test_an_image_depends_on_its_index_and_not_on_the_size_of_the_set(small: Path) -> None:
    drawn = render(ShapesSpec(train=20, val=20, size_px=32, seed=5), "train", 13)
    on_disk = (small / "train" / SMALL.file_name(13)).read_bytes()
    assert on_disk == simplejpeg.encode_jpeg(drawn.image, JPEG_QUALITY, "RGB", "420", fastdct=False)


def test_seeds_and_splits_have_nothing_in_common(small: Path, tmp_path: Path) -> None:
    other = make_shapes(tmp_path / "other", ShapesSpec(train=40, val=40, size_px=32, seed=6))
    images = [p.read_bytes() for root in (small, other) for p in root.rglob("*.jpg")]
    assert len(set(images)) == len(images) == 640 + 80


def test_classify_is_a_balanced_image_folder(small: Path) -> None:
    for split, per_class in (("train", 60), ("val", 4)):
        source = FolderSource(small / split)
        assert source.classes == CLASSES
        assert np.bincount(source.labels).tolist() == [per_class] * 10
    assert (small / "train" / "disc" / "disc_00001.jpg").is_file()
    assert all(simplejpeg.decode_jpeg(p.read_bytes()).shape == (32, 32, 3) for p in (small / "val").rglob("*.jpg"))


@pytest.mark.parametrize(("name", "spec"), [("small", SMALL), ("detect", DETECT)])
@pytest.mark.parametrize("split", ["train", "val"])
def test_boxes_are_coco_instances(name: str, spec: ShapesSpec, split: str, request: pytest.FixtureRequest) -> None:
    root = request.getfixturevalue(name)
    coco = instances(root, split)
    assert [c["name"] for c in coco["categories"]] == list(CLASSES)
    assert [c["id"] for c in coco["categories"]] == list(range(1, 11))
    assert len(coco["images"]) == spec.images(split)
    assert all((root / split / image["file_name"]).is_file() for image in coco["images"])
    assert {(image["width"], image["height"]) for image in coco["images"]} == {(spec.size_px, spec.size_px)}
    assert len({a["id"] for a in coco["annotations"]}) == len(coco["annotations"])
    assert {a["image_id"] for a in coco["annotations"]} == {image["id"] for image in coco["images"]}
    for a in coco["annotations"]:
        x, y, width, height = a["bbox"]
        assert 0 <= x < x + width <= spec.size_px
        assert 0 <= y < y + height <= spec.size_px
        assert 0 < a["area"] <= width * height
        assert a["iscrowd"] == 0


def test_classify_boxes_have_the_class_of_their_folder(small: Path) -> None:
    coco = instances(small, "train")
    names = {image["id"]: image["file_name"].split("/")[0] for image in coco["images"]}
    assert [CLASSES[a["category_id"] - 1] for a in coco["annotations"]] == list(names.values())


def test_detect_has_one_to_five_objects_of_all_classes(detect: Path) -> None:
    coco = instances(detect, "train")
    assert set(Counter(a["image_id"] for a in coco["annotations"]).values()) == {1, 2, 3, 4, 5}
    assert {a["category_id"] for a in coco["annotations"]} == set(range(1, 11))


def test_a_set_that_is_there_is_not_made_again(small: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in small.rglob("*")}
    assert make_shapes(small, SMALL, progress=lambda done, total: pytest.fail("drew something")) == small
    assert {p: p.stat().st_mtime_ns for p in small.rglob("*")} == before


def test_cached_sets_are_made_in_the_data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path))
    folder = make_cached_shapes(ShapesSpec(train=10, val=10, size_px=16, seed=2))
    assert folder == tmp_path / "data" / "shapes-classify-16px-10+10-seed2"
    assert (folder / "shapes.json").is_file()


def test_progress_counts_every_image(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    spec = ShapesSpec(train=300, val=10, size_px=16)
    make_shapes(tmp_path / "set", spec, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (310, 310)
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})


def test_other_folders_are_left_alone(small: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has another set .* choose another folder"):
        make_shapes(small, ShapesSpec(train=600, val=40, size_px=32, seed=6))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "holiday.jpg").write_bytes(b"x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "shapes.json").write_text("{")
    for name in ("mine", "file", "broken"):
        with pytest.raises(ConfigError, match=name):
            make_shapes(tmp_path / name, SMALL)
    assert sorted(contents(tmp_path)) == ["broken/shapes.json", "file", "mine/holiday.jpg"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    assert FolderSource(make_shapes(tmp_path, ShapesSpec(train=10, val=10, size_px=16)) / "val").classes == CLASSES


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_shapes(tmp_path / "set", SMALL, progress=stop, workers=2)
    assert list(tmp_path.iterdir()) == []


MAKE = """
    import sys
    from pathlib import Path
    from vernier.data.shapes import ShapesSpec, make_shapes

    spec = ShapesSpec(train=int(sys.argv[2]), val=40, size_px=32, seed=5)
    make_shapes(Path(sys.argv[1]), spec, workers=2, progress=lambda done, total: print(done, flush=True))
    print("made")
"""


def start_maker(out: Path, train: int) -> subprocess.Popen[str]:
    """A script without `if __name__ == "__main__"`: a worker that imported it again would make sets for ever."""
    script = out.with_name("maker.py")
    script.write_text(textwrap.dedent(MAKE))
    return subprocess.Popen(
        [sys.executable, str(script), str(out), str(train)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_killed_make_leaves_no_set_and_no_processes_and_the_next_one_works(tmp_path: Path) -> None:
    out = tmp_path / "set"
    maker = start_maker(out, train=20_000)
    assert maker.stdout is not None
    assert int(maker.stdout.readline()) < 20_000
    workers = psutil.Process(maker.pid).children()
    os.kill(maker.pid, signal.SIGKILL)
    maker.communicate()
    assert len(workers) == 2
    assert not out.exists()
    assert len(partials(tmp_path)) == 1
    psutil.wait_procs(workers, timeout=20)
    assert [w for w in workers if w.is_running() and w.status() != psutil.STATUS_ZOMBIE] == []

    make_shapes(out, SMALL)
    assert len(FolderSource(out / "train")) == 600
    assert partials(tmp_path) == []


def test_two_makers_of_one_set_both_succeed(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "set"
    makers = [start_maker(out, train=600) for _ in range(2)]
    results = [maker.communicate(timeout=60) for maker in makers]
    assert [stdout.count("made") for stdout, _ in results] == [1, 1], results
    assert partials(tmp_path) == []
    assert contents(out) == contents(small)


def test_loading_the_module_does_not_load_torch() -> None:
    code = "import sys, vernier.data.shapes.files; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
