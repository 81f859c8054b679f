"""JPEGs whose headers follow the grammar and break one rule or another: accepted by the compiled decoder only if
libjpeg-turbo accepts them, and with its pixels.

    python -m tests.fuzz.acceptance [--files 20000] [--seed 1]

A few changed bytes hardly ever make a valid table; so tables, frames and scans are built, at and beyond their limits.
"""

import argparse
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from vernier.data.decoding import decode as decode_module
from vernier.data.decoding.decode import BadImage, LazyJpeg, lazy_image
from vernier.kernels.jpeg import CompiledDecoder

from .sanitized import LARGEST_PIXELS, decode_with_libjpeg, draw_image

Segment = tuple[int, bytearray]
"""A marker's second byte and its content without the length."""
SOF, DHT, SOS, DQT, DRI = 0xC0, 0xC4, 0xDA, 0xDB, 0xDD
FRAMES = (0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCA)


def split(encoded: bytes) -> tuple[list[Segment], bytes]:
    """The segments up to the first scan, and the coded data after it."""
    segments, at = list[Segment](), 2
    while True:
        size = int.from_bytes(encoded[at + 2 : at + 4], "big")
        segments.append((encoded[at + 1], bytearray(encoded[at + 4 : at + 2 + size])))
        at += 2 + size
        if segments[-1][0] == SOS:
            return segments, encoded[at:]


def join(segments: list[Segment], coded: bytes) -> bytes:
    parts = (bytes([0xFF, kind]) + (len(content) + 2).to_bytes(2, "big") + content for kind, content in segments)
    return b"\xff\xd8" + b"".join(parts) + coded


def huffman(draw: random.Random) -> bytearray:
    """A table: complete, with the code of only ones, with too many codes, too few, or symbols that are none."""
    counts, free = bytearray(16), 1
    for length in range(16):
        free *= 2
        most = min(free, 255, 256 - sum(counts))
        counts[length] = draw.choice([0, 0, draw.randint(0, max(0, most)), max(0, most - 1)]) if most > 0 else 0
        free -= counts[length]
    if draw.random() < 0.3:
        counts[draw.randrange(16)] = draw.choice([1, 2, 16, 255])
    symbols = bytearray(draw.choice([number % 12, draw.randrange(256)]) for number in range(sum(counts)))
    return bytearray([draw.choice([0x00, 0x01, 0x10, 0x11, 0x02, 0x13, 0x14, 0x20])]) + counts + symbols


def _change_table(draw: random.Random, segments: list[Segment]) -> None:
    """One code more or fewer of some length, or a whole new table, in place of one or after it."""
    index = draw.choice([index for index, (kind, _) in enumerate(segments) if kind == DHT])
    content = segments[index][1]
    if draw.random() < 0.4:
        new = (DHT, huffman(draw))
        segments[index : index + draw.choice([0, 1])] = [new]
        return
    at = 1 + draw.randrange(16)
    change = draw.choice([-1, 1, 1, 2])
    content[at] = (content[at] + change) % 256
    if draw.random() < 0.8:  # with as many symbols as it says
        content.extend([draw.randrange(256)] * max(0, change))


def _change_frame(draw: random.Random, segments: list[Segment]) -> None:
    """Another kind of frame, precision, size, number, sampling or table of components."""
    index = draw.choice([index for index, (kind, _) in enumerate(segments) if kind in FRAMES])
    content = segments[index][1]
    match draw.randrange(6):
        case 0:
            segments[index] = (draw.choice(FRAMES), content)
        case 1:
            content[0] = draw.choice([0, 2, 8, 12, 16])
        case 2:
            at = draw.choice([1, 3])
            content[at : at + 2] = draw.choice([0, 1, 8, 65_500, 65_501, 65_535]).to_bytes(2, "big")
        case 3:
            content[5] = draw.choice([0, 1, 2, 3, 4, 5, 10, 255])
        case 4:
            at = 7 + 3 * draw.randrange(max(1, content[5] % 5))
            if at < len(content):
                content[at] = draw.choice([0x00, 0x01, 0x11, 0x12, 0x21, 0x22, 0x31, 0x41, 0x44, 0x51])
        case _:
            at = draw.randrange(6, len(content))
            content[at] = draw.randrange(5)


def _change_scan(draw: random.Random, segments: list[Segment]) -> None:
    """Other components, tables, or positions in the spectrum."""
    content = segments[-1][1]
    content[draw.randrange(len(content))] = draw.choice([0, 1, 2, 3, 4, 0x11, 0x22, 0x33, 0x44, 63, 64, 255])


def _change_quantization(draw: random.Random, segments: list[Segment]) -> None:
    """Zeros, other numbers, 16 bits, a table that is too short."""
    content = draw.choice([content for kind, content in segments if kind == DQT])
    at = draw.randrange(len(content))
    content[at] = draw.choice([0, 0, 1, 4, 16, 255])
    if draw.random() < 0.2:
        del content[draw.randrange(1, len(content)) :]


def _add_segment(draw: random.Random, segments: list[Segment]) -> None:
    """Intervals, tables and comments where they may be, or not."""
    new = draw.choice(
        [
            (DRI, bytearray(draw.choice([0, 1, 3, 65_535]).to_bytes(2, "big"))),
            (DRI, bytearray(draw.randrange(4))),
            (0xFE, bytearray(draw.randrange(5))),
            (0xEE, bytearray(b"Adobe\0\x64\0\0\0\0" + bytes([draw.randrange(4)]))),
            (0xCC, bytearray([0, 1])),
            (SOF, bytearray(segments[-1][1])),
        ]
    )
    segments.insert(draw.randrange(len(segments)), new)


def _remove_segment(draw: random.Random, segments: list[Segment]) -> None:
    if len(segments) > 2:
        del segments[draw.randrange(len(segments) - 1)]


RULES: tuple[Callable[[random.Random, list[Segment]], None], ...] = (
    *(_change_table, _change_table, _change_table, _change_frame, _change_frame, _change_scan),
    *(_change_quantization, _add_segment, _remove_segment),
)


def compare(draw: random.Random) -> str:
    """What both decoders make of one file. Raises AssertionError where only the compiled one accepts it."""
    segments, coded = split(draw_image(draw))
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        with suppress(IndexError):  # what the rule is about was removed, or is too short by now
            draw.choice(RULES)(draw, segments)
    encoded = join(segments, coded)
    try:
        image = lazy_image(encoded)
    except BadImage:
        return "refused by both"
    if not isinstance(image, LazyJpeg) or np.prod(image.shape[:2]) > LARGEST_PIXELS:
        return "not for windows"
    height, width = image.shape[:2]
    window = slice(0, height), slice(0, width)
    try:
        own = CompiledDecoder().decode_window(image, window)
    except BadImage:
        own = None
    theirs = decode_with_libjpeg(image, window)
    if own is None:
        return "left to libjpeg" if theirs is not None else "refused by both"
    assert theirs is not None, f"accepted by the compiled decoder alone: {encoded.hex()}"
    assert np.array_equal(own, theirs), f"other pixels: {encoded.hex()}"
    return "accepted by both"


def count(files: int, seed: int) -> Counter[str]:
    """Outcomes of that many files."""
    decode_module.LAZY_FROM_BYTES = 0
    return Counter(compare(random.Random(f"{seed} {number}")) for number in range(files))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counts = count(options.files, options.seed)
    print(f"{options.files:,} files: " + ", ".join(f"{number:,} {what}" for what, number in sorted(counts.items())))


if __name__ == "__main__":
    main()
