"""The compiled decoder: the same pixels as libjpeg-turbo's, the same verdict on damaged files, and training with it."""

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

from tests.conftest import Done, only_run
from tests.data.decoding.small_jpegs import crops, small_jpeg
from vernier.data.decoding.base import _PluginJpeg
from vernier.data.decoding.decode import BadImage, Image, LazyJpeg, SegmentedJpeg, decode, lazy_image
from vernier.data.decoding.jpeg_slicing import NotSliceable
from vernier.kernels.jpeg import CompiledDecoder
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
