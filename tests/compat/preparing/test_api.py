"""Data sets from Python: made, described, checked, and written in another form."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import vernier as v
from tests.refusals import names_given, what_works


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of 20 training and 10 validation images."""
    return v.data_make(out=tmp_path_factory.mktemp("data") / "small", train=20, val=10, size_px=32)


def test_a_set_without_a_folder_is_made_in_the_cache_once(vernier_home: Path) -> None:
    first = v.data_make("shapes", train=10, val=10, size_px=16, seed=5)
    assert vernier_home in first.parents
    assert v.data_make(train=10, val=10, size_px=16, seed=5) == first
    assert v.data_make(train=10, val=10, size_px=16, seed=6) != first


def test_a_set_for_detectors_has_several_objects_per_image(tmp_path: Path) -> None:
    out = v.data_make(out=tmp_path / "boxes", kind="detect", train=10, val=5)
    facts = v.data_inspect(out).splits["train"]
    assert facts.images == 10
    assert facts.boxes is not None
    assert facts.boxes > 10


def test_a_set_is_described_by_split(small: Path, tmp_path: Path) -> None:
    inspection = v.data_inspect(small, sheet=tmp_path / "sheet.png")
    assert {name: facts.images for name, facts in inspection.splits.items()} == {"train": 20, "val": 10}
    assert inspection.sheet == str(tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").exists()


def test_a_folder_without_splits_is_divided_by_a_fraction(small: Path) -> None:
    half = v.data_inspect(small / "train", val_split=0.5)
    assert {name: facts.images for name, facts in half.splits.items()} == {"train": 10, "val": 10}


def test_a_missing_split_is_a_note(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    v.data_prepare("folder", [small, tmp_path / "set"], format="shards", quiet=True)
    for shard in (tmp_path / "set").glob("val*"):
        shutil.rmtree(shard) if shard.is_dir() else shard.unlink()
    assert set(v.data_inspect(tmp_path / "set", quiet=True).splits) == {"train"}
    assert "note: " in capsys.readouterr().err, "also of a quiet call"


def test_a_bad_image_makes_a_set_unsound(small: Path, tmp_path: Path) -> None:
    assert v.data_verify(small, workers=1).sound
    shutil.copytree(small, tmp_path / "set")
    next((tmp_path / "set" / "val").rglob("*.jpg")).write_bytes(b"no image")
    result = v.data_verify(tmp_path / "set")
    assert (result.sound, len(result.bad), result.images) == (False, 1, {"train": 20, "val": 10})


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ({"format": "shards"}, "*.tar"),
        ({"format": "raw", "short_side_px": 16}, "*.raw*"),
        ({"format": "tfrecord", "files": (2, 1)}, "train-0000?-of-00002"),
    ],
)
def test_a_set_is_written_in_another_form(small: Path, tmp_path: Path, options: dict[str, Any], files: str) -> None:
    written = v.data_prepare("folder", [small, tmp_path / "out"], workers=1, quiet=True, **options)
    assert isinstance(written, tuple)
    assert [(split.split, split.samples) for split in written] == [("train", 20), ("val", 10)]
    assert list((tmp_path / "out").rglob(files)), sorted(p.name for p in (tmp_path / "out").rglob("*"))


@pytest.mark.parametrize(
    ("call", "arguments", "options", "given", "works"),
    [
        (v.data_make, (), {"train": 0}, "train", ""),
        (v.data_make, (), {"size_px": 8}, "size_px", ""),
        (v.data_make, ("cifar10",), {}, "name", ""),
        (v.data_verify, ("shapes",), {"val_split": 3}, "val_split", ""),
        (v.data_verify, ("shapes",), {"shard_cache_gb": 3}, "shard_cache_gb", ""),
        (v.data_verify, ("shapes",), {"workers": 0}, "workers", ""),
        (v.data_inspect, (3,), {}, "data", ""),
        (v.data_prepare, ("folder", ["only"]), {}, "", "data.prepare"),
        (v.data_prepare, ("zip", ["a", "b"]), {}, "kind", ""),
        (v.data_prepare, ("folder", ["a", "b"]), {"files": (2, 1)}, "files format", "format=tfrecord"),
        (v.data_prepare, ("folder", ["a", "b"]), {"files": (2,)}, "files", ""),
        (v.data_get, ("imagenet",), {}, "name", ""),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_argument(
    call: Any, arguments: tuple[Any, ...], options: dict[str, Any], given: str, works: str
) -> None:
    with pytest.raises(v.ConfigError) as refused:
        call(*arguments, **options)
    assert (names_given(refused.value), what_works(refused.value)) == (given, works)


def test_a_download_that_fails_is_no_mistake_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(v.RunFailed):
        v.data_get("cifar10", out=tmp_path / "c", mirror="http://127.0.0.1:9/", quiet=True)
