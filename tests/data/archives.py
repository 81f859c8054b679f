"""Archives as publishers give them, in miniature, and the command that prepares them."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import Done
from vernier.compat.preparing.imagenet import META, TRUTH

SYNSETS = ("n00000005", "n00000007")


def jpeg_bytes(shade: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (48, 40), (shade, 0, 0)).save(out, "JPEG")
    return out.getvalue()


def tar_bytes(members: list[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def prepare_imagenet(vernier_here: Callable[..., Done], ilsvrc: list[str], out: Path, *more: str) -> Done:
    return vernier_here("data", "prepare", "imagenet", *ilsvrc[:2], str(out), *ilsvrc[2:], *more)


def meta_mat(wnids: list[str], *, compressed: bool = True) -> bytes:
    """meta.mat as the devkit has it: numbers from 1, texts, and fields that nobody here reads. Written by scipy."""
    io_matlab: Any = pytest.importorskip("scipy.io")
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("children", "O"), ("num_train_images", "O")]
    rows = np.zeros((len(wnids), 1), dtype=kind)
    for i, wnid in enumerate(wnids):
        rows[i, 0] = (np.float64(i + 1), wnid, "Grévy's zebra, imperial zebra", np.arange(i), np.uint16(1300))
    out = io.BytesIO()
    io_matlab.savemat(out, {"unrelated": np.eye(3), "synsets": rows}, do_compression=compressed)
    return out.getvalue()


def write_devkit(path: Path, meta: bytes, truth: str) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in (("readme.txt", b"hello"), (f"data/{TRUTH}", truth.encode()), (f"data/{META}", meta)):
            info = tarfile.TarInfo(f"ILSVRC2012_devkit_t12/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def fill_disk_at(patch: pytest.MonkeyPatch, name: str) -> None:
    """A file whose name begins so, made as a temporary one, is /dev/full: it takes nothing."""
    touch = Path.touch

    def touch_or_fill(path: Path, *arguments: Any, **named: Any) -> None:
        if path.name.startswith(name):
            path.symlink_to("/dev/full")
        else:
            touch(path, *arguments, **named)

    patch.setattr(Path, "touch", touch_or_fill)
