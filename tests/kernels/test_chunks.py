"""Chunks of training images in one call: the same pixels, substitutes and reasons as image by image."""

import ctypes
import io
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from tests.data.decoding.small_jpegs import small_jpeg
from vernier.compat.preparing.packing import pack_shards
from vernier.config import Augment, Data
from vernier.data.augment.crop_flip import resize_into
from vernier.data.decoding.decode import Image
from vernier.data.loading.readers import TrainReader
from vernier.data.sources.base import EncodedSource
from vernier.data.sources.containers.shards import open_shards
from vernier.data.sources.folder import FolderSource
from vernier.errors import ConfigError, RunFailed
from vernier.kernels import jpeg
from vernier.kernels.library import NeededBy, load_function

from .built import needs_library

pytestmark = needs_library
CROPS = Augment(crop="random-resized", flip=0.5)


def folder_of(root: Path, images: list[bytes], suffix: str = ".jpg") -> FolderSource:
    (root / "all").mkdir(parents=True)
    for number, content in enumerate(images):
        (root / "all" / f"{number:05d}{suffix}").write_bytes(content)
    return FolderSource(root)


def shards_of(folder: FolderSource, root: Path) -> EncodedSource:
    pack_shards(folder, root, "train", shard_bytes=1 << 22, restarts=True, workers=1)
    shards = open_shards(root, "train")
    assert shards is not None
    return shards


def filled(source: EncodedSource, data: Data, backend: str, epochs: int = 2) -> tuple[Image, list[str], int]:
    """All images of some epochs, what is said of bad ones, and how many were made in one call per chunk."""
    reader, made = TrainReader(source, data, CROPS, 1, backend), 0
    if (fill := reader._fill_stored) is not None:

        def counting(*arguments: object) -> object:
            nonlocal made
            done = fill(*arguments)  # type: ignore[arg-type]
            made += int(done.sum())
            return done

        reader._fill_stored = counting  # type: ignore[assignment]
    out = np.zeros((epochs, len(source), data.image_px, data.image_px, 3), np.uint8)
    for epoch in range(epochs):
        for at in range(0, len(source), 16):
            indices = np.arange(at, min(at + 16, len(source)))
            reader.fill(epoch, indices, out[epoch, at : at + 16])
    return out, [f"{Path(bad.path).name}: {bad.reason}" for bad in reader.bad.samples()], made


def made_alike(source: EncodedSource, data: Data) -> int:
    """How many were made in one call; all pixels and reasons are those of the Python path."""
    (own, own_bad, made), (usual, usual_bad, _) = (filled(source, data, name) for name in ("compiled", "native"))
    assert own_bad == usual_bad
    assert np.array_equal(own, usual)
    return made


@pytest.mark.parametrize(("mode", "size"), [("bilinear", 224), ("bicubic", 96)])
def test_photographs(real_data: Callable[[str], Path], tmp_path: Path, mode: str, size: int) -> None:
    paths = sorted(real_data("coco").rglob("*.jpg"))[::15]
    folder = folder_of(tmp_path / "folder", [path.read_bytes() for path in paths])
    data = Data(image_px=size, interpolation=mode)  # type: ignore[arg-type]
    assert made_alike(folder, data) > 1.9 * len(paths)
    assert made_alike(shards_of(folder, tmp_path / "shards"), data) > 1.9 * len(paths)


@pytest.mark.parametrize("column", ["offset", "row_starts", "within", "scan_at", "frame_at", "rows_at", "mcu"])
def test_a_damaged_table_leads_nowhere_else(tmp_path: Path, column: str) -> None:
    images = [small_jpeg(300 + number, 211, quality=97) for number in range(12)]
    shards = shards_of(folder_of(tmp_path / "folder", images), tmp_path / "shards")
    table = shards.table(0)  # type: ignore[attr-defined]
    shards._tables[0] = table | {column: table[column] * 3 + 7}  # type: ignore[attr-defined]
    data = Data(image_px=64, max_bad_images="100%")
    outcomes = []
    for backend in ("compiled", "native"):
        try:
            outcomes.append(str(filled(shards, data, backend)[:2]))
        except RunFailed as error:  # no image can be read
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_kinds_of_files(tmp_path: Path) -> None:
    images = [small_jpeg(300 + i, 211, quality=97, mode=mode) for i, mode in enumerate(("RGB", "L", "CMYK"))]
    images += [small_jpeg(300, 222, quality=97, progressive=True), small_jpeg(40, 30)]
    images += [small_jpeg(333, 201, quality=97, subsampling=number) for number in (0, 1)]
    for orientation in range(1, 10):
        exif = Pillow.Exif()
        exif[0x0112] = orientation
        out = io.BytesIO()
        Pillow.open(io.BytesIO(small_jpeg(320, 200))).save(out, "JPEG", exif=exif, quality=97)
        images.append(out.getvalue())
    out = io.BytesIO()
    Pillow.open(io.BytesIO(small_jpeg(320, 200))).save(out, "PNG")
    folder = folder_of(tmp_path / "folder", [*images, out.getvalue()])
    # Of 17: not CMYK, progressive, PNG and the eight that EXIF may turn.
    assert made_alike(folder, Data(image_px=64)) == 2 * 6
    made_alike(folder, Data(image_px=64, scaled_decode=True))
    folder.exif = False
    assert made_alike(folder, Data(image_px=64)) == 2 * 14
    made_alike(shards_of(folder, tmp_path / "shards"), Data(image_px=64))


def test_damaged_and_missing_files_are_reported_as_before(tmp_path: Path) -> None:
    draw, images = random.Random(0), list[bytes]()
    for number in range(150):
        content = bytearray(small_jpeg(250 + number, 190, quality=96, subsampling=number % 3))
        for _ in range(number % 4):
            content[draw.randrange(2, len(content) - 2)] = draw.choice([0, 255, draw.randrange(256)])
        images.append(bytes(content[: len(content) // 2] if number % 9 == 0 else content))
    images[7] = b""
    folder = folder_of(tmp_path / "folder", images)
    (tmp_path / "folder" / "all" / "00011.jpg").unlink()
    assert made_alike(folder, Data(image_px=64, max_bad_images="100%")) > 100
    _, bad, _ = filled(folder, Data(image_px=64, max_bad_images="100%"), "compiled")
    assert any("00011.jpg" in each for each in bad)
    assert any("00007.jpg" in each for each in bad)


def test_resizing_is_that_of_pytorch_for_every_size(level: str) -> None:
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    by = NeededBy("machine.backend", "compiled", "native")
    resize = load_function("resize_square", pointer, size, size, pointer, *[size] * 3, returns=None, by=by)
    draw = np.random.default_rng(0)
    for number in range(250):
        height, width, out_px = (int(n) for n in draw.integers(1, (700, 700, 260)))
        image = draw.integers(0, 256, (height, width, 3), np.uint8)
        if number % 3 == 0:  # sums beyond a byte
            image = (image > 127).astype(np.uint8) * 255
        flipped, bicubic = bool(number % 2), bool(number % 5 < 2)
        own, expected = np.zeros((2, out_px, out_px, 3), np.uint8)
        spare = np.concatenate([image.ravel(), np.full(64, 99, np.uint8)])
        resize(spare.ctypes.data, height, width, own.ctypes.data, out_px, bicubic, flipped)
        resize_into(image, expected, "bicubic" if bicubic else "bilinear", flipped=flipped)
        assert np.array_equal(own, expected), (height, width, out_px, bicubic, flipped)


def test_other_pixels_than_pytorchs_are_noticed_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    original = jpeg.TrainTransform.__call__

    def inverted(self: jpeg.TrainTransform, image: Image, row: object, out: Image) -> None:
        original(self, image, row, out)  # type: ignore[arg-type]
        out[...] = 255 - out

    monkeypatch.setattr(jpeg.TrainTransform, "__call__", inverted)
    with pytest.raises(ConfigError) as caught:
        jpeg.CompiledDecoder().check()
    assert caught.value.works == [("machine.backend", "native")]
