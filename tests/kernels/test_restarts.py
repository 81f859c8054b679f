"""Restart markers in C++: the new file is jpegtran's to the bit, and what jpegtran refuses is left as it is."""

import random
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.data.decoding.small_jpegs import small_jpeg
from vernier.compat.preparing.restarts import _choose_restart_interval, add_restart_markers
from vernier.data.decoding.jpeg_slicing import NotSliceable, parse_header
from vernier.errors import ConfigError
from vernier.kernels import restarts
from vernier.kernels.restarts import CompiledRestarts

from .built import needs_library

pytestmark = needs_library
needs_jpegtran = pytest.mark.skipif(shutil.which("jpegtran") is None, reason="jpegtran is not installed")
needs_cjpeg = pytest.mark.skipif(shutil.which("cjpeg") is None, reason="cjpeg is not installed")
WRITER = CompiledRestarts()


def _by_jpegtran(encoded: bytes) -> bytes | None:
    """None where jpegtran reports anything."""
    interval = _choose_restart_interval(parse_header(encoded).mcus_per_row)
    command = ["jpegtran", "-copy", "none", "-optimize", "-restart", f"{interval}B"]
    done = subprocess.run(command, input=encoded, capture_output=True)
    return None if done.returncode or done.stderr else done.stdout


def _by_us(encoded: bytes) -> bytes | None:
    return WRITER.rewrite(encoded, _choose_restart_interval(parse_header(encoded).mcus_per_row))


def _exif() -> bytes:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a camera"  # orientation, maker
    return exif.tobytes()


@needs_jpegtran
@given(
    st.tuples(st.integers(1, 300), st.integers(1, 200)),
    st.sampled_from([0, 1, 2]),
    st.sampled_from(["RGB", "L"]),
    st.integers(1, 100),
    st.booleans(),
    st.sampled_from([0, 1, 7]),
    st.sampled_from([{}, {"comment": b"a comment"}, {"exif": _exif()}, {"dpi": (300, 72)}, {"keep_rgb": True}]),
)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_new_file_is_jpegtrans(
    size: tuple[int, int],
    subsampling: int,
    mode: str,
    quality: int,
    optimize: bool,
    restart_marker_blocks: int,
    extra: dict[str, object],
) -> None:
    options = {"quality": quality, "optimize": optimize, "restart_marker_blocks": restart_marker_blocks, **extra}
    if "keep_rgb" in extra:
        mode, subsampling = "RGB", 0
    encoded = small_jpeg(*size, subsampling=subsampling, mode=mode, **options)
    rewritten = _by_us(encoded)
    assert rewritten is not None
    assert rewritten == _by_jpegtran(encoded)


@needs_jpegtran
def test_every_copy_of_the_code_writes_the_same_file(level: str) -> None:
    encoded = small_jpeg(333, 217, quality=97)
    assert _by_us(encoded) == _by_jpegtran(encoded) is not None


@needs_jpegtran
def test_photographs(real_data: Callable[[str], Path]) -> None:
    paths = [path for name in ("coco", "bccd") for path in sorted(real_data(name).rglob("*.jpg"))[::4]]
    assert len(paths) > 100
    for path in paths:
        encoded = path.read_bytes()
        assert _by_us(encoded) == _by_jpegtran(encoded) is not None, path


@needs_jpegtran
@needs_cjpeg
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("restart", ["0", "3B", "1"])
@pytest.mark.parametrize("factors", ["1x1", "2x1", "1x2", "2x2", "4x1", "1x4", "2x2,2x1,2x1", "2x1,2x1,2x1", "3x3"])
def test_samplings_scans_and_restarts_of_the_source(
    factors: str, restart: str, interleaved: bool, tmp_path: Path
) -> None:
    (tmp_path / "scans").write_text("0,1,2;" if interleaved else "0;\n1;\n2;\n")
    pixels = b"P6 77 53 255\n" + bytes(i * i // 7 % 256 for i in range(77 * 53 * 3))
    command = ["cjpeg", "-sample", factors, "-restart", restart, "-scans", str(tmp_path / "scans")]
    made = subprocess.run(command, input=pixels, capture_output=True)
    if made.returncode:
        assert factors == "3x3"  # 11 blocks in an MCU
        return
    assert _by_us(made.stdout) == _by_jpegtran(made.stdout)


@needs_jpegtran
@needs_cjpeg
@pytest.mark.parametrize("options", [["-grayscale"], ["-grayscale", "-sample", "2x2"], ["-rgb"], ["-quality", "1"]])
def test_grey_rgb_and_tables_that_no_baseline_jpeg_has(options: list[str]) -> None:
    pixels = b"P6 61 83 255\n" + bytes(i * i // 11 % 256 for i in range(61 * 83 * 3))
    encoded = subprocess.run(["cjpeg", *options], input=pixels, capture_output=True, check=True).stdout
    assert _by_us(encoded) == _by_jpegtran(encoded)
    assert (_by_us(encoded) is None) == ("-quality" in options)  # quantized by more than a byte can hold


@needs_jpegtran
@given(st.randoms(use_true_random=False), st.sampled_from([0, 1, 2]), st.sampled_from([0, 5]))
@settings(max_examples=150, deadline=None)
def test_a_damaged_file_is_left_as_it_is_or_rewritten_as_by_jpegtran(
    draw: random.Random, subsampling: int, restart_marker_blocks: int
) -> None:
    whole = small_jpeg(90, 60, subsampling=subsampling, restart_marker_blocks=restart_marker_blocks)
    damaged = bytearray(whole)
    for _ in range(draw.randint(1, 3)):
        damaged[draw.randrange(len(whole))] = draw.choice([0, 255, draw.randrange(256)])
    damaged = damaged[: draw.choice([len(whole), draw.randrange(len(whole))])]
    try:
        interval = _choose_restart_interval(parse_header(damaged).mcus_per_row)
    except NotSliceable:
        interval = 3
    own = WRITER.rewrite(bytes(damaged), interval)
    assert own is None or own == _by_jpegtran(bytes(damaged))
    assert _by_us(whole) is not None


@pytest.mark.parametrize(
    "encoded",
    [
        *(b"", b"\xff", b"no JPEG", b"\xff\xd8\xff\xd9"),
        *(small_jpeg(48, 32)[:30], small_jpeg(48, 32)[:-60] + b"\xff\xd9", small_jpeg(48, 32)[:-2]),
        *(small_jpeg(48, 32, progressive=True), small_jpeg(48, 32, mode="CMYK")),
    ],
)
def test_what_is_no_whole_baseline_jpeg_is_left_as_it_is(encoded: bytes) -> None:
    assert WRITER.rewrite(encoded, 3) is None


@pytest.mark.parametrize("interval", [-1, 0, 65536])
def test_an_interval_that_no_header_can_have_is_refused(interval: int) -> None:
    assert WRITER.rewrite(small_jpeg(48, 32), interval) is None


def test_bytes_behind_the_image_are_dropped() -> None:
    encoded = small_jpeg(48, 32)
    assert WRITER.rewrite(encoded + b"a trailer", 3) == WRITER.rewrite(encoded, 3) is not None


def test_threads_write_at_the_same_time() -> None:
    images = [small_jpeg(40 + n, 30 + n) for n in range(40)]
    one_by_one = [add_restart_markers(image, WRITER)[0] for image in images]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda image: add_restart_markers(image, WRITER)[0], images)) == one_by_one


def test_changed_pixels_are_noticed_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    WRITER.check()
    monkeypatch.setattr(restarts.CompiledRestarts, "rewrite", lambda self, encoded, interval: small_jpeg(100, 60))
    with pytest.raises(ConfigError, match="changes pixels"):
        WRITER.check()
