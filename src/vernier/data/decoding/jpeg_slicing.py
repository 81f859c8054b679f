"""JPEG streams as bytes: headers, and cutting a stream to what a crop needs.

Decoding is up to `decode`, adding restart markers to `compat.preparing`. Two cuts leave every decoded pixel of the crop
as it was:

- `trim`: any baseline JPEG, down to the bottom of the crop (entropy-coded data cannot be entered in the middle).
- `Segments.cut`: a JPEG with restart markers at known positions, only the segments that the crop touches.

If chroma is subsampled, the decoder mixes the outermost pixels of an MCU with its neighbour's, so a cut includes one
more pixel around the crop. An MCU (minimum coded unit) is the block of 8 or 16 pixels that JPEG codes together.
"""

import struct

import numpy as np
import numpy.typing as npt

from vernier.frozen import frozen

Positions = npt.NDArray[np.int64]
SOI, EOI = b"\xff\xd8", b"\xff\xd9"
SEQUENTIAL = (0xC0, 0xC1)  # SOF0 and SOF1: baseline and extended sequential, with Huffman coding


class NotSliceable(ValueError):
    """A file that cannot be cut this way and must be decoded whole, with the reason."""


@frozen
class Header:
    """The headers before the entropy-coded data. Sizes in pixels, positions in bytes."""

    width: int
    height: int
    components: int
    sequential: bool
    common_sampling: bool
    """Whether TurboJPEG decodes the sampling of chroma: 4:4:4, 4:2:2, 4:2:0, 4:4:0, 4:1:1, 4:4:1 or grey."""
    mcu_width: int
    mcu_height: int
    overlap_y: int
    """Pixels beyond a crop that the decoder mixes into it, above and below."""
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
    """Read the markers up to the first scan. Raises NotSliceable if there is no such header."""
    if bytes(encoded[:2]) != SOI:
        raise NotSliceable("not a JPEG file")
    at, interval, frame_at = 2, 0, 0
    try:
        while True:
            # Any number of fill bytes 0xFF may precede a marker.
            while encoded[at] == 0xFF and encoded[at + 1] == 0xFF:
                at += 1
            if encoded[at] != 0xFF:
                raise NotSliceable("no marker where one should be")
            marker = encoded[at + 1]
            (length,) = struct.unpack_from(">H", encoded, at + 2)
            # C0 to CF are frame headers, except for DHT (C4), JPG (C8) and DAC (CC).
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                frame_at = at
            elif marker == 0xDD:  # DRI, the restart interval
                (interval,) = struct.unpack_from(">H", encoded, at + 4)
            elif marker == 0xDA:  # SOS, after which the entropy-coded data begins
                return _build_header(encoded, frame_at, interval, at + 2 + length, encoded[at + 4])
            at += 2 + length
    except (IndexError, struct.error):
        raise NotSliceable("the header ends early") from None


def _build_header(
    encoded: bytes | bytearray | memoryview, frame_at: int, interval: int, scan_at: int, scan_components: int
) -> Header:
    """The header of an image with its frame header (SOF) at this position; 0: there was none."""
    if not frame_at:
        raise NotSliceable("a scan without a frame")
    precision, height, width, count = struct.unpack_from(">BHHB", encoded, frame_at + 4)
    # Three bytes per component: its number, both sampling factors with four bits each, its quantization table.
    factors = [divmod(encoded[frame_at + 11 + 3 * i], 16) for i in range(count)]
    if not factors or not width or not height or any(not 1 <= f <= 4 for pair in factors for f in pair):
        raise NotSliceable("a frame without size or components")
    # A single component is never interleaved: its MCU is one block, whatever its factors.
    across, down = (1, 1) if len(factors) == 1 else (max(h for h, _ in factors), max(v for _, v in factors))
    return Header(
        width=width,
        height=height,
        components=len(factors),
        sequential=encoded[frame_at + 1] in SEQUENTIAL and precision == 8,
        common_sampling=_is_common(factors),
        mcu_width=8 * across,
        mcu_height=8 * down,
        overlap_y=int(down > 1),
        frame_at=frame_at,
        restart_interval=interval,
        scan_at=scan_at,
        scan_components=scan_components,
    )


def _is_common(factors: list[tuple[int, int]]) -> bool:
    """The rule of TurboJPEG's tjDecompressHeader3: chroma has one factor, luma one of these; or all are the same."""
    luma, chroma = factors[0], set(factors[1:])
    if chroma == {(1, 1)}:
        return luma in ((1, 1), (2, 1), (2, 2), (1, 2), (4, 1), (1, 4))
    return chroma <= {luma} or (luma == (2, 2) and chroma in ({(1, 2)}, {(2, 1)}))


def trim(encoded: bytes, header: Header, bottom: int) -> tuple[bytes | bytearray, int]:
    """The stream with its height reduced to just below the row `bottom`, where the decoder then stops; and that height.

    The decoder warns about the remaining bytes, so it must not be strict. Unchanged if it would save nothing.
    """
    rows = -(-(bottom + header.overlap_y) // header.mcu_height)
    if not header.sequential or rows >= header.mcu_rows:
        return encoded, header.height
    out = bytearray(encoded)
    # + 5: the marker, the length and the precision come before the height.
    struct.pack_into(">H", out, header.frame_at + 5, rows * header.mcu_height)
    return out, rows * header.mcu_height


# ------------------------------------------------------------------------------------------------------ restart markers


@frozen
class Cut:
    """The bytes of a file that a crop needs, and the part of the image that they decode to."""

    start: int
    stop: int
    left: int
    top: int
    width: int
    height: int
    row_starts: Positions
    within: Positions


@frozen
class Segments:
    """The restart segments of a JPEG: every row of MCUs is divided into equal ones.

    `row_starts` has the position in the file of each row of MCUs; `within` [rows, segments + 1] where the segments of
    each row begin, relative to its start, and where the last one ends. The marker that ends a segment belongs to it.
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
        """The segments that a crop touches, and those whose pixels the decoder mixes into its edges."""
        mcu_w, mcu_h, interval = self.mcu_width, self.mcu_height, self.interval
        overlap_x, overlap_y = int(mcu_w > 8), int(mcu_h > 8)
        # In whole segments, because decoding can begin at a restart marker and nowhere else.
        first = max(0, left - overlap_x) // mcu_w // interval
        end = min(self.within.shape[1] - 1, -(-(left + width + overlap_x) // (mcu_w * interval)))
        first_row = max(0, top - overlap_y) // mcu_h
        end_row = min(len(self.row_starts), -(-(top + height + overlap_y) // mcu_h))
        starts = self.row_starts[first_row:end_row].astype(np.int64)  # unsigned differences would wrap
        within = self.within[first_row:end_row, first : end + 1].astype(np.int64)
        x, y = first * interval * mcu_w, first_row * mcu_h
        return Cut(
            start=int(starts[0] + within[0, 0]),
            stop=int(starts[-1] + within[-1, -1]),
            left=x,
            top=y,
            width=min(self.width, end * interval * mcu_w) - x,
            height=min(self.height, end_row * mcu_h) - y,
            row_starts=starts,
            within=within,
        )

    def table(self, cut: Cut) -> Positions:
        """Where the segments of a cut are, as windows.cpp reads it."""
        edges = (cut.row_starts - cut.start)[:, None] + cut.within
        across, down = cut.left // self.mcu_width, cut.top // self.mcu_height
        rows, columns = cut.within.shape
        numbers = (across, down, self.interval, self.mcu_width, self.mcu_height, rows, columns - 1)
        return np.concatenate((np.array(numbers, np.int64), edges.ravel()))

    def assemble(self, cut: Cut, header: bytes, body: bytes) -> bytearray:
        """A JPEG of the cut: `header` is the file up to the scan, `body` its bytes from `cut.start` to `cut.stop`."""
        # One piece per row of MCUs; between two of them the file has segments outside of the cut.
        left, right = cut.within[:, 0], cut.within[:, -1]
        origin = cut.row_starts - cut.start
        view = memoryview(body)
        pieces = zip((origin + left).tolist(), (origin + right).tolist(), strict=True)
        out = bytearray().join([header, *[view[a:b] for a, b in pieces]])
        # Only the size changes. The restart interval in the header stays true: segments are as long as before.
        struct.pack_into(">HH", out, self.frame_at + 5, cut.height, cut.width)
        lengths = right - left
        row_ends = np.cumsum(lengths) + (len(header) - 1)
        # Where the second byte of the marker that closes each segment is in `out`. Decoders expect the numbers 0 to 7
        # in turn from the first marker on, and the marker of the last segment becomes the end of the image.
        marks = (cut.within[:, 1:] + (row_ends - right)[:, None]).ravel()
        np.frombuffer(out, dtype=np.uint8)[marks] = _restart_markers(len(marks))
        out[-1] = EOI[1]
        return out


_RESTART_MARKERS = (0xD0 + np.arange(8192) % 8).astype(np.uint8)


def _restart_markers(count: int) -> npt.NDArray[np.uint8]:
    """The second bytes of an image's first `count` restart markers."""
    return (
        _RESTART_MARKERS[:count] if count <= len(_RESTART_MARKERS) else (0xD0 + np.arange(count) % 8).astype(np.uint8)
    )


def find_segments(encoded: bytes) -> Segments:
    """Find the restart segments. Raises NotSliceable if they do not divide the rows evenly."""
    header = parse_header(encoded)
    interval = header.restart_interval
    if not header.sequential or header.scan_components != header.components:
        raise NotSliceable("not one baseline scan")
    if not header.common_sampling:
        raise NotSliceable("an unusual sampling of chroma")
    # A segment that continues in the next row of MCUs could not be cut at the edge of a crop.
    if not interval or header.mcus_per_row % interval:
        raise NotSliceable(f"restart interval {interval} in rows of {header.mcus_per_row}")
    rows, columns = header.mcu_rows, header.mcus_per_row // interval
    ends = _find_segment_ends(encoded, header.scan_at, rows * columns)
    starts = np.concatenate(([header.scan_at], ends[:-1]))
    row_starts = starts[::columns]
    edges = np.concatenate((starts.reshape(rows, columns), ends[columns - 1 :: columns, None]), axis=1)
    within = edges - row_starts[:, None]
    if within.max() > 0xFFFF:  # tables store it in 16 bits
        raise NotSliceable("a row of MCUs longer than 65,535 bytes")
    return Segments(
        width=header.width,
        height=header.height,
        mcu_width=header.mcu_width,
        mcu_height=header.mcu_height,
        interval=interval,
        frame_at=header.frame_at,
        scan_at=header.scan_at,
        row_starts=row_starts.astype(np.uint32),
        within=within.astype(np.uint16),
    )


def _find_segment_ends(encoded: bytes, scan_at: int, expected: int) -> Positions:
    """The end of each segment's closing marker. Raises NotSliceable if they are not the markers of a complete image."""
    data = np.frombuffer(encoded, dtype=np.uint8)
    escapes = np.flatnonzero(data[scan_at:-1] == 0xFF) + scan_at
    # FF 00 is the data byte FF, and FF FF is fill; FF with anything else is a marker.
    after = data[escapes + 1]
    ends: Positions = escapes[(after != 0) & (after != 0xFF)] + 2
    markers = data[ends - 1]
    complete = len(markers) == expected and markers[-1] == EOI[1]
    if not complete or not np.array_equal(markers[:-1], _restart_markers(expected - 1)):
        raise NotSliceable("the restart markers are not those of a complete image")
    return ends
