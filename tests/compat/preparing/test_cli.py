"""`vernier data` as it is typed: what its actions print, and what they refuse."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.refusals import config_error_of, names_given, refusal_of, what_works

Vernier = Callable[..., Done]


@pytest.fixture
def small(vernier_here: Vernier, tmp_path: Path) -> Path:
    """A set of 20 training and 10 validation images."""
    out = tmp_path / "small"
    done = vernier_here("data", "make", "-o", str(out), "--train", "20", "--val", "10", "--size-px", "32", "--json")
    assert (done.code, done.json()) == (0, {"path": str(out)})
    return out


def test_make_prints_where_the_set_is_and_finds_it_again(vernier_here: Vernier, small: Path) -> None:
    again = vernier_here(
        "data", "make", "shapes", "--out", str(small), "--train", "20", "--val", "10", "--size-px", "32"
    )
    assert (again.code, again.out) == (0, f"{small}\n")
    assert len(list((small / "train").rglob("*.jpg"))) == 20


def test_inspect_counts_images_and_draws_a_sheet(vernier_here: Vernier, small: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    done = vernier_here("data", "inspect", str(small), "--sheet", str(sheet), "--json")
    assert done.code == 0, done.err
    document = done.json()
    assert {name: split["images"] for name, split in document["splits"].items()} == {"train": 20, "val": 10}
    assert document["sheet"] == str(sheet)
    assert sheet.read_bytes().startswith(b"\x89PNG")
    shown = vernier_here("data", "inspect", str(small)).out.splitlines()
    assert shown[0] == "train"
    assert [line.split() for line in shown if line.startswith("  images  ")] == [["images", "20"], ["images", "10"]]


def test_verify_ends_with_1_if_an_image_is_bad_or_in_two_splits(
    vernier_here: Vernier, small: Path, tmp_path: Path
) -> None:
    sound = vernier_here("data", "verify", str(small), "--workers", "1", "--json")
    assert (sound.code, sound.json()["sound"]) == (0, True)
    broken = tmp_path / "broken"
    shutil.copytree(small, broken)
    one, other = sorted((broken / "val").rglob("*.jpg"))[:2]
    shutil.copy(next((broken / "train").rglob("*.jpg")), one)
    other.write_bytes(b"no image")
    done = vernier_here("data", "verify", str(broken), "--json")
    assert done.code == 1
    document = done.json()
    assert (document["sound"], len(document["bad"]), len(document["duplicates"])) == (False, 1, 1)
    assert vernier_here("data", "verify", str(broken)).code == 1


@pytest.mark.parametrize("form", ["shards", "raw", "tfrecord"])
def test_prepare_writes_every_form_and_verify_reads_it(
    vernier_here: Vernier, small: Path, tmp_path: Path, form: str
) -> None:
    if form == "tfrecord":
        pytest.importorskip("tensorflow", reason="TFRecords are read by TensorFlow")
    out = tmp_path / form
    done = vernier_here("data", "prepare", "folder", str(small), str(out), "--format", form, "--quiet", "--json")
    assert (done.code, done.err) == (0, "")
    assert [(split["split"], split["samples"]) for split in done.json()] == [("train", 20), ("val", 10)]
    assert vernier_here("data", "verify", str(out), "--json").json()["images"] == {"train": 20, "val": 10}


def test_prepare_prints_a_line_per_split(vernier_here: Vernier, small: Path, tmp_path: Path) -> None:
    words = ("--format", "tfrecord", "--files", "2", "1")
    done = vernier_here("data", "prepare", "folder", str(small), str(tmp_path / "records"), *words)
    assert done.code == 0, done.err
    train, val = done.out.splitlines()
    assert train.startswith("train  20 images")
    assert "2 files" in train
    assert "1 file" in val
    assert len(list((tmp_path / "records").rglob("train-*"))) == 2


def test_a_folder_without_splits_is_divided(vernier_here: Vernier, small: Path) -> None:
    done = vernier_here("data", "inspect", str(small / "train"), "--val-split", "50%", "--json")
    assert done.code == 0, done.err
    assert {name: split["images"] for name, split in done.json()["splits"].items()} == {"train": 10, "val": 10}


@pytest.mark.parametrize(
    ("words", "given", "works"),
    [
        ("prepare folder only", "", "data.prepare"),
        ("prepare folder shapes out --format raw --short-side-px 0", "short_side_px", ""),
        ("prepare folder shapes out --format shards --shard-mb 0", "shard_mb", ""),
        ("prepare folder shapes out --format raw --workers -1", "workers", ""),
        ("prepare folder {folder} out --files 2 1", "files format", "format=tfrecord"),
        ("prepare folder shapes out --files 2 0 --format tfrecord", "files", ""),
        ("prepare coco {folder} out --format raw", "format", "format=folders"),
        ("prepare coco {file} out --format tfrecord", "format", "data.prepare data.prepare"),
        ("prepare zip a b", "kind", ""),
        ("make --train 0", "train", ""),
        ("make --size-px 8", "size_px", ""),
        ("make --seed -1", "seed", ""),
        ("make cifar10", "name", ""),
        ("verify shapes --val-share 3", "val_split", ""),
        ("verify shapes --val-split 0%", "val_split", ""),
        ("verify {folder} --shard-cache-gb 3", "shard_cache_gb", ""),
        ("verify https://example.org/x --shard-cache-gb -1", "shard_cache_gb", ""),
        ("get imagenet", "name", ""),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_option(words: str, given: str, works: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = config_error_of("data", *(word.format(folder=tmp_path, file=tmp_path / "file") for word in words.split()))
    assert (names_given(error), what_works(error)) == (given, works)


def test_numbers_of_files_are_named_as_they_were_typed(vernier_here: Vernier) -> None:
    assert "--files 2 1 " in vernier_here("data", "prepare", "folder", "a", "b", "--files", "2", "1").err


@pytest.mark.parametrize(
    "words",
    [
        "prepare folder /no/such out",
        "prepare imagenet /no/such out",
        "prepare folder {folder} {folder}",
        "verify /no/such",
        "inspect /no/such",
        "get cifar10 --mirror example",
    ],
)
def test_what_is_not_there_is_one_message(vernier_here: Vernier, words: str, tmp_path: Path) -> None:
    done = vernier_here("data", *words.format(folder=tmp_path).split())
    assert (done.code, done.out, done.err.startswith("vernier: ")) == (2, "", True)
    assert "Traceback" not in done.err


def test_a_download_that_fails_is_exit_code_1_and_leaves_nothing(tmp_path: Path) -> None:
    error = refusal_of("data", "get", "cifar10", "--out", str(tmp_path / "c"), "--mirror", "http://127.0.0.1:9/")
    assert type(error).__name__ == "RunFailed"
    assert not list((tmp_path / "c").rglob("*.bin"))
