"""The compiled JPEG code under AddressSanitizer and UndefinedBehaviorSanitizer, on damaged files.

    python -m tests.fuzz.sanitized [--images 15000] [--seed 1] [--level plain]

Builds the library of `vernier.kernels` with both. Every window that it decodes is compared with libjpeg-turbo's, every
training image that it makes from a file or a shard, whose table may be damaged too, with that of the Python path, and
so are the pixels of every image that it adds restart markers to. Any error of a sanitizer ends it.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.data.decoding.small_jpegs import small_jpeg
from vernier.compat.preparing.restarts import add_restart_markers
from vernier.config import Augment, Data
from vernier.data.augment.crop_flip import DRAWS, TrainTransform
from vernier.data.decoding import decode as decode_module
from vernier.data.decoding.decode import BadImage, Image, LazyJpeg, SegmentedJpeg, decode, decode_strictly, lazy_image
from vernier.data.decoding.jpeg_slicing import NotSliceable
from vernier.data.sources.containers.shard_index import TableBuilder, read_segments
from vernier.kernels import library
from vernier.kernels.jpeg import _COLUMNS, CompiledDecoder
from vernier.kernels.restarts import CompiledRestarts

SANITIZERS = ("asan", "ubsan")
LARGEST_PIXELS = 1_000_000
ROOT = Path(__file__).parents[2]


def start_with_sanitizers(arguments: list[str]) -> int:
    """This program again, with a sanitized library; the sanitizers must be loaded before Python."""
    with tempfile.TemporaryDirectory() as folder:
        checks = "-fsanitize=address,undefined -fno-sanitize-recover=all"
        # Flags of setup.py come later and win, so the code is optimized as in the library that users have.
        flags = dict.fromkeys(("CFLAGS", "CXXFLAGS", "LDFLAGS"), checks)
        command = [sys.executable, "setup.py", "build_ext", "--build-lib", folder, "--build-temp", f"{folder}/objects"]
        subprocess.run(command, cwd=ROOT, env=os.environ | flags, check=True, capture_output=True)
        paths = [subprocess.check_output(["g++", f"-print-file-name=lib{n}.so"], text=True).strip() for n in SANITIZERS]
        environment = {
            "LD_PRELOAD": " ".join(paths),
            "ASAN_OPTIONS": "detect_leaks=0",
            "VERNIER_SANITIZED": f"{folder}/vernier/kernels/{library.PATH.name}",
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


def draw_image(draw: random.Random) -> bytes:
    return small_jpeg(
        *(draw.randint(20, 120), draw.randint(20, 90)),
        subsampling=draw.choice([0, 1, 2]),
        mode=draw.choice(["RGB", "RGB", "RGB", "L"]),
        quality=draw.randint(5, 100),
        restart_marker_blocks=draw.choice([0, 0, 1, 4]),
    )


def open_image(draw: random.Random, content: bytes) -> LazyJpeg | None:
    try:
        if draw.random() < 0.5:
            image = lazy_image(damaged(content, draw))
            return image if isinstance(image, LazyJpeg) and np.prod(image.shape[:2]) < LARGEST_PIXELS else None
        rewritten, segments = add_restart_markers(content, CompiledRestarts())
    except (BadImage, NotSliceable):
        return None
    bad = damaged(rewritten, draw)
    return SegmentedJpeg(lambda start, stop: bad[start:stop], segments)


def decode_with_libjpeg(image: LazyJpeg, window: tuple[slice, slice]) -> Image | None:
    try:
        return image[window]
    except BadImage:
        return None


def compare_window(draw: random.Random, image: LazyJpeg) -> bool:
    """Whether it was decoded. Raises AssertionError at another pixel than libjpeg's."""
    height, width = image.shape[:2]
    h, w = draw.randint(1, height), draw.randint(1, width)
    top, left = draw.randint(0, height - h), draw.randint(0, width - w)
    window = slice(top, top + h), slice(left, left + w)
    try:
        own = CompiledDecoder().decode_window(image, window)
    except BadImage:
        return False
    assert own is None or np.array_equal(own, decode_with_libjpeg(image, window))  # type: ignore[arg-type]
    return own is not None


def compare_chunk(draw: random.Random, content: bytes, folder: Path) -> bool:
    """Whether an image was made by the call for chunks, from a file or from a shard whose table may be damaged. Raises
    AssertionError at another pixel than those of the Python path."""
    recipe = Data(interpolation=draw.choice(["bilinear", "bicubic"])), Augment(crop="random-resized", flip=0.5)
    numbers, px = np.random.default_rng(draw.randrange(1 << 30)).random((1, DRAWS)), draw.randint(1, 90)
    own, expected = np.zeros((2, 1, px, px, 3), np.uint8)
    path, fill = folder / "image", CompiledDecoder().plan_chunks(*recipe, exif=True)
    try:
        in_shard = draw.random() < 0.5
        bad = damaged(add_restart_markers(content, CompiledRestarts())[0] if in_shard else content, draw)
    except NotSliceable:
        return False
    path.write_bytes(bad)
    if not in_shard:
        done = fill([str(path)], numbers, own)
    else:
        builder = TableBuilder()
        builder.add("image", 0, 0, bad)
        table = builder.columns()
        for name in draw.sample(sorted(_COLUMNS), draw.choice([0, 0, 1, 3])):
            column = table[name] = table[name].copy()
            if len(column):
                column[draw.randrange(len(column))] = draw.randrange(int(np.iinfo(column.dtype).max) + 1)
        handle = os.open(path, os.O_RDONLY)
        done = fill(([(handle, len(bad), table)], [0]), numbers, own)
        os.close(handle)
        if not (done[0] and table["scan_at"][0]):
            return bool(done[0])
    if not done[0]:
        return False
    segments = read_segments(table, 0) if in_shard else None
    image = lazy_image(bad) if segments is None else SegmentedJpeg(lambda start, stop: bad[start:stop], segments)
    TrainTransform(*recipe)(image, numbers[0], expected[0])
    assert np.array_equal(own, expected)
    return True


def compare_rewritten(draw: random.Random, content: bytes) -> bool:
    """Whether restart markers were added. Raises AssertionError if that changed a pixel."""
    bad = damaged(content, draw)
    try:
        rewritten, _ = add_restart_markers(bad, CompiledRestarts())
    except NotSliceable:
        CompiledRestarts().rewrite(bad, draw.choice([1, 3, 65535]))  # also what a header check would have refused
        return False
    assert np.array_equal(decode_strictly(rewritten), decode(bad))
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=15_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--level", help="plain, avx2 or avx512; by default the best of this processor")
    options = parser.parse_args()
    if "VERNIER_SANITIZED" not in os.environ:
        sys.exit(start_with_sanitizers(sys.argv[1:]))
    decode_module.LAZY_FROM_BYTES = 0
    library.PATH = Path(os.environ["VERNIER_SANITIZED"])
    if options.level:
        library._choose_level = lambda loaded: options.level
    draw, decoded, windows, rewritten, made = random.Random(options.seed), 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.images):
            content = draw_image(draw)
            rewritten += compare_rewritten(draw, content)
            made += compare_chunk(draw, content, Path(folder))
            image = open_image(draw, content)
            if image is not None:
                windows += 1
                decoded += compare_window(draw, image)
    print(
        f"{windows:,} windows of intact and damaged images: {decoded:,} decoded as by libjpeg-turbo, others left to it"
    )
    print(f"{options.images:,} intact and damaged images: {made:,} cropped and resized as by Python, others left to it")
    print(
        f"{options.images:,} intact and damaged images: restart markers added to {rewritten:,}, others left as they are"
    )


if __name__ == "__main__":
    main()
