"""JPEG files as bytes: what the header says, cutting a stream to the part a crop needs, and the lossless rewrite that allows it.

Owns no pixels: `decode` turns bytes into images. Two cuts leave every decoded pixel of the crop as it was:

- `trimmed`: any baseline JPEG, as far down as the crop reaches (the entropy-coded data cannot be entered in the middle).
- `Segments.cut`: a JPEG with restart markers at known places, only the segments that the crop touches.

Where chroma is subsampled, the decoder mixes the outermost pixels of an MCU with its neighbour's: a cut reaches one pixel
beyond the crop.
"""

import shutil
import struct
import subprocess
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vernier.errors import ConfigError

SOI, EOI = b"\xff\xd8", b"\xff\xd9"
SEQUENTIAL = (0xC0, 0xC1)
TARGET_INTERVAL = 4  # MCUs between restart markers: shorter ones cost bytes, longer ones make crops coarser
SMALLEST_INTERVAL = 3


class NotSliceable(ValueError):
    """A JPEG, or something else, that cannot be cut this way; decode it whole."""


@dataclass(frozen=True)
class Header:
    """What stands before the entropy-coded data. Sizes in pixels, positions in bytes."""

    width: int
    height: int
    components: int
    sequential: bool
    mcu_width: int
    mcu_height: int
    reach_y: int
    frame_at: int
    restart_interval: int
    scan_at: int
    scan_components: int

    @property
    def mcus_per_row(self) -> int:
        return -(-self.width // self.mcu_width)

    @property
    def mcu_rows(self) -> int:
        return -(-self.height // self.mcu_height)


def parse_header(encoded: bytes | bytearray | memoryview) -> Header:
    """Read the markers up to the first scan. Raises NotSliceable for what has no such header."""
    if bytes(encoded[:2]) != SOI:
        raise NotSliceable("not a JPEG file")
    at, interval = 2, 0
    frame: tuple[int, int, int, int, int, list[tuple[int, int]]] | None = None
    try:
        while True:
            while encoded[at] == 0xFF and encoded[at + 1] == 0xFF:
                at += 1
            if encoded[at] != 0xFF:
                raise NotSliceable("no marker where one should be")
            marker = encoded[at + 1]
            (length,) = struct.unpack_from(">H", encoded, at + 2)
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                frame = _parse_frame(encoded, at, marker)
            elif marker == 0xDD:
                (interval,) = struct.unpack_from(">H", encoded, at + 4)
            elif marker == 0xDA:
                return _header(frame, interval, at + 2 + length, encoded[at + 4])
            at += 2 + length
    except (IndexError, struct.error):
        raise NotSliceable("the header ends early") from None


def _parse_frame(
    encoded: bytes | bytearray | memoryview, at: int, marker: int
) -> tuple[int, int, int, int, int, list[tuple[int, int]]]:
    precision, height, width, count = struct.unpack_from(">BHHB", encoded, at + 4)
    factors = [divmod(encoded[at + 11 + 3 * i], 16) for i in range(count)]
    return at, marker, precision, height, width, factors


def _header(
    frame: tuple[int, int, int, int, int, list[tuple[int, int]]] | None, interval: int, scan_at: int, scanned: int
) -> Header:
    if frame is None:
        raise NotSliceable("a scan without a frame")
    at, marker, precision, height, width, factors = frame
    if not factors or not width or not height or any(not 1 <= f <= 4 for pair in factors for f in pair):
        raise NotSliceable("a frame without size or components")
    # One component alone is never interleaved: its MCU is one block, whatever factors it states.
    across, down = (1, 1) if len(factors) == 1 else (max(h for h, _ in factors), max(v for _, v in factors))
    return Header(
        width=width, height=height, components=len(factors), sequential=marker in SEQUENTIAL and precision == 8,
        mcu_width=8 * across, mcu_height=8 * down, reach_y=int(down > 1),
        frame_at=at, restart_interval=interval, scan_at=scan_at, scan_components=scanned,
    )  # fmt: skip


def trimmed(encoded: bytes, header: Header, bottom: int) -> tuple[bytes | bytearray, int]:
    """The same stream with a frame that ends a little below `bottom`, and its height; the decoder then stops there.

    The bytes that are left over make the decoder warn, so it must not be strict. Unchanged where it would not help.
    """
    rows = -(-(bottom + header.reach_y) // header.mcu_height)
    if not header.sequential or rows >= header.mcu_rows:
        return encoded, header.height
    out = bytearray(encoded)
    struct.pack_into(">H", out, header.frame_at + 5, rows * header.mcu_height)
    return out, rows * header.mcu_height


# ------------------------------------------------------------------------------------------------------ restart markers


@dataclass(frozen=True)
class Cut:
    """Which bytes of a file a crop needs, and where the image they make lies in the whole."""

    start: int
    stop: int
    left: int
    top: int
    width: int
    height: int
    row_starts: npt.NDArray[np.int64]
    within: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Segments:
    """A JPEG whose every row of MCUs is divided into equal restart segments at known places.

    `row_starts` has the position in the file of each row of MCUs; `within` [rows, segments + 1] where its segments begin,
    counted from there, and where the last one ends. The marker that ends a segment belongs to it.
    """

    width: int
    height: int
    mcu_width: int
    mcu_height: int
    interval: int
    frame_at: int
    scan_at: int
    row_starts: npt.NDArray[np.uint32]
    within: npt.NDArray[np.uint16]

    def cut(self, left: int, top: int, width: int, height: int) -> Cut:
        """The segments that a crop touches, or whose neighbours mix with its edges."""
        mcu_w, mcu_h, interval = self.mcu_width, self.mcu_height, self.interval
        reach_x, reach_y = int(mcu_w > 8), int(mcu_h > 8)
        first = max(0, left - reach_x) // mcu_w // interval
        past = min(self.within.shape[1] - 1, -(-(left + width + reach_x) // (mcu_w * interval)))
        first_row = max(0, top - reach_y) // mcu_h
        past_row = min(len(self.row_starts), -(-(top + height + reach_y) // mcu_h))
        starts = self.row_starts[first_row:past_row].astype(np.int64)
        within = self.within[first_row:past_row, first : past + 1].astype(np.int64)
        x, y = first * interval * mcu_w, first_row * mcu_h
        return Cut(
            start=int(starts[0] + within[0, 0]), stop=int(starts[-1] + within[-1, -1]), left=x, top=y,
            width=min(self.width, past * interval * mcu_w) - x, height=min(self.height, past_row * mcu_h) - y,
            row_starts=starts, within=within,
        )  # fmt: skip

    def assemble(self, cut: Cut, header: bytes, body: bytes) -> bytearray:
        """A JPEG of the cut alone, from the file's bytes before the scan and its bytes from `cut.start` to `cut.stop`."""
        left, right = cut.within[:, 0], cut.within[:, -1]
        origin = cut.row_starts - cut.start
        view = memoryview(body)
        pieces = zip((origin + left).tolist(), (origin + right).tolist(), strict=True)
        out = bytearray().join([header, *[view[a:b] for a, b in pieces]])
        struct.pack_into(">HH", out, self.frame_at + 5, cut.height, cut.width)
        lengths = right - left
        row_ends = np.cumsum(lengths) + (len(header) - 1)
        marks = (cut.within[:, 1:] + (row_ends - right)[:, None]).ravel()
        np.frombuffer(out, dtype=np.uint8)[marks] = _restarts(len(marks))
        out[-1] = EOI[1]
        return out


_RESTARTS = (0xD0 + np.arange(8192) % 8).astype(np.uint8)


def _restarts(count: int) -> npt.NDArray[np.uint8]:
    """The second bytes of the first restart markers of an image."""
    return _RESTARTS[:count] if count <= len(_RESTARTS) else (0xD0 + np.arange(count) % 8).astype(np.uint8)


def find_segments(encoded: bytes) -> Segments:
    """Where the restart markers are. Raises NotSliceable when they do not divide the rows evenly."""
    header = parse_header(encoded)
    interval = header.restart_interval
    if not header.sequential or header.scan_components != header.components:
        raise NotSliceable("not one baseline scan")
    if not interval or header.mcus_per_row % interval:
        raise NotSliceable(f"restart interval {interval} in rows of {header.mcus_per_row}")
    rows, columns = header.mcu_rows, header.mcus_per_row // interval
    ends = _segment_ends(encoded, header.scan_at, rows * columns)
    places = np.concatenate(([header.scan_at], ends))
    row_starts = places[:-1:columns]
    within = (
        np.concatenate((places[:-1].reshape(rows, columns), ends[columns - 1 :: columns, None]), axis=1)
        - row_starts[:, None]
    )
    if within.max() > 0xFFFF:
        raise NotSliceable("a row of MCUs longer than 65,535 bytes")
    return Segments(
        width=header.width, height=header.height, mcu_width=header.mcu_width, mcu_height=header.mcu_height, interval=interval,
        frame_at=header.frame_at, scan_at=header.scan_at, row_starts=row_starts.astype(np.uint32), within=within.astype(np.uint16),
    )  # fmt: skip


def _segment_ends(encoded: bytes, scan_at: int, expected: int) -> npt.NDArray[np.int64]:
    """Where each segment's closing marker ends, checked to be the markers of one whole image."""
    data = np.frombuffer(encoded, dtype=np.uint8)
    escapes = np.flatnonzero(data[scan_at:-1] == 0xFF) + scan_at
    after = data[escapes + 1]
    places = escapes[(after != 0) & (after != 0xFF)]
    kinds = data[places + 1]
    whole = len(places) == expected and kinds[-1] == EOI[1] and np.array_equal(kinds[:-1], _restarts(expected - 1))
    if not whole:
        raise NotSliceable("the restart markers are not those of a whole image")
    ends: npt.NDArray[np.int64] = places + 2
    return ends


def restart_interval_for(mcus_per_row: int) -> int:
    """The divisor of a row nearest to 4 in ratio, not below 3; the whole row where there is none."""
    divisors = [n for n in range(SMALLEST_INTERVAL, mcus_per_row + 1) if mcus_per_row % n == 0] or [mcus_per_row]
    return min(divisors, key=lambda n: (max(n / TARGET_INTERVAL, TARGET_INTERVAL / n), n))


def find_jpegtran() -> str:
    """The path of libjpeg-turbo's jpegtran."""
    found = shutil.which("jpegtran")
    if found is None:
        raise ConfigError(
            "Restart-indexed shards need the program jpegtran (Debian: apt-get install libjpeg-turbo-progs). "
            "--no-restarts stores the files as they are."
        )
    return found


def with_restarts(encoded: bytes, jpegtran: str) -> tuple[bytes, Segments]:
    """The same image, rewritten without loss with restart markers. Raises NotSliceable; the file is then best kept as it is."""
    header = parse_header(encoded)
    if not header.sequential:
        raise NotSliceable("not a baseline JPEG")
    if header.components not in (1, 3):
        raise NotSliceable(f"{header.components} colour components")
    interval = restart_interval_for(header.mcus_per_row)
    done = subprocess.run(
        [jpegtran, "-copy", "none", "-optimize", "-restart", f"{interval}B"],
        input=encoded,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0 or done.stderr:
        raise NotSliceable(done.stderr.decode(errors="replace").strip() or "jpegtran failed")
    return done.stdout, find_segments(done.stdout)
