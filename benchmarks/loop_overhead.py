"""The overhead of Vernier's training loop over a loop written by hand.

The same network, weights, batch and data tensor go through Vernier's loop (step, schedule, window, events on disk) and
through the loop one would write by hand, in alternating blocks in one process. Prints the ratio of images per second
with a 95 % interval from the paired blocks.

    python benchmarks/loop_overhead.py [--pairs 40] [--block 4] [--threads N] [--model mypackage:Net]
"""

import argparse
import copy
import itertools
import os
import random
import statistics
import tempfile
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line sets it, before torch is imported

import torch

from vernier.clock import now_s, process_cpu_s, utc_stamp
from vernier.config import Config, Data, Eval, Limits, Machine, Model, Recipe, Schedule
from vernier.cores import allowed_cores
from vernier.data.loading.loader import Batch
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.engine.observe import Observers, Recorder
from vernier.engine.training.loop import Training
from vernier.engine.training.setup import Job, prepare
from vernier.engine.training.stop import StopFlag
from vernier.lab.statistics.quantiles import quantile_estimate
from vernier.measure.environment import collect_environment
from vernier.optim.kinds.sgd import Sgd
from vernier.records.run import Progress
from vernier.store import RunDir


def build_job(root: Path, model: str, batch: int, image_px: int, threads: int | None) -> Job:
    data = make_shapes(root / f"shapes-{batch}", ShapesSpec(train=batch * 2, val=10, size_px=32))
    recipe = Recipe(
        name="overhead",
        global_batch=batch,
        model=Model(name=model),
        data=Data(source=str(data), image_px=image_px, eval_px=image_px, eval_short_side_px=image_px),
        optim=Sgd(lr=1e-4),
        schedule=Schedule(epochs=1e6),
        eval=Eval(every_epochs=0),
    )
    return prepare(Config(recipe=recipe, machine=Machine(threads=threads), limits=Limits()))


class VernierLoop:
    """The code path of `vernier train`, fed with one fixed batch."""

    def __init__(self, job: Job, run: RunDir, batch: Batch) -> None:
        self._training = Training(job, run, Observers(Recorder(run.events())), StopFlag(), Progress())
        self._batches = itertools.repeat(batch)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self._training._one_step(self._batches)


class BareLoop:
    """A loop written by hand: the same memory layout, normalisation, optimiser groups and loss, nothing else."""

    def __init__(self, job: Job, batch: Batch) -> None:
        self._model = copy.deepcopy(job.model)
        decayed = [p for p in self._model.parameters() if p.ndim > 1]
        others = [p for p in self._model.parameters() if p.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": 1e-4}, {"params": others, "weight_decay": 0.0}]
        self._optimizer = torch.optim.SGD(groups, lr=1e-4, momentum=0.9)
        self._loss = torch.nn.CrossEntropyLoss()
        mean, std = torch.tensor(job.config.recipe.data.mean), torch.tensor(job.config.recipe.data.std)
        self._mean, self._std = mean.view(1, 3, 1, 1) * 255, std.view(1, 3, 1, 1) * 255
        self._images, self._labels = batch.images, batch.targets

    def steps(self, count: int) -> None:
        for _ in range(count):
            images = (self._images.float() - self._mean) / self._std
            self._optimizer.zero_grad()
            loss = self._loss(self._model(images), self._labels)
            loss.backward()
            self._optimizer.step()


def time_steps(loop: VernierLoop | BareLoop, count: int) -> tuple[float, float]:
    """Wall seconds, and CPU seconds of all threads, which other programs on the machine disturb less."""
    wall, cpu = now_s(), process_cpu_s()
    loop.steps(count)
    return now_s() - wall, process_cpu_s() - cpu


def compare(model: str, batch_size: int, image_px: int, pairs: int, block: int, threads: int | None) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        job = build_job(Path(scratch), model, batch_size, image_px, threads)
        images = torch.randint(0, 256, (batch_size, image_px, image_px, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
        batch = Batch(images, torch.randint(0, 10, (batch_size,)), 0.0)
        vernier, bare = VernierLoop(job, RunDir.create(Path(scratch), "overhead"), batch), BareLoop(job, batch)
        time_steps(vernier, 3), time_steps(bare, 3)
        wall, cpu, vernier_s, bare_s = [], [], [], []
        for _ in range(pairs):
            seconds = {which: time_steps(vernier if which == 0 else bare, block) for which in random.sample([0, 1], 2)}
            vernier_s.append(seconds[0][0])
            bare_s.append(seconds[1][0])
            wall.append(seconds[1][0] / seconds[0][0])
            cpu.append(seconds[1][1] / seconds[0][1])
        job.close()
    vernier_rate, bare_rate = (batch_size * block / statistics.median(seconds) for seconds in (vernier_s, bare_s))
    print(
        f"{model:16s} batch {batch_size:4d} at {image_px:3d} px: Vernier {vernier_rate:8.1f} img/s, "
        f"bare {bare_rate:8.1f} img/s; ratio {format_median(wall)}, by CPU time {format_median(cpu)}; "
        f"medians with 95 % intervals, n = {pairs} pairs of {block} steps",
        flush=True,
    )


def format_median(ratios: list[float], digits: int = 4) -> str:
    """The median with its 95 % interval; an end that so few samples cannot tell is `?`."""
    median = quantile_estimate(ratios, 0.5)
    low, high = ("?" if end is None else f"{end:.{digits}f}" for end in (median.low, median.high))
    return f"{median.value:.{digits}f} ({low} to {high})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--block", type=int, default=4)
    parser.add_argument("--model", help="a model of your own, mypackage:Net, instead of three built-in ones")
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    environment = collect_environment([], "cpu", options.threads or len(allowed_cores()))
    print(
        f"{utc_stamp()}  {environment.cpu.cores_logical} cores, torch {environment.versions['torch']}, "
        f"load {environment.cpu.load_average}"
    )
    own = [(options.model, 64, 32)] if options.model else []
    for model, batch, px in own or [("resnet8-small", 64, 32), ("resnet20-cifar", 128, 32), ("resnet18", 32, 64)]:
        compare(model, batch, px, options.pairs, options.block, options.threads)


if __name__ == "__main__":
    main()
