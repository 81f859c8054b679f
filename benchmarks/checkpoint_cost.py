"""What saving a checkpoint costs a training: ResNet-50 with momentum and a moving average, about 300 MB.

Blocks of training steps alternate in one process: without a checkpoint, with one that is written beside training (the
default), with one that training waits for (`checkpoint.background=false`), and with `torch.save` in place, as most
scripts do, which is neither synced nor hashed. A block begins with the checkpoint, and ends when its steps are done and
the checkpoint is on disk. Prints how long training stood still per checkpoint, how much longer the block took, and how
much more processor time it used, which other programs disturb less. The share is that of one checkpoint per minute, of
all cores that train: the cost when they are all busy.

    python benchmarks/checkpoint_cost.py [--rounds 12] [--block-s 8] [--folder DIR] [--px 64] [--batch 32]
"""

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line sets it, before torch is imported

import torch

from vernier.clock import now_s, utc_stamp
from vernier.config import Checkpoint, Config, Data, Ema, Eval, Machine, Model, Optim, Recipe, Schedule
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.engine.training.checkpoints.contents import tensor_files
from vernier.engine.training.checkpoints.writer import CheckpointWriter
from vernier.engine.training.setup import Job, prepare
from vernier.lab.statistics.quantiles import quantile_estimate
from vernier.records.run import Progress
from vernier.store import Checkpoints

NONE = "no checkpoint"
Save = Callable[[int], float]
"""Save the checkpoint of a step; the seconds that training stood still."""


def build_job(root: Path, options: argparse.Namespace) -> Job:
    data = make_shapes(root / "shapes", ShapesSpec(train=options.batch * 2, val=10, size_px=options.px))
    recipe = Recipe(
        name="checkpoint-cost",
        global_batch=options.batch,
        model=Model(name="resnet50"),
        data=Data(source=str(data), image_px=options.px, eval_px=options.px, eval_short_side_px=options.px),
        optim=Optim(lr=1e-4),
        schedule=Schedule(epochs=1e6),
        eval=Eval(every_epochs=0),
        ema=Ema(decay=0.999),
    )
    return prepare(Config(recipe=recipe, machine=Machine()))


def vernier_saver(job: Job, folder: Path, *, background: bool) -> tuple[Save, Callable[[], None]]:
    """Saving as `vernier train` does, and waiting until it is on disk."""
    policy = Checkpoint(background=background, keep_last=2)
    writer = CheckpointWriter(Checkpoints(folder), policy, job.derived.steps_per_epoch)

    def save(step: int) -> float:
        state = job.state(Progress(step=step))
        return writer.save(tensor_files(job.model, job.optimizer, job.average), state)

    return save, writer.wait


def plain_saver(job: Job, folder: Path) -> tuple[Save, Callable[[], None]]:
    folder.mkdir()

    def save(step: int) -> float:
        began_s = now_s()
        assert job.average is not None
        tree = {"step": step, "model": job.model.state_dict(), "ema": job.average.tensors}
        torch.save({**tree, "optimizer": job.optimizer.state_dict()}, folder / "checkpoint.pt")
        return now_s() - began_s

    return save, lambda: None


def describe(name: str, values: list[float], unit: float = 1.0) -> str:
    middle = quantile_estimate([value * unit for value in values], 0.5)
    if middle.low is None or middle.high is None:
        return f"{name}: {middle.value:.3f} (too few rounds for an interval)"
    return f"{name}: {middle.value:.3f} (95 % interval {middle.low:.3f} to {middle.high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--block-s", type=float, default=8.0)
    parser.add_argument("--folder", type=Path, help="on the disk that is measured; default: the temporary folder")
    parser.add_argument("--px", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measure(Path(folder), options)


def measure(root: Path, options: argparse.Namespace) -> None:
    job = build_job(root, options)
    batches = repeat(next(job.loader.batches(job.requests(0, 1))))
    savers = {
        "beside training": vernier_saver(job, root / "beside", background=True),
        "training waits": vernier_saver(job, root / "waits", background=False),
        "torch.save in place": plain_saver(job, root / "plain"),
    }
    steps = [_timed(lambda: job.step(0, batches)) for _ in range(4)]
    block = max(2, round(options.block_s / statistics.median(steps[1:])))
    stalls: dict[str, list[float]] = {name: [] for name in savers}
    extra: dict[str, list[float]] = {name: [] for name in savers}
    extra_cpu: dict[str, list[float]] = {name: [] for name in savers}
    for number in range(1, options.rounds + 1):
        took, used = {}, {}
        for name in random.sample([NONE, *savers], k=len(savers) + 1):
            began_s, began_cpu_s = now_s(), time.process_time()
            _block(job, batches, block, name, number, savers, stalls)
            took[name], used[name] = now_s() - began_s, time.process_time() - began_cpu_s
        for name in savers:
            extra[name].append(took[name] - took[NONE])
            extra_cpu[name].append(used[name] - used[NONE])
    size = sum(p.stat().st_size for p in (root / "waits").glob("step-*/*")) / 2e6
    print(f"{utc_stamp()}; ResNet-50, {size:.0f} MB per checkpoint, {torch.get_num_threads()} threads,")
    print(
        f"{options.rounds} rounds of blocks of {block} steps, about {block * statistics.median(steps[1:]):.0f} s each"
    )
    for name in savers:
        print(f"\n{name}")
        print(describe("  seconds that training stood still", stalls[name]))
        print(describe("  seconds that the block took longer", extra[name]))
        print(describe("  processor seconds that the block took more", extra_cpu[name]))
        share = 100 / 60 / torch.get_num_threads()
        print(describe("  share of the processor time at one checkpoint per minute, %", extra_cpu[name], share))
    ratios = [a / b for a, b in zip(stalls["beside training"], stalls["training waits"], strict=True)]
    print("\n" + describe("stall beside training / training waits", ratios))


def _block(job: Job, batches: object, steps: int, name: str, number: int, savers: dict, stalls: dict) -> None:  # type: ignore[type-arg]
    save, wait = savers.get(name, (None, lambda: None))
    if save is not None:
        stalls[name].append(save(number))
    for step in range(steps):
        job.step(step, batches)  # type: ignore[arg-type]
    wait()


def _timed(work: Callable[[], object]) -> float:
    began_s = now_s()
    work()
    return now_s() - began_s


if __name__ == "__main__":
    main()
