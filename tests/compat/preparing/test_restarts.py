"""Restart markers: which writer is used, which intervals, and what no markers are added to."""

import pytest

from tests.data.decoding.conftest import add_markers  # noqa: F401  a fixture
from tests.data.decoding.small_jpegs import small_jpeg
from tests.kernels.built import AddMarkers
from vernier import plugins
from vernier.compat.preparing import restarts
from vernier.compat.preparing.restarts import _choose_restart_interval, add_restart_markers, find_writer
from vernier.data.decoding.decode import decode
from vernier.data.decoding.jpeg_slicing import NotSliceable, find_segments
from vernier.errors import ConfigError


class Missing:
    """A writer that cannot be used here."""

    def check(self) -> None:
        raise ConfigError("no such processor")

    def rewrite(self, encoded: bytes, interval: int) -> bytes | None:
        raise AssertionError


class Fixed:
    """A writer that knows one image."""

    intervals: tuple[int, ...] = ()

    def check(self) -> None: ...

    def rewrite(self, encoded: bytes, interval: int) -> bytes | None:
        Fixed.intervals = (*Fixed.intervals, interval)
        options = {"restart_marker_blocks": interval} if decode(encoded).shape == (48, 64, 3) else None
        return options and small_jpeg(64, 48, **options)


def test_the_first_writer_that_can_be_used_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "load_group", lambda group, kind: {"missing": Missing, "fixed": Fixed})
    assert isinstance(find_writer(), Fixed)


def test_without_a_writer_every_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "load_group", lambda group, kind: {"missing": Missing})
    with pytest.raises(ConfigError, match="missing: no such processor"):
        find_writer()
    monkeypatch.undo()
    monkeypatch.setattr(plugins, "entry_points", lambda **names: ())
    plugins._loaded.cache_clear()
    try:
        with pytest.raises(ConfigError, match="no installed package offers an entry point"):
            find_writer()
    finally:
        plugins._loaded.cache_clear()


def test_a_writer_gets_the_interval_and_may_leave_an_image_as_it_is() -> None:
    rewritten, segments = add_restart_markers(small_jpeg(64, 48), Fixed())
    assert Fixed.intervals == (segments.interval,) == (4,)
    assert find_segments(rewritten).interval == 4
    with pytest.raises(NotSliceable, match="damaged or unusual"):
        add_restart_markers(small_jpeg(32, 48), Fixed())


def test_a_header_that_claims_a_huge_image_is_refused_before_memory_is_taken() -> None:
    encoded = bytearray(small_jpeg(64, 48))
    frame = encoded.index(b"\xff\xc0")
    encoded[frame + 5 : frame + 9] = b"\xff\xdc\xff\xdc"
    with pytest.raises(NotSliceable, match="65500 x 65500"):
        add_restart_markers(bytes(encoded), Missing())


def test_what_cannot_be_rewritten_says_why(add_markers: AddMarkers) -> None:  # noqa: F811
    with pytest.raises(NotSliceable, match="baseline"):
        add_markers(small_jpeg(64, 64, progressive=True))
    with pytest.raises(NotSliceable, match="color components"):
        add_markers(small_jpeg(64, 64, mode="CMYK"))
    with pytest.raises(NotSliceable):
        add_markers(small_jpeg(64, 64)[:-200])
    with pytest.raises(NotSliceable, match="restart interval 0"):
        find_segments(small_jpeg(64, 64))


def test_intervals_divide_the_row_and_are_near_four() -> None:
    assert [_choose_restart_interval(n) for n in (80, 60, 40, 47, 3, 1, 54)] == [4, 4, 4, 47, 3, 1, 3]
    assert all(n % _choose_restart_interval(n) == 0 for n in range(1, 300))
