"""The devkit of ImageNet, with MATLAB files that scipy wrote."""

import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.data.archives import SYNSETS, meta_mat, write_devkit
from vernier.data.preparing.devkit import META, TRUTH, validation_synsets
from vernier.data.sources import open_split
from vernier.errors import ConfigError


@pytest.mark.parametrize("given", ["tar among the tars", "tar as labels", "folder", "numbers"])
def test_imagenet_is_prepared_with_the_devkits_numbers(
    vernier_here: Callable[..., Done],
    ilsvrc: list[str],
    tmp_path: Path,
    given: str,
) -> None:
    kit = write_devkit(tmp_path / "ILSVRC2012_devkit_t12.tar.gz", meta_mat(list(reversed(SYNSETS))), "1\n2\n")
    with tarfile.open(kit) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = tmp_path / "ILSVRC2012_devkit_t12"
    labels = {"tar as labels": kit, "folder": folder, "numbers": folder / "data" / TRUTH}.get(given)
    extra = ["--val-labels", str(labels)] if labels else []
    tars = [*ilsvrc[:2], *([] if labels else [str(kit)])]
    done = vernier_here("data", "prepare", "imagenet", *tars, str(tmp_path / "out"), *extra, *ilsvrc[4:])
    assert done.code == 0, done.err
    assert open_split(str(tmp_path / "out"), "val").all_labels().tolist() == [0, 1]
    names = sorted(p.relative_to(tmp_path / "out/val").as_posix() for p in (tmp_path / "out/val").rglob("*.JPEG"))
    assert names == [f"{SYNSETS[0]}/ILSVRC2012_val_00000002.JPEG", f"{SYNSETS[1]}/ILSVRC2012_val_00000001.JPEG"]


def test_a_damaged_or_foreign_devkit_is_refused(tmp_path: Path) -> None:
    (tmp_path / TRUTH).write_text("1\n2\n")
    with pytest.raises(ConfigError, match="not beside it"):
        validation_synsets(tmp_path / TRUTH)
    (tmp_path / META).write_bytes(meta_mat(["n00000001"]))
    with pytest.raises(ConfigError, match="2 is not a class number"):
        validation_synsets(tmp_path / TRUTH)
    for damaged in (b"", b"x" * 300, meta_mat(["n00000001"])[:-20], meta_mat(["n00000001"], compressed=False)[:-40]):
        (tmp_path / META).write_bytes(damaged)
        with pytest.raises(ConfigError, match="MATLAB 5"):
            validation_synsets(tmp_path)
    (empty := tmp_path / "empty").mkdir()
    (tmp_path / "devkit.tar.gz").write_bytes(b"not a tar")
    with pytest.raises(ConfigError, match="readable tar"):
        validation_synsets(tmp_path / "devkit.tar.gz")
    with pytest.raises(ConfigError, match="not an ImageNet devkit"):
        validation_synsets(empty)


def test_a_damaged_file_that_ends_scipys_process_is_one_sentence(tmp_path: Path) -> None:
    content = bytearray(meta_mat(["n00000001", "n00000002"], compressed=False))
    content[content.index(b"synsets") + 129] = 255
    (tmp_path / TRUTH).write_text("1\n")
    (tmp_path / META).write_bytes(content)
    with pytest.raises(ConfigError, match=r"meta\.mat is not a MATLAB 5 file with the devkit's synsets \(\S.*\)"):
        validation_synsets(tmp_path)


def test_without_scipy_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / TRUTH).write_text("1\n")
    (tmp_path / META).write_bytes(meta_mat(["n00000001"]))
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ConfigError, match=r"pip install 'vernier\[devkit\]'") as error:
        validation_synsets(tmp_path)
    assert error.value.works == [("val_labels", "FILE")]
