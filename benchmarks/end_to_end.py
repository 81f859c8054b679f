"""What feeding a training, and everything around its steps, costs.

`feed`: a network trained from JPEG files, decoded, cropped and resized every time, beside the same network on one batch
that stays in memory. Both take turns in one process, a block of steps each; the first steps of a block are not counted,
because the loader fills its queue meanwhile. Prints the ratio of images per second, JPEG over memory, block by block.

`run`: `vernier train` with evaluation, telemetry and checkpoints. Prints the share of its time that steps of median
length and the evaluations would take alone, (steps x median step + evaluation) / total, and the share of everything
but steps, data wait and evaluation: disturbed steps lower the first and not the second.

    python benchmarks/end_to_end.py feed IMAGES [--network resnet50] [--batch 16] [--rounds 7] [--block 6]
    python benchmarks/end_to_end.py run [--rounds 3] -- ARGUMENTS OF vernier train
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from loop_overhead import format_median
from training_step import random_batch, step_config

from vernier.api.starting import limit_spinning
from vernier.clock import now_s, process_cpu_s, utc_stamp
from vernier.config import Machine

SUFFIXES = (".jpg", ".jpeg")
CLASSES = 2


def link_images(images: Path, folder: Path) -> Path:
    """The photographs below `images` as a training set of two classes, by links."""
    files = sorted(file for file in images.rglob("*") if file.suffix.lower() in SUFFIXES)
    if not files:
        raise SystemExit(f"There is no JPEG file below {images}.")
    for split, number in itertools.product(("train", "val"), range(CLASSES)):
        (folder / split / f"class{number}").mkdir(parents=True)
    for index, file in enumerate(files):
        for split in ("train", "val"):
            name = f"{index:05d}{file.suffix}"
            (folder / split / f"class{index % CLASSES}" / name).symlink_to(file.resolve())
    return folder


def feed(images: Path, network: str, count: int, rounds: int, block: int, machine: Machine) -> None:
    from vernier.data.loading.loader import Batch
    from vernier.engine.training.setup import prepare

    with tempfile.TemporaryDirectory() as folder:
        job = prepare(step_config(network, count, 224, machine, source=str(link_images(images, Path(folder)))))
        steps = itertools.count()
        pixels, labels = random_batch(network, count, 224)
        resident = itertools.repeat(Batch(pixels, labels % CLASSES, 0.0))

        def seconds_of(batches: Iterator[Batch]) -> tuple[float, float]:
            """Wall seconds and those of the processor, all threads."""
            for _ in range(machine.prefetch + 2):
                job.step(next(steps), batches)
            began_s, began_cpu_s = now_s(), process_cpu_s()
            for _ in range(block):
                job.step(next(steps), batches)
            return now_s() - began_s, process_cpu_s() - began_cpu_s

        ratios, by_processor, speeds = [], [], []
        for number in range(rounds + 1):
            first = next(steps)
            loaded = job.loader.batches(job.requests(first, first + 2**30))
            from_files, from_files_cpu = seconds_of(loaded)
            loaded.close()
            in_memory, in_memory_cpu = seconds_of(resident)
            if number:  # the first round warms up
                ratios.append(in_memory / from_files)
                by_processor.append(in_memory_cpu / from_files_cpu)
                speeds.append(count * block / from_files)
        job.close()
    print(f"{utc_stamp()}  {network}, batch {count}, {machine.workers} loader threads, n = {rounds} blocks of {block}")
    print(
        f"from JPEG / from memory: {format_median(ratios, 3)}, by processor time {format_median(by_processor, 3)}; "
        f"{format_median(speeds, 2)} img/s from JPEG"
    )


def run(rounds: int, arguments: list[str]) -> None:
    shares = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-m", "vernier", "train", *arguments, "--out", out, "--json"]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            summary = json.loads((Path(json.loads(done.stdout)["run"]) / "run.json").read_text())["summary"]
        spent, median_s = summary["spent_s"], summary["training"]["step_s_median"]
        shares.append((summary["step"] * median_s + spent["evaluation"]) / spent["total"])
        parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in spent.items())
        around = (spent["checkpoint"] + spent["other"]) / spent["total"]
        print(
            f"{utc_stamp()}  {summary['step']} steps of {median_s:.4f} s (median); {parts}: {shares[-1]:.3f}, and "
            f"{100 * around:.1f} % beside steps and evaluation",
            flush=True,
        )
    print(f"(steps x median step + evaluation) / total: {min(shares):.3f} to {max(shares):.3f}, n = {rounds}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    feeding = commands.add_parser("feed")
    feeding.add_argument("images", type=Path)
    feeding.add_argument("--network", default="resnet50")
    feeding.add_argument("--batch", type=int, default=16)
    feeding.add_argument("--block", type=int, default=6)
    feeding.add_argument("--rounds", type=int, default=7)
    feeding.add_argument("--workers", type=int, default=Machine().workers)
    feeding.add_argument("--convolution", default="torch", choices=["torch", "winograd"])
    running = commands.add_parser("run")
    running.add_argument("--rounds", type=int, default=3)
    running.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    limit_spinning()
    if options.command == "run":
        run(options.rounds, options.arguments)
        return
    machine = Machine(workers=options.workers, convolution=options.convolution, cache_share=0.0)
    feed(options.images, options.network, options.batch, options.rounds, options.block, machine)


if __name__ == "__main__":
    main()
