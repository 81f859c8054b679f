"""Vernier's loader beside PyTorch's DataLoader over Pillow and beside DALI, on one folder of images.

The images are written as a folder, as restart-indexed shards and decoded, into a temporary folder. Then the loaders
take turns: with those of others and with machine.backend = compiled (peers), two workers with one and with two separate
programs (scaling), and threads with processes (threads). And how many images per second `vernier data prepare` writes,
beside the program jpegtran (prepare). Usage: python benchmarks/loader.py [IMAGES] [--workers 1] [--rounds 15]
[--images 500] [--only peers] [--json]

Ratios are of wall time, and again of processor time, which other programs do not disturb.

IMAGES is any folder with images below it (default: the photographs of the tests).
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from loading import (
    BATCH,
    PREFETCH,
    Clock,
    LoaderReport,
    LoaderSpec,
    measure_loaders,
    native_batches,
    native_reader,
    summarize_loaders,
)

from vernier.clock import now_s
from vernier.compat.preparing.packing import pack_raw, pack_shards
from vernier.compat.preparing.restarts import _choose_restart_interval, add_restart_markers, find_writer
from vernier.config import Config, Data, Recipe, override
from vernier.cores import allowed_cores
from vernier.data.decoding.jpeg_slicing import NotSliceable, find_segments, parse_header
from vernier.data.sources.folder import IMAGE_SUFFIXES, FolderSource
from vernier.frozen import frozen
from vernier.records.codec import encode

IMAGE_PX = 224
TARGETS = {
    ("folder", "pillow"): 2.0,
    ("folder-compiled", "pillow"): 2.6,
    ("shards", "pillow"): 3.0,
    ("shards-compiled", "pillow"): 3.2,
    ("shards", "dali"): 2.3,
    ("shards-compiled", "dali"): 2.5,
    ("raw", "pillow"): 25.0,
    ("x2", "x1"): 1.93,
}
ROUND_FACTORS = {"folder": 1, "shards": 1, "raw": 10}
Plan = tuple[list[LoaderSpec], list[tuple[str, str]]]
"""Loaders, and which of them to compare."""


# ------------------------------------------------------------------------------------------- Vernier's reader elsewhere


class ReaderInWorkers:
    """Vernier's reader as a DataLoader's data set: each worker process makes whole batches, sent in shared memory."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._opened: Any = None

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, step: int) -> Any:
        import torch

        if self._opened is None:
            self._opened = native_reader(self._config)
        reader, order = self._opened
        epoch, at = divmod(step, order.steps_per_epoch)
        out = torch.empty((order.global_batch, *reader.shape), dtype=torch.uint8)
        reader.fill(epoch, order.indices(epoch, at, 0), out.numpy())
        return out


def worker_process_batches(config: Config) -> Iterator[int]:
    """Vernier's reader in the worker processes of PyTorch's DataLoader."""
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(
        ReaderInWorkers(config),  # type: ignore[arg-type]
        batch_size=None,
        shuffle=False,
        num_workers=config.machine.workers,
        prefetch_factor=PREFETCH,
    )
    for images in loader:
        yield len(images)


def separate_program_batches(config: Config) -> Iterator[int]:
    """As many programs as workers, each with one worker and its own batches, which are thrown away: the most that the
    cores can give."""
    context = multiprocessing.get_context("spawn")
    sizes: Any = context.Queue(PREFETCH)
    alone = override(config, "machine.workers", 1)
    for _ in range(config.machine.workers):
        context.Process(target=_send_sizes, args=(alone, sizes), daemon=True).start()
    while True:
        yield sizes.get()


def _send_sizes(config: Config, sizes: Any) -> None:
    import torch

    torch.set_num_threads(1)
    for images in native_batches(config):
        sizes.put(images)


# ------------------------------------------------------------------------------------------------------- comparisons


def write_layouts(images: Path, scratch: Path, workers: int) -> dict[str, str]:
    """The same images as a folder, as shards and decoded; the path of each."""
    files = sorted(p for p in images.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        sys.exit(f"No images below {images}.")
    folder = scratch / "folder" / "train" / "all"
    folder.mkdir(parents=True)
    for number, path in enumerate(files):
        (folder / f"{number:06d}{path.suffix.lower()}").write_bytes(path.read_bytes())
    source = FolderSource(scratch / "folder" / "train")
    shards = pack_shards(source, scratch / "shards", "train", shard_bytes=1 << 28, restarts=True, workers=workers)
    raw = pack_raw(source, scratch / "raw", "train", short_side_px=256, workers=workers)
    print(
        f"{len(files)} images, {shards.source_bytes / 2**20:.1f} MiB; shards {shards.bytes / 2**20:.1f} MiB "
        f"({shards.restart_indexed} restart-indexed); raw at short side 256 {raw.bytes / 2**20:.1f} MiB",
        file=sys.stderr,
    )
    return {name: str(scratch / name) for name in ("folder", "shards", "raw")}


def loading_config(path: str, workers: int, recipe: Recipe | None = None, backend: str = "native") -> Config:
    """What to load: the images below a path, by so many workers, prepared as the recipe says."""
    config = Config(recipe=recipe or Recipe(data=Data(image_px=IMAGE_PX)))
    for name, value in (("data.source", path), ("machine.workers", workers), ("machine.backend", backend)):
        config = override(config, name, value)
    return config


def _native(name: str, path: str, layout: str, workers: int, backend: str = "native") -> LoaderSpec:
    config = loading_config(path, workers, backend=backend)
    return LoaderSpec(name=name, config=config, round_factor=ROUND_FACTORS[layout])


def plan_peers(layouts: dict[str, str], workers: int, dali: bool) -> Plan:
    """Every layout beside the loaders of others, which read the folder."""
    specs = [_native(name, path, name, workers) for name, path in layouts.items()]
    folder = loading_config(layouts["folder"], workers)
    specs.append(LoaderSpec(name="pillow", loader="peers:pillow_batches", config=folder))
    specs += [_native(f"{name}-compiled", layouts[name], name, workers, "compiled") for name in ("folder", "shards")]
    pairs = [(spec.name, "pillow") for spec in specs if spec.name != "pillow"]
    pairs += [(f"{name}-compiled", name) for name in ("folder", "shards")]
    if dali:
        specs.append(LoaderSpec(name="dali", loader="peers:dali_batches", config=folder))
        pairs += [(spec.name, "dali") for spec in specs if spec.name.startswith(("folder", "shards"))]
    return specs, pairs


def plan_scaling(layouts: dict[str, str]) -> Plan:
    """Two workers beside one, and beside two programs that share nothing."""
    specs = []
    for name, path in layouts.items():
        one, two = (_native(f"{name} x{workers}", path, name, workers) for workers in (1, 2))
        specs += [one, two, replace(two, name=f"{name} apart", loader="loader:separate_program_batches")]
    pairs = (("x2", "x1"), ("apart", "x1"), ("x2", "apart"))
    return specs, [(f"{name} {a}", f"{name} {b}") for name in layouts for a, b in pairs]


def plan_threads(layouts: dict[str, str]) -> Plan:
    """The same reader in the loader's threads, and in the worker processes of PyTorch's DataLoader."""
    specs = []
    for name, path in layouts.items():
        for workers in (1, 2):
            threads = _native(f"{name} threads x{workers}", path, name, workers)
            specs += [
                threads,
                replace(threads, name=f"{name} processes x{workers}", loader="loader:worker_process_batches"),
            ]
    return specs, [(f"{name} threads x{w}", f"{name} processes x{w}") for name in layouts for w in (1, 2)]


def show(report: LoaderReport) -> None:
    print(f"{report.time}  {report.cores} core(s), load {report.load_average:.2f}")
    for row in report.contenders:
        print(
            f"  {row.name:20s} {row.images_per_s:9,.1f} img/s {row.cpu_us_per_image:9,.1f} us of processor per image "
            f"{row.grew_mib:4d} MiB"
        )
    buffers_mib = (PREFETCH + 2) * BATCH * report.image_px**2 * 3 / 2**20
    print(f"  the loader's buffers: {buffers_mib:.0f} MiB, whatever the workers")
    for ratio in report.ratios:
        aim = TARGETS.get((ratio.name.split()[-1], ratio.against.split()[-1]))
        target = f"  target {aim:g}: {'met' if ratio.median >= aim else 'MISSED'}" if aim else ""
        interval = "no interval" if ratio.low is None else f"95 % {ratio.low:.2f} to {ratio.high:.2f}"
        print(
            f"  {ratio.name:20s} / {ratio.against:20s} {ratio.clock:11s} {ratio.median:6.2f}  "
            f"({interval}, {ratio.rounds} rounds){target}"
        )


# --------------------------------------------------------------------------------------------------------- preparing


@frozen
class Rate:
    """Images per second over the rounds of one way to prepare: median, lowest, highest; and processor time per image,
    programs that it starts included."""

    name: str
    images_per_s: float
    low: float
    high: float
    cpu_ms_per_image: float
    rounds: int


def measure_preparing(folder: Path, scratch: Path, rounds: int) -> tuple[Rate, ...]:
    """Take turns with the formats, and with restart markers alone, by us and by jpegtran, one image at a time."""
    source = FolderSource(folder)
    images = [source.read(i) for i in range(len(source))]
    ways: dict[str, Callable[[Path], object]] = {
        f"{name} x{workers}": partial(_pack, source, workers=workers, restarts=restarts)
        for name, restarts in (("shards", True), ("shards without restarts", False))
        for workers in (1, 2)
    }
    ways["raw x1"] = lambda out: pack_raw(source, out, "train", short_side_px=256, workers=1)
    ways["restart markers, ours"] = lambda out: _add_markers(images)
    if shutil.which("jpegtran"):
        ways["restart markers, jpegtran"] = lambda out: [_call_jpegtran(image) for image in images]
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds + 1):  # the first is dropped
        for name, work in random.Random(number).sample(list(ways.items()), len(ways)):
            out = scratch / f"prepared-{number}"
            start_s, start_cpu_s = now_s(), _cpu_with_children_s()
            work(out)
            spent[name].append((now_s() - start_s, _cpu_with_children_s() - start_cpu_s))
            shutil.rmtree(out, ignore_errors=True)
    return tuple(_rate(name, len(images), times[1:]) for name, times in spent.items())


def _rate(name: str, images: int, times: list[tuple[float, float]]) -> Rate:
    rates = [images / wall for wall, _ in times]
    return Rate(
        name=name,
        images_per_s=statistics.median(rates),
        low=min(rates),
        high=max(rates),
        cpu_ms_per_image=1000 * statistics.median(cpu for _, cpu in times) / images,
        rounds=len(times),
    )


def _pack(source: FolderSource, out: Path, *, workers: int, restarts: bool) -> object:
    return pack_shards(source, out, "train", shard_bytes=1 << 28, restarts=restarts, workers=workers)


def _add_markers(images: list[bytes]) -> None:
    writer = find_writer()
    for image in images:
        with suppress(NotSliceable):
            add_restart_markers(image, writer)


def _call_jpegtran(image: bytes) -> None:
    """What one would call without a writer of our own."""
    with suppress(NotSliceable):
        interval = _choose_restart_interval(parse_header(image).mcus_per_row)
        command = ["jpegtran", "-copy", "none", "-optimize", "-restart", f"{interval}B"]
        find_segments(subprocess.run(command, input=image, capture_output=True, check=False).stdout)


def _cpu_with_children_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def show_rates(rates: tuple[Rate, ...]) -> None:
    for rate in rates:
        print(
            f"  {rate.name:26s} {rate.images_per_s:8.1f} images/s ({rate.low:.1f} to {rate.high:.1f}, "
            f"{rate.rounds} rounds) {rate.cpu_ms_per_image:6.2f} ms of processor per image"
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
    parser.add_argument("--images", type=int, default=500, help="per round")
    parser.add_argument("--only", choices=("peers", "scaling", "threads", "prepare"), default=None)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        layouts = write_layouts(arguments.folder, Path(scratch), 2)

        def run(part: str, plan: Plan, *clocks: Clock) -> None:
            if arguments.only in (None, part):
                loaders = measure_loaders(plan[0], rounds=arguments.rounds, images=arguments.images)
                report = summarize_loaders(loaders, plan[1], clocks)
                print(json.dumps(encode(report), indent=1)) if arguments.json else show(report)

        dali = arguments.only in (None, "peers") and has_dali()
        run("peers", plan_peers(layouts, arguments.workers, dali), "passed", "processor")
        if len(allowed_cores()) > 1:
            run("scaling", plan_scaling(layouts), "passed", "processor")
            run("threads", plan_threads(layouts), "passed", "processor")
        if arguments.only in (None, "prepare"):
            rates = measure_preparing(Path(layouts["folder"]) / "train", Path(scratch), arguments.rounds)
            print(json.dumps(encode(rates), indent=1)) if arguments.json else show_rates(rates)


if __name__ == "__main__":
    main()
