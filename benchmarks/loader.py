"""The loader beside PyTorch's DataLoader over Pillow and beside DALI, on one folder of images.

The images are laid out as a folder, as restart-indexed shards and decoded, in a temporary place; then all contenders take
turns: beside others (peers), two workers beside one and beside two programs (scaling), threads beside processes (threads).
Usage: python benchmarks/loader.py [IMAGES] [--workers 1] [--rounds 15] [--images 500] [--only peers] [--json]

Ratios are of time as it passed, with the same by a clock that others on the machine do not disturb: processor time, or time
without that for which a loader thread had no core.

IMAGES is any folder with pictures below it; without it, the photographs that the tests use, where they are.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from vernier.data.preparing.raw import pack_raw
from vernier.data.preparing.shards import pack_shards
from vernier.data.sources.folder import IMAGE_SUFFIXES, FolderSource
from vernier.engine.measured.loading import BATCH, IMAGE_PX, PREFETCH, Clock, Contender, Measured, compare, report

TARGETS = {
    ("folder", "pillow"): 1.35, ("shards", "pillow"): 2.2, ("shards", "dali"): 2.0, ("raw", "pillow"): 20.0, ("x2", "x1"): 1.9,
}  # fmt: skip


LENGTHENED = {"folder": 1, "shards": 1, "raw": 10}


def lay_out(images: Path, scratch: Path, workers: int) -> dict[str, str]:
    """The same images three times."""
    found = sorted(p for p in images.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
    if not found:
        sys.exit(f"No images below {images}.")
    folder = scratch / "folder" / "train" / "all"
    folder.mkdir(parents=True)
    for number, path in enumerate(found):
        (folder / f"{number:06d}{path.suffix.lower()}").write_bytes(path.read_bytes())
    source = FolderSource(scratch / "folder" / "train")
    shards = pack_shards(source, scratch / "shards", "train", shard_bytes=1 << 28, restarts=True, workers=workers)
    raw = pack_raw(source, scratch / "raw", "train", short_side_px=256, workers=workers)
    print(
        f"{len(found)} images, {shards.source_bytes / 2**20:.1f} MiB; shards {shards.bytes / 2**20:.1f} MiB "
        f"({shards.restart_indexed} restart-indexed); raw at short side 256 {raw.bytes / 2**20:.1f} MiB",
        file=sys.stderr,
    )
    return {name: str(scratch / name) for name in ("folder", "shards", "raw")}


def contenders(places: dict[str, str], workers: int, dali: bool) -> tuple[list[Contender], list[tuple[str, str]]]:
    named = [
        Contender(name=name, kind="native", path=path, workers=workers, lengthened=LENGTHENED[name])
        for name, path in places.items()
    ]
    named.append(Contender(name="pillow", kind="pillow", path=places["folder"], workers=workers))
    pairs = [(name, "pillow") for name in places]
    if dali:
        named.append(Contender(name="dali", kind="dali", path=places["folder"], workers=workers))
        pairs += [("folder", "dali"), ("shards", "dali")]
    return named, pairs


def scaling(places: dict[str, str]) -> tuple[list[Contender], list[tuple[str, str]]]:
    """Two workers beside one, and beside two programs that share nothing, which is all that the cores have to give."""
    named = [
        Contender(name=f"{name} {called}", kind=kind, path=path, workers=workers, lengthened=LENGTHENED[name])
        for name, path in places.items()
        for called, kind, workers in (("x1", "native", 1), ("x2", "native", 2), ("apart", "apart", 2))
    ]
    pairs = (("x2", "x1"), ("apart", "x1"), ("x2", "apart"))
    return named, [(f"{name} {a}", f"{name} {b}") for name in places for a, b in pairs]


def threads_or_processes(places: dict[str, str]) -> tuple[list[Contender], list[tuple[str, str]]]:
    """The same reader in the loader's threads, and in the worker processes of PyTorch's DataLoader."""
    named = [
        Contender(
            name=f"{name} {kind} x{workers}", kind="native" if kind == "threads" else "processes", path=path,
            workers=workers, lengthened=LENGTHENED[name],
        )
        for name, path in places.items()
        for workers in (1, 2)
        for kind in ("threads", "processes")
    ]  # fmt: skip
    return named, [(f"{name} threads x{w}", f"{name} processes x{w}") for name in places for w in (1, 2)]


def show(measured: list[Measured], pairs: list[tuple[str, str]], clocks: tuple[Clock, ...], as_json: bool) -> None:
    found = report(measured, pairs, clocks)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    print(f"{found['time']}  {found['cores']} core(s), load {found['load_average']:.2f}")
    for row in found["contenders"]:
        print(
            f"  {row['name']:20s} {row['images_per_s']:9,.1f} img/s {row['cpu_us_per_image']:9,.1f} us of processor an image "
            f"{row['rss_mib']:5d} MiB, {row['grew_mib']:4d} of them for this  threads blocked {row['blocked']:.1%}"
        )
    print(f"  the loader's buffers: {(PREFETCH + 2) * BATCH * IMAGE_PX**2 * 3 / 2**20:.0f} MiB, whatever the workers")
    for row in found["ratios"]:
        aimed = TARGETS.get((row["name"].split()[-1], row["against"].split()[-1]))
        target = f"  target {aimed:g}: {'met' if row['median'] >= aimed else 'MISSED'}" if aimed else ""
        known = "no interval" if row["low"] is None else f"95 % {row['low']:.2f} to {row['high']:.2f}"
        print(
            f"  {row['name']:20s} / {row['against']:20s} {row['clock']:11s} {row['median']:6.2f}  "
            f"({known}, {row['rounds']} rounds){target}"
        )


def has_dali() -> bool:
    try:
        import nvidia.dali  # noqa: F401
    except ImportError:
        print("DALI is not installed: left out (pip install 'vernier[dali]')", file=sys.stderr)
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("VERNIER_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data") / "coco"
    parser.add_argument("folder", type=Path, nargs="?", default=default, metavar="IMAGES")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--images", type=int, default=500, help="a round")
    parser.add_argument("--only", choices=("peers", "scaling", "threads"), default=None)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        places = lay_out(given.folder, Path(scratch), 2)

        def run(part: str, asked: tuple[list[Contender], list[tuple[str, str]]], *clocks: Clock) -> None:
            if given.only in (None, part):
                show(compare(asked[0], rounds=given.rounds, images=given.images), asked[1], clocks, given.json)

        run(
            "peers",
            contenders(places, given.workers, given.only in (None, "peers") and has_dali()),
            "passed",
            "processor",
        )
        if len(os.sched_getaffinity(0)) > 1:
            run("scaling", scaling(places), "passed", "undisturbed")
            run("threads", threads_or_processes(places), "passed", "processor")


if __name__ == "__main__":
    main()
