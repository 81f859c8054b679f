"""Cutting JPEG streams: whatever is cut, the pixels of the crop are those of the whole image."""

import io
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.kernels.built import AddMarkers
from vernier.compat.preparing.restarts import _choose_restart_interval
from vernier.data.decoding import jpeg_slicing as jpeg
from vernier.data.decoding.decode import BadImage, LazyJpeg, SegmentedJpeg, decode, lazy_image
from vernier.data.decoding.jpeg_slicing import (
    NotSliceable,
    find_segments,
    parse_header,
)

from .small_jpegs import crops, small_jpeg

pytestmark = pytest.mark.usefixtures("sliced_small_images")


class _Bytes:
    def __init__(self, content: bytes) -> None:
        self.content, self.read = content, 0

    def read_range(self, start: int, stop: int) -> bytes:
        self.read += stop - start
        return self.content[start:stop]


def _halved_chroma(path: Path) -> bytes:
    out = io.BytesIO()
    with Image.open(path) as image:
        image.save(out, "JPEG", quality=90, subsampling=2)
    return out.getvalue()


@given(crops(), st.sampled_from([0, 1, 2]), st.sampled_from(["RGB", "L"]))
@settings(max_examples=80, deadline=None)
def test_a_trimmed_jpeg_gives_the_pixels_of_the_whole(
    crop: tuple[int, int, int, int, int, int], subsampling: int, mode: str
) -> None:
    width, height, left, top, w, h = crop
    encoded = small_jpeg(width, height, subsampling=subsampling, mode=mode)
    window = slice(top, top + h), slice(left, left + w)
    assert np.array_equal(lazy_image(encoded)[window], decode(encoded)[window])


@given(crops(), st.sampled_from([0, 1, 2]), st.sampled_from(["RGB", "L"]))
@settings(max_examples=80, deadline=None)
def test_restart_segments_give_the_pixels_of_the_whole(
    add_markers: AddMarkers, crop: tuple[int, int, int, int, int, int], subsampling: int, mode: str
) -> None:
    width, height, left, top, w, h = crop
    encoded = small_jpeg(width, height, subsampling=subsampling, mode=mode)
    rewritten, segments = add_markers(encoded)
    whole, window = decode(encoded), (slice(top, top + h), slice(left, left + w))
    assert np.array_equal(decode(rewritten), whole)
    assert np.array_equal(SegmentedJpeg(_Bytes(rewritten).read_range, segments)[window], whole[window])


@given(crops(), st.sampled_from([0, 1, 2]), st.sampled_from(["RGB", "L"]))
@settings(max_examples=80, deadline=None)
def test_restart_markers_of_another_encoder_give_the_pixels_of_the_whole(
    crop: tuple[int, int, int, int, int, int], subsampling: int, mode: str
) -> None:
    width, height, left, top, w, h = crop
    header = parse_header(small_jpeg(width, height, subsampling=subsampling, mode=mode))
    interval = _choose_restart_interval(header.mcus_per_row)
    encoded = small_jpeg(width, height, subsampling=subsampling, mode=mode, restart_marker_blocks=interval)
    segments, window = find_segments(encoded), (slice(top, top + h), slice(left, left + w))
    assert (segments.interval, len(segments.row_starts)) == (interval, header.mcu_rows)
    assert np.array_equal(SegmentedJpeg(_Bytes(encoded).read_range, segments)[window], decode(encoded)[window])


@given(crops(), st.sampled_from([0, 1, 2]), st.sampled_from([2, 4, 8]))
@settings(max_examples=80, deadline=None)
def test_a_reduced_window_is_that_of_pillows_draft_mode(
    add_markers: AddMarkers, crop: tuple[int, int, int, int, int, int], subsampling: int, factor: int
) -> None:
    width, height, left, top, w, h = crop
    encoded = small_jpeg(width, height, subsampling=subsampling)
    rewritten, segments = add_markers(encoded)
    with Image.open(io.BytesIO(encoded)) as image:
        image.draft("RGB", (width // factor, height // factor))
        assert image.size == (-(-width // factor), -(-height // factor))
        small = np.asarray(image)
    window = slice(top // factor, -(-(top + h) // factor)), slice(left // factor, -(-(left + w) // factor))
    for opened in (lazy_image(encoded), SegmentedJpeg(_Bytes(rewritten).read_range, segments)):
        assert isinstance(opened, LazyJpeg)
        assert np.array_equal(opened.decode_window(window, factor), small[window])


@pytest.mark.parametrize(("subsampling", "overlap"), [(0, 0), (2, 1)])
def test_a_cut_takes_a_neighbour_only_where_its_pixels_mix_with_the_crops(
    add_markers: AddMarkers, subsampling: int, overlap: int
) -> None:
    _, segments = add_markers(small_jpeg(640, 480, subsampling=subsampling))
    mcu = segments.mcu_height
    inside, on_the_grid = segments.cut(0, 161, 64, 62), segments.cut(0, 160, 64, 64)
    assert (inside.top, inside.height) == (160, 64)
    assert (on_the_grid.top, on_the_grid.height) == (160 - overlap * mcu, 64 + 2 * overlap * mcu)


def test_real_photographs_are_cut_without_a_changed_pixel_and_half_is_read(
    add_markers: AddMarkers, real_data: Callable[[str], Path]
) -> None:
    rng = np.random.default_rng(1)
    read = total = crops = 0
    for number, path in enumerate(sorted(real_data("coco").glob("*2017/*.jpg"))[::5]):
        encoded = path.read_bytes() if number % 2 else _halved_chroma(path)
        rewritten, segments = add_markers(encoded)
        whole, file = decode(encoded), _Bytes(rewritten)
        for _ in range(6):
            share = rng.uniform(0.08, 1.0) ** 0.5
            w, h = max(1, int(share * segments.width)), max(1, int(share * segments.height))
            left, top = int(rng.integers(segments.width - w + 1)), int(rng.integers(segments.height - h + 1))
            window = slice(top, top + h), slice(left, left + w)
            assert np.array_equal(SegmentedJpeg(file.read_range, segments)[window], whole[window]), path
            assert np.array_equal(lazy_image(encoded)[window], whole[window]), path
            total, crops = total + len(rewritten), crops + 1
        read += file.read
    assert crops == 300
    assert read < 0.8 * total


COMMON = ["1x1", "2x1", "1x2", "2x2", "4x1", "1x4", "2x2,2x1,2x1", "2x2,1x2,1x2", "2x1,2x1,2x1"]
UNUSUAL = ["4x2", "2x4", "3x1", "1x3", "2x1,1x1,2x1", "2x2,1x2,2x1", "1x1,2x2,1x1"]
needs_cjpeg = pytest.mark.skipif(shutil.which("cjpeg") is None, reason="cjpeg is not installed")


def _sampled(factors: str) -> bytes:
    with Image.open(io.BytesIO(small_jpeg(151, 101))) as image:
        image.save(ppm := io.BytesIO(), "PPM")
    cjpeg = ["cjpeg", "-quality", "92", "-sample", factors]
    return subprocess.run(cjpeg, input=ppm.getvalue(), capture_output=True, check=True).stdout


def _windows() -> list[tuple[slice, slice]]:
    edges = [(0, 151, 0, 101), (7, 64, 9, 33), (31, 33, 31, 33), (0, 1, 0, 1), (150, 151, 100, 101), (64, 150, 0, 96)]
    return [(slice(top, bottom), slice(left, right)) for left, right, top, bottom in edges]


@needs_cjpeg
@pytest.mark.parametrize("factors", [*COMMON, *UNUSUAL])
def test_every_sampling_of_chroma_gives_pillows_pixels_from_files_and_from_segments(
    add_markers: AddMarkers, factors: str
) -> None:
    encoded = _sampled(factors)
    with Image.open(io.BytesIO(encoded)) as image:
        whole = np.asarray(image.convert("RGB"))
    assert np.array_equal(decode(encoded), whole)
    assert parse_header(encoded).common_sampling == (factors in COMMON)
    for window in _windows():
        assert np.array_equal(lazy_image(encoded)[window], whole[window])
    if factors in COMMON:
        rewritten, segments = add_markers(encoded)
        for window in _windows():
            assert np.array_equal(SegmentedJpeg(_Bytes(rewritten).read_range, segments)[window], whole[window])
    else:
        with pytest.raises(NotSliceable, match="sampling"):
            add_markers(encoded)


@needs_cjpeg
@pytest.mark.parametrize("factors", UNUSUAL)
def test_segments_of_an_unusual_sampling_in_an_old_table_still_give_the_pixels(
    add_markers: AddMarkers, factors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = _sampled(factors)
    monkeypatch.setattr(jpeg, "_is_common", lambda factors: True)  # as version 0.2 indexed them
    rewritten, segments = add_markers(encoded)
    opened = SegmentedJpeg(_Bytes(rewritten).read_range, segments)
    for window in _windows():
        assert np.array_equal(opened[window], decode(encoded)[window])
    cut_short = SegmentedJpeg(_Bytes(rewritten[:-900]).read_range, segments)
    with pytest.raises(BadImage, match="the shard ends"):
        _ = cut_short[90:101, 0:151]


@needs_cjpeg
@given(st.integers(0, 700), st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_a_changed_byte_in_the_header_is_an_image_or_a_bad_image(position: int, value: int) -> None:
    encoded = bytearray(small_jpeg(64, 48))
    encoded[position % len(encoded)] = value
    for take in (decode, lambda content: lazy_image(content)[0:8, 0:8]):
        try:
            assert take(bytes(encoded)).ndim == 3
        except BadImage:
            continue


def test_a_header_with_factors_that_no_decoder_names_is_an_image_or_a_bad_image() -> None:
    encoded = bytearray(small_jpeg(64, 48))
    frame = encoded.index(b"\xff\xc0")
    for factors in range(256):
        struct.pack_into(">B", encoded, frame + 11, factors)
        for take in (decode, lambda content: lazy_image(content)[0:8, 0:8]):
            try:
                assert take(bytes(encoded)).ndim == 3
            except BadImage:
                continue


def test_a_cut_is_a_jpeg_that_other_decoders_take(add_markers: AddMarkers) -> None:
    rewritten, segments = add_markers(small_jpeg(320, 200))
    cut = segments.cut(100, 50, 64, 64)
    stream = segments.assemble(cut, rewritten[: segments.scan_at], rewritten[cut.start : cut.stop])
    with Image.open(io.BytesIO(bytes(stream))) as image:
        assert image.size == (cut.width, cut.height)
        image.load()
    assert len(stream) < len(rewritten) * 0.7


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_any_bytes_are_parsed_or_refused(noise: bytes) -> None:
    for encoded in (noise, b"\xff\xd8" + noise, small_jpeg(16, 16)[:200] + noise):
        try:
            parse_header(encoded)
        except NotSliceable:
            continue


def test_a_jpeg_stored_as_rgb_keeps_its_colours(add_markers: AddMarkers) -> None:
    encoded = small_jpeg(100, 60, subsampling=0, keep_rgb=True)
    rewritten, segments = add_markers(encoded)
    assert np.array_equal(decode(rewritten), decode(encoded))
    assert np.array_equal(
        SegmentedJpeg(_Bytes(rewritten).read_range, segments)[7:40, 9:77], decode(encoded)[7:40, 9:77]
    )
