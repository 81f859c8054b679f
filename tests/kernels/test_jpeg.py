"""The compiled decoder: the same pixels as libjpeg-turbo's and PyTorch's, the same verdict on damaged files, and training
with it."""

import ctypes
import io
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from tests.conftest import Done, only_run
from tests.data.decoding.small_jpegs import crops, small_jpeg
from vernier.compat.preparing.packing import pack_shards
from vernier.config import Augment, Data
from vernier.data.augment.crop_flip import resize_into
from vernier.data.decoding.base import _PluginJpeg
from vernier.data.decoding.decode import BadImage, Image, LazyJpeg, SegmentedJpeg, decode, lazy_image
from vernier.data.decoding.jpeg_slicing import NotSliceable
from vernier.data.loading.readers import TrainReader
from vernier.data.sources.base import EncodedSource
from vernier.data.sources.containers.shards import open_shards
from vernier.data.sources.folder import FolderSource
from vernier.errors import RunFailed
from vernier.kernels import jpeg
from vernier.kernels.jpeg import CompiledDecoder
from vernier.kernels.library import NeededBy, load_function
from vernier.store import RunDir

from .built import AddMarkers, needs_library

pytestmark = [
    pytest.mark.usefixtures("sliced_small_images"),
    needs_library,
]
Window = tuple[slice, slice]
DECODER = CompiledDecoder()


def opened(encoded: bytes) -> LazyJpeg:
    image = lazy_image(encoded)
    assert isinstance(image, LazyJpeg)
    return image


def segmented(add_markers: AddMarkers, encoded: bytes) -> SegmentedJpeg:
    rewritten, segments = add_markers(encoded)
    return SegmentedJpeg(lambda start, stop: rewritten[start:stop], segments)


@given(crops(), st.sampled_from([0, 1, 2]), st.sampled_from(["RGB", "L"]), st.integers(1, 100), st.integers(0, 9))
@settings(max_examples=150)
def test_every_window_has_the_pixels_of_the_whole(
    add_markers: AddMarkers,
    crop: tuple[int, int, int, int, int, int],
    subsampling: int,
    mode: str,
    quality: int,
    interval: int,
) -> None:
    width, height, left, top, w, h = crop
    window = slice(top, top + h), slice(left, left + w)
    options = {"quality": quality, "restart_marker_blocks": interval, "optimize": bool(interval % 2)}
    encoded = small_jpeg(width, height, subsampling=subsampling, mode=mode, **options)
    whole = decode(encoded)
    for image in (opened(encoded), segmented(add_markers, encoded)):
        own = DECODER.decode_window(image, window)
        assert own is not None
        assert np.array_equal(own, whole[window])


def test_photographs(real_data: Callable[[str], Path], add_markers: AddMarkers) -> None:
    draw = random.Random(0)
    decoded = 0
    for path in sorted(real_data("coco").rglob("*.jpg"))[::5]:
        encoded = path.read_bytes()
        whole = decode(encoded)
        height, width = whole.shape[:2]
        top, left = draw.randrange(height - 30), draw.randrange(width - 30)
        window = slice(top, draw.randint(top + 1, height)), slice(left, draw.randint(left + 1, width))
        for image in (opened(encoded), segmented(add_markers, encoded)):
            own = DECODER.decode_window(image, window)
            decoded += own is not None
            assert own is None or np.array_equal(own, whole[window])
    assert decoded > 90


@pytest.mark.parametrize(
    "options", [{"progressive": True}, {"mode": "CMYK"}, {"subsampling": "4:4:0"}, {"subsampling": "4:1:1"}]
)
def test_what_it_does_not_decode_libjpeg_does(options: dict[str, object]) -> None:
    if "4:4:0" in options.values() or "4:1:1" in options.values():
        pixels = decode(small_jpeg(90, 70))
        encoded = simplejpeg.encode_jpeg(pixels, colorsubsampling=str(options["subsampling"]).replace(":", ""))
    else:
        encoded = small_jpeg(90, 70, **options)  # type: ignore[arg-type]
    image = lazy_image(encoded)
    window = slice(5, 60), slice(7, 80)
    if isinstance(image, LazyJpeg):
        assert DECODER.decode_window(image, window) is None
        image = _PluginJpeg(image, DECODER)
    assert np.array_equal(image[window], decode(encoded)[window])


def outcome(image: LazyJpeg, window: Window) -> Image | str:
    try:
        return image[window]
    except BadImage:
        return "bad"


@given(st.randoms(use_true_random=False), st.sampled_from([0, 1, 2]), st.booleans())
@settings(max_examples=300)
def test_damaged_files_end_as_with_libjpeg(
    add_markers: AddMarkers, draw: random.Random, subsampling: int, restarts: bool
) -> None:
    content = bytearray(small_jpeg(100, 75, subsampling=subsampling))
    if restarts:
        rewritten, segments = add_markers(bytes(content))
        content = bytearray(rewritten)
    for _ in range(draw.randint(1, 3)):
        content[draw.randrange(2, len(content) - 2)] = draw.choice([0, 255, draw.randrange(256)])
    if restarts:
        image: LazyJpeg = SegmentedJpeg(lambda start, stop: bytes(content[start:stop]), segments)
    else:
        try:
            lazy = lazy_image(bytes(content))
        except BadImage:
            return
        if not isinstance(lazy, LazyJpeg) or max(lazy.shape) > 2000:
            return
        image = lazy
    height, width = image.shape[:2]
    window = slice(height // 4, height // 2 + 1), slice(width // 3, width)
    ours, libjpegs = outcome(_PluginJpeg(image, DECODER), window), outcome(image, window)
    assert type(ours) is type(libjpegs)
    assert np.array_equal(ours, libjpegs)


def test_reduced_windows_are_libjpegs(add_markers: AddMarkers) -> None:
    image = segmented(add_markers, small_jpeg(320, 200))
    window = slice(10, 60), slice(20, 100)
    assert np.array_equal(_PluginJpeg(image, DECODER).decode_window(window, 2), image.decode_window(window, 2))


def test_a_shard_that_ends_early_is_bad(add_markers: AddMarkers) -> None:
    rewritten, segments = add_markers(small_jpeg(320, 200))
    image = SegmentedJpeg(lambda start, stop: rewritten[: len(rewritten) // 2][start:stop], segments)
    with pytest.raises(BadImage, match="the shard ends before the image does"):
        _PluginJpeg(image, DECODER)[100:200, 0:320]


def train(vernier_here: Callable[..., Done], out: Path, *settings: str) -> Done:
    command = ["train", *settings, "--out", str(out), "--max-steps", "6", "--train-only", "--resume", "never"]
    return vernier_here(*command, "--set", "machine.cache_share=0", "--set", "machine.workers=1")


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    for split in ("train", "val"):
        for name, size in (("wide", (160, 90)), ("tall", (80, 130))):
            folder = tmp_path / "photographs" / split / name
            folder.mkdir(parents=True)
            for number in range(8):
                content = small_jpeg(size[0] + number, size[1], quality=98, subsampling=number % 3)
                (folder / f"{number}.jpg").write_bytes(content)
    return tmp_path / "photographs"


@pytest.mark.parametrize("prepare", [False, True])
def test_training_ends_with_the_same_weights_and_says_what_decoded(
    vernier_here: Callable[..., Done], photographs: Path, tmp_path: Path, prepare: bool
) -> None:
    data = photographs
    if prepare:
        data = tmp_path / "shards"
        done = vernier_here("data", "prepare", "folder", str(photographs), str(data), "--format", "shards")
        assert done.code == 0, done.err
    settings = (
        "--data",
        str(data),
        "--model",
        "resnet8-small",
        "--global-batch",
        "4",
        "--set",
        "augment.crop=random-resized",
    )
    outs = {backend: tmp_path / backend for backend in ("native", "compiled")}
    for backend, out in outs.items():
        done = train(vernier_here, out, *settings, "--set", f"machine.backend={backend}")
        assert done.code == 0, done.err
        assert ("1 loader thread (compiled)" in done.out + done.err) == (backend == "compiled")
    weights = [RunDir.open(only_run(out)).checkpoints.newest().path for out in outs.values()]  # type: ignore[union-attr]
    files = [sorted(path.rglob("*.safetensors")) for path in weights]
    assert [f.read_bytes() for f in files[0]] == [f.read_bytes() for f in files[1]] != []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("augment.crop=pad",), "decodes crops of JPEGs, and --set augment.crop=pad needs whole images"),
        (("augment.crop=none",), "decodes crops of JPEGs, and --set augment.crop=none needs whole images"),
    ],
)
def test_it_is_refused_where_it_would_not_be_used(
    vernier_here: Callable[..., Done], photographs: Path, tmp_path: Path, settings: tuple[str, ...], words: str
) -> None:
    flags = [flag for setting in (*settings, "machine.backend=compiled") for flag in ("--set", setting)]
    done = train(vernier_here, tmp_path / "runs", "--data", str(photographs), *flags)
    assert done.code == 2
    assert words in done.err
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_it_is_refused_for_images_that_are_decoded_already(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    settings = ("--set", "machine.backend=compiled", "--set", "augment.crop=random-resized")
    done = train(vernier_here, tmp_path / "runs", "--data", "synthetic", *settings)
    assert done.code == 2
    assert "machine.backend = compiled needs encoded images such as JPEG files" in done.err


def test_every_copy_of_the_code_has_the_same_pixels(level: str, add_markers: AddMarkers) -> None:
    encoded = small_jpeg(333, 217, quality=97)
    window = slice(10, 200), slice(33, 320)
    for image in (opened(encoded), segmented(add_markers, encoded)):
        own = DECODER.decode_window(image, window)
        assert own is not None
        assert np.array_equal(own, decode(encoded)[window])


def test_images_of_an_unusual_header_are_left_to_libjpeg(add_markers: AddMarkers) -> None:
    with pytest.raises(NotSliceable):
        add_markers(small_jpeg(64, 48, progressive=True))
    exif_only = small_jpeg(64, 48)
    without_jfif = exif_only[:2] + exif_only[20:]  # as cameras write: components 1, 2, 3 are YCbCr
    image = opened(without_jfif)
    window = slice(3, 40), slice(5, 60)
    own = DECODER.decode_window(image, window)
    assert own is not None
    assert np.array_equal(own, decode(without_jfif)[window])


def with_an_all_ones_code(encoded: bytes) -> bytes:
    """The image with one more symbol, which it does not use, of the longest length in its last Huffman table."""
    at = encoded.rindex(b"\xff\xc4")
    size = int.from_bytes(encoded[at + 2 : at + 4], "big")
    table = bytearray(encoded[at + 4 : at + 2 + size])
    counts, symbols = table[1:17], table[17:]
    longest = max(i for i in range(16) if counts[i])
    counts[longest] += 1
    symbols.append(next(symbol for symbol in range(1, 11) if symbol not in symbols))
    marker = b"\xff\xc4" + (size + 1).to_bytes(2, "big") + table[:1] + counts + symbols
    return encoded[:at] + marker + encoded[at + 2 + size :]


def test_a_huffman_code_of_only_ones_is_refused_by_both_decoders() -> None:
    encoded = small_jpeg(64, 48, optimize=True)
    assert DECODER.decode_window(opened(encoded), (slice(0, 48), slice(0, 64))) is not None
    reserved = with_an_all_ones_code(encoded)
    with pytest.raises(BadImage, match="Huffman"):
        decode(reserved)
    assert DECODER.decode_window(opened(reserved), (slice(0, 48), slice(0, 64))) is None


@pytest.mark.parametrize("px", [65_500, 65_501])
def test_images_are_as_large_as_libjpeg_allows_and_no_larger(px: int) -> None:
    encoded = small_jpeg(65_500, 8, mode="L")
    at = encoded.index(b"\xff\xc0") + 7
    encoded = encoded[:at] + px.to_bytes(2, "big") + encoded[at + 2 :]
    # One of 65,501 has one more block: it is damaged, too, but nothing of that block is read for this window.
    own = DECODER.decode_window(opened(encoded), (slice(0, 8), slice(0, 9)))
    assert (own is None) == (px > 65_500)


def decoded_mb(encoded: bytes, px: int) -> float:
    """The memory of this process after an image was decoded."""
    assert DECODER.decode_window(opened(encoded), (slice(0, px), slice(0, px))) is not None
    return psutil.Process().memory_info().rss / 1e6


def test_a_large_image_leaves_no_memory_with_the_thread() -> None:
    """In a new process: the heap of this one has holes of other tests, which decide what is given back. The image is
    gray, so that its file is small: the C library keeps up to 60 MB of freed copies of a large one."""
    large = simplejpeg.encode_jpeg(np.full((9_000, 9_000, 3), 128, np.uint8), colorsubsampling="420")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        before = pool.submit(decoded_mb, small_jpeg(1_600, 1_200), 40).result()
        assert pool.submit(decoded_mb, large, 9_000).result() - before < 60


# ------------------------------------------------------------------------------ many training images in one call

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
    if (fill := reader._fill_chunk) is not None:

        def counting(*arguments: object) -> object:
            nonlocal made
            done = fill(*arguments)  # type: ignore[arg-type]
            made += int(done.sum())
            return done

        reader._fill_chunk = counting  # type: ignore[assignment]
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
