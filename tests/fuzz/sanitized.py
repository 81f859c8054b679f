"""The compiled JPEG decoder under AddressSanitizer and UndefinedBehaviorSanitizer, on damaged files.

    python -m tests.fuzz.sanitized [--images 15000] [--seed 1]

Compiles windows.cpp with both, then compares every window with libjpeg-turbo's. Any error of a sanitizer ends it.
"""

import argparse
import ctypes
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.data.decoding.small_jpegs import small_jpeg
from vernier.data.decoding import decode as decode_module
from vernier.data.decoding.decode import BadImage, Image, LazyJpeg, SegmentedJpeg, lazy_image
from vernier.data.decoding.jpeg_slicing import NotSliceable
from vernier.data.decoding.restarts import RestartMarkers
from vernier.kernels import jpeg

SANITIZERS = ("asan", "ubsan")
LARGEST_PIXELS = 1_000_000


def start_with_sanitizers(arguments: list[str]) -> int:
    """This program again, with a sanitized library; the sanitizers must be loaded before Python."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "windows.so"
        flags = ["-std=c++17", "-O1", "-g", "-march=native", "-fwrapv", "-shared", "-fPIC"]
        checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        subprocess.run(["g++", *flags, *checks, str(jpeg._SOURCE), "-o", str(library)], check=True)
        paths = [subprocess.check_output(["g++", f"-print-file-name=lib{n}.so"], text=True).strip() for n in SANITIZERS]
        environment = {
            "LD_PRELOAD": " ".join(paths),
            "ASAN_OPTIONS": "detect_leaks=0",
            "VERNIER_SANITIZED": str(library),
        }
        return subprocess.run(
            [sys.executable, "-m", __spec__.name, *arguments], env=os.environ | environment
        ).returncode


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Up to five bytes changed, or some left out."""
    out = bytearray(content)
    for _ in range(draw.choice([0, 1, 1, 2, 5])):
        at = draw.randrange(2, len(out) - 2)
        if draw.random() < 0.1:
            del out[at : at + draw.randint(1, 20)]
        else:
            out[at] = draw.choice([0, 255, draw.randrange(256), out[at] ^ 1 << draw.randrange(8)])
    return bytes(out[:-2]) + b"\xff\xd9"


def open_image(draw: random.Random, markers: RestartMarkers) -> LazyJpeg | None:
    content = small_jpeg(
        *(draw.randint(20, 120), draw.randint(20, 90)),
        subsampling=draw.choice([0, 1, 2]),
        mode=draw.choice(["RGB", "RGB", "RGB", "L"]),
        quality=draw.randint(5, 100),
    )
    try:
        if draw.random() < 0.5:
            image = lazy_image(damaged(content, draw))
            return image if isinstance(image, LazyJpeg) and np.prod(image.shape[:2]) < LARGEST_PIXELS else None
        rewritten, segments = markers.add(content)
    except (BadImage, NotSliceable):
        return None
    bad = damaged(rewritten, draw)
    return SegmentedJpeg(lambda start, stop: bad[start:stop], segments)


def decode_with_libjpeg(image: LazyJpeg, window: tuple[slice, slice]) -> Image | None:
    try:
        return image[window]
    except BadImage:
        return None


def compare(images: int, seed: int) -> tuple[int, int]:
    """How many windows were decoded, of how many. Raises AssertionError at the first other pixel."""
    draw, decoded, total = random.Random(seed), 0, 0
    with RestartMarkers() as markers:
        for _ in range(images):
            image = open_image(draw, markers)
            if image is None:
                continue
            height, width = image.shape[:2]
            h, w = draw.randint(1, height), draw.randint(1, width)
            top, left = draw.randint(0, height - h), draw.randint(0, width - w)
            window = slice(top, top + h), slice(left, left + w)
            try:
                own = jpeg.CompiledDecoder().decode_window(image, window)
            except BadImage:
                own = None
            total += 1
            if own is not None:
                decoded += 1
                assert np.array_equal(own, decode_with_libjpeg(image, window)), (seed, total, window)  # type: ignore[arg-type]
    return decoded, total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=15_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if "VERNIER_SANITIZED" not in os.environ:
        sys.exit(start_with_sanitizers(sys.argv[1:]))
    decode_module.LAZY_FROM_BYTES = 0
    library = ctypes.CDLL(os.environ["VERNIER_SANITIZED"])
    jpeg.declare(library)
    jpeg._library = lambda: library  # type: ignore[assignment]
    decoded, total = compare(options.images, options.seed)
    print(f"{total:,} windows of intact and damaged images: {decoded:,} decoded as by libjpeg-turbo, others left to it")


if __name__ == "__main__":
    main()
