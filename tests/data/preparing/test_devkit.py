"""ImageNet's devkit. scipy writes the MATLAB files here: it is the judge of the reader."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import Done
from tests.data.preparing.test_prepare import SYNSETS, ilsvrc  # noqa: F401 (a fixture)
from vernier.data.preparing.devkit import META, TRUTH, structures, validation_synsets
from vernier.data.sources import open_split
from vernier.errors import ConfigError

io_matlab: Any = pytest.importorskip("scipy.io")


def _meta(wnids: list[str], *, compressed: bool = True) -> bytes:
    """What the devkit has: numbers from 1 in an order of their own, texts, and fields that are none of our business."""
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("children", "O"), ("num_train_images", "O")]
    rows = np.zeros((len(wnids), 1), dtype=kind)
    for i, wnid in enumerate(wnids):
        rows[i, 0] = (np.float64(i + 1), wnid, "Grévy's zebra, imperial zebra", np.arange(i), np.uint16(1300))
    out = io.BytesIO()
    io_matlab.savemat(out, {"unrelated": np.eye(3), "synsets": rows}, do_compression=compressed)
    return out.getvalue()


def _devkit(path: Path, meta: bytes, truth: str) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in (("readme.txt", b"hello"), (f"data/{TRUTH}", truth.encode()), (f"data/{META}", meta)):
            info = tarfile.TarInfo(f"ILSVRC2012_devkit_t12/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("compressed", [True, False])
def test_structures_are_what_scipy_reads(compressed: bool) -> None:
    content = _meta([f"n{i:08d}" for i in range(1, 40)], compressed=compressed)
    theirs = io_matlab.loadmat(io.BytesIO(content), squeeze_me=True)["synsets"]
    ours = list(structures(content, "synsets"))
    assert len(ours) == len(theirs) == 39
    for a, b in zip(ours, theirs, strict=True):
        assert (a["ILSVRC2012_ID"], a["WNID"], a["words"]) == (b["ILSVRC2012_ID"], b["WNID"], b["words"])
        assert a["num_train_images"] == b["num_train_images"] == 1300


@pytest.mark.parametrize("given", ["tar among the tars", "tar as labels", "folder", "numbers"])
def test_imagenet_is_prepared_with_the_devkits_numbers(
    vernier_here: Callable[..., Done],
    ilsvrc: list[str],  # noqa: F811
    tmp_path: Path,
    given: str,
) -> None:
    kit = _devkit(tmp_path / "ILSVRC2012_devkit_t12.tar.gz", _meta(list(reversed(SYNSETS))), "1\n2\n")
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


def test_what_is_no_devkit_is_refused(tmp_path: Path) -> None:
    (tmp_path / TRUTH).write_text("1\n2\n")
    with pytest.raises(ConfigError, match="not beside it"):
        validation_synsets(tmp_path / TRUTH)
    (tmp_path / META).write_bytes(_meta(["n00000001"]))
    with pytest.raises(ConfigError, match="2 is no number"):
        validation_synsets(tmp_path / TRUTH)
    for damaged in (b"", b"x" * 300, _meta(["n00000001"])[:-20], _meta(["n00000001"], compressed=False)[:-40]):
        (tmp_path / META).write_bytes(damaged)
        with pytest.raises(ConfigError, match="MATLAB 5"):
            validation_synsets(tmp_path)
    (tmp_path / "devkit.tar.gz").write_bytes(b"not a tar")
    with pytest.raises(ConfigError, match="readable tar"):
        validation_synsets(tmp_path / "devkit.tar.gz")
    with pytest.raises(ConfigError, match="no ImageNet devkit"):
        validation_synsets(_empty(tmp_path / "empty"))


def _empty(folder: Path) -> Path:
    folder.mkdir()
    return folder
