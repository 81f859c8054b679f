"""Fixtures of the tests of data."""

from pathlib import Path

import pytest

from tests.data.archives import SYNSETS, jpeg_bytes, tar_bytes


@pytest.fixture
def ilsvrc(tmp_path: Path) -> list[str]:
    """The two tars in miniature, with the ground truth: arguments of `prepare imagenet`, without OUT."""
    inner = [
        (f"{s}.tar", tar_bytes([(f"{s}_{i}.JPEG", jpeg_bytes(20 * i)) for i in range(3)])) for s in reversed(SYNSETS)
    ]
    (tmp_path / "ILSVRC2012_img_train.tar").write_bytes(tar_bytes(inner))
    val = [(f"ILSVRC2012_val_{i:08d}.JPEG", jpeg_bytes(i)) for i in (1, 2)]
    (tmp_path / "ILSVRC2012_img_val.tar").write_bytes(tar_bytes(val))
    (tmp_path / "truth.txt").write_text(f"{SYNSETS[1]}\n{SYNSETS[0]}\n")
    tars = [str(tmp_path / f"ILSVRC2012_img_{s}.tar") for s in ("train", "val")]
    return [*tars, "--val-labels", str(tmp_path / "truth.txt"), "--expect", "2", "6", "2"]
