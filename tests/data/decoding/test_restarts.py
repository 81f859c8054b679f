"""Restart markers: the new file is jpegtran's to the bit, and what jpegtran refuses is refused."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vernier.data.decoding import transcoder
from vernier.data.decoding.jpeg_slicing import NotSliceable, find_segments, parse_header
from vernier.data.decoding.restarts import RestartMarkers, choose_restart_interval
from vernier.errors import ConfigError

from .small_jpegs import small_jpeg

needs_jpegtran = pytest.mark.skipif(shutil.which("jpegtran") is None, reason="jpegtran is not installed")


def _by_jpegtran(encoded: bytes) -> bytes | None:
    """None where jpegtran has anything to say."""
    interval = choose_restart_interval(parse_header(encoded).mcus_per_row)
    command = ["jpegtran", "-copy", "none", "-optimize", "-restart", f"{interval}B"]
    done = subprocess.run(command, input=encoded, capture_output=True)
    return None if done.returncode or done.stderr else done.stdout


def _by_us(markers: RestartMarkers, encoded: bytes) -> bytes | None:
    try:
        return markers.add(encoded)[0]
    except NotSliceable:
        return None


@needs_jpegtran
@given(
    st.tuples(st.integers(1, 300), st.integers(1, 200)),
    st.sampled_from([0, 1, 2]),
    st.sampled_from(["RGB", "L"]),
    st.integers(5, 100),
    st.booleans(),
    st.sampled_from([0, 1, 7]),
    st.sampled_from([b"", b"a comment"]),
)
@settings(max_examples=60, deadline=None)
def test_the_new_file_is_jpegtrans(
    markers: RestartMarkers,
    size: tuple[int, int],
    subsampling: int,
    mode: str,
    quality: int,
    optimize: bool,
    restart_marker_blocks: int,
    comment: bytes,
) -> None:
    options = {"quality": quality, "optimize": optimize, "restart_marker_blocks": restart_marker_blocks}
    encoded = small_jpeg(*size, subsampling=subsampling, mode=mode, comment=comment, **options)
    rewritten = _by_us(markers, encoded)
    assert rewritten is not None
    assert rewritten == _by_jpegtran(encoded)


@needs_jpegtran
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=3), st.floats(0.5, 1.2))
@settings(max_examples=50, deadline=None)
def test_a_damaged_file_is_refused_where_jpegtran_complains_and_the_next_one_is_rewritten(
    markers: RestartMarkers, changes: list[tuple[float, int]], end: float
) -> None:
    whole = small_jpeg(90, 60)
    damaged = bytearray(whole)
    for share, value in changes:
        damaged[min(int(share * len(whole)), len(whole) - 1)] = value
    damaged = damaged[: int(end * len(whole))]
    try:
        header = parse_header(damaged)
    except NotSliceable:
        assert _by_us(markers, bytes(damaged)) is None
        return
    if header.sequential and header.components in (1, 3) and header.common_sampling:
        assert _by_us(markers, bytes(damaged)) == _by_jpegtran(bytes(damaged))
    assert markers.add(whole)[0] == _by_jpegtran(whole)


@needs_jpegtran
@pytest.mark.skipif(shutil.which("cjpeg") is None, reason="cjpeg is not installed")
@pytest.mark.parametrize("factors", ["1x1", "2x1", "1x2", "2x2", "4x1", "2x2,2x1,2x1", "2x1,2x1,2x1"])
def test_one_scan_per_component_becomes_jpegtrans_single_scan(
    markers: RestartMarkers, factors: str, tmp_path: Path
) -> None:
    (tmp_path / "scans").write_text("0;\n1;\n2;\n")
    pixels = b"P6 77 53 255\n" + bytes(i * i // 7 % 256 for i in range(77 * 53 * 3))
    command = ["cjpeg", "-sample", factors, "-scans", str(tmp_path / "scans")]
    encoded = subprocess.run(command, input=pixels, capture_output=True, check=True).stdout
    rewritten = _by_us(markers, encoded)
    assert rewritten is not None
    assert rewritten == _by_jpegtran(encoded)


def test_threads_share_the_programs(markers: RestartMarkers) -> None:
    images = [small_jpeg(40 + n, 30 + n) for n in range(40)]
    one_by_one = [markers.add(image)[0] for image in images]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda image: markers.add(image)[0], images)) == one_by_one


def test_a_header_that_claims_a_huge_image_is_refused_before_memory_is_taken(markers: RestartMarkers) -> None:
    encoded = bytearray(small_jpeg(64, 48))
    frame = encoded.index(b"\xff\xc0")
    encoded[frame + 5 : frame + 9] = b"\xff\xdc\xff\xdc"
    with pytest.raises(NotSliceable, match="65500 x 65500"):
        markers.add(bytes(encoded))


@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        ('"6.2"', '"6.1"', "it has libjpeg"),
        ("632", "640", "struct mismatch"),
        ('"std_error"', '"no_error"', "undefined"),
    ],
)
def test_a_pillow_without_a_usable_libjpeg_is_refused_with_what_would_work(
    ours: str, theirs: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "transcoder.py"
    changed.write_text(Path(transcoder.__file__).read_text().replace(ours, theirs))
    monkeypatch.setattr(transcoder, "__file__", str(changed))
    with pytest.raises(ConfigError, match=f"(?s){reason}") as error:
        RestartMarkers()
    assert error.value.works == [("restarts", False)]


def test_what_cannot_be_rewritten_says_why(markers: RestartMarkers) -> None:
    with pytest.raises(NotSliceable, match="baseline"):
        markers.add(small_jpeg(64, 64, progressive=True))
    with pytest.raises(NotSliceable, match="colour components"):
        markers.add(small_jpeg(64, 64, mode="CMYK"))
    with pytest.raises(NotSliceable):
        markers.add(small_jpeg(64, 64)[:-200])
    with pytest.raises(NotSliceable, match="restart interval 0"):
        find_segments(small_jpeg(64, 64))


def test_intervals_divide_the_row_and_are_near_four() -> None:
    assert [choose_restart_interval(n) for n in (80, 60, 40, 47, 3, 1, 54)] == [4, 4, 4, 47, 3, 1, 3]
    assert all(n % choose_restart_interval(n) == 0 for n in range(1, 300))
