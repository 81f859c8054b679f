"""What it costs to know how long each training step took.

The same network, batch and step run in alternating blocks in one process: a plain loop that is timed only at the end of
a block, `vernier train`'s loop as it times steps by default (host clock, device events or windows, as the device can),
and with `machine.step_times=each` where that synchronises after every step. Prints the time of each beside the plain
loop: the median ratio of the blocks of a round, with a 95 % interval.

    python benchmarks/step_times.py [--device cpu] [--rounds 30] [--block 20] [--report 10]
"""

import argparse
import itertools
import os
import random
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line sets it, before torch is imported

import torch

from vernier.clock import now_s, utc_stamp
from vernier.config import Config, Data, Eval, Limits, Machine, Model, Recipe, Schedule
from vernier.data.loading.loader import Batch
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.devices import resolve
from vernier.engine.observe import Observers, Recorder
from vernier.engine.training.loop import Training
from vernier.engine.training.setup import Job, prepare
from vernier.engine.training.stop import StopFlag
from vernier.lab.statistics.quantiles import quantile_estimate
from vernier.measure.environment import collect_environment
from vernier.optim.kinds.sgd import Sgd
from vernier.records.run import Progress
from vernier.store import RunDir

BATCH, PX = 32, 32
PLAIN = "plain loop"
Steps = Callable[[int], None]


def build_job(root: Path, options: argparse.Namespace) -> Job:
    data = make_shapes(root / "shapes", ShapesSpec(train=BATCH * 2, val=10, size_px=PX))
    recipe = Recipe(
        name="step-times",
        global_batch=BATCH,
        model=Model(name="resnet8-small"),
        data=Data(source=str(data), image_px=PX, eval_px=PX, eval_short_side_px=PX),
        optim=Sgd(lr=1e-4),
        schedule=Schedule(epochs=1e6),
        eval=Eval(every_epochs=0),
    )
    machine = Machine(device=options.device, threads=options.threads)
    return prepare(Config(recipe=recipe, machine=machine, limits=Limits(log_every_steps=options.report)))


def plain_steps(job: Job, batch: Batch) -> Steps:
    """The step alone: nothing is timed, read or written until the block ends."""
    batches = itertools.repeat(batch)

    def run(count: int) -> None:
        for step in range(count):
            job.step(step, batches)

    return run


def recorded_steps(job: Job, batch: Batch, run_dir: RunDir, step_times: str) -> Steps:
    """The code path of `vernier train`: every step timed, every window reported."""
    config = replace(job.config, machine=replace(job.config.machine, step_times=step_times))
    events = Observers(Recorder(run_dir.events()))
    training = Training(replace(job, config=config), run_dir, events, StopFlag(), Progress())
    batches = itertools.repeat(batch)

    def run(count: int) -> None:
        training.window.restart()
        for _ in range(count):
            training._one_step(batches)

    return run


def measure(job: Job, arms: dict[str, Steps], rounds: int, block: int) -> dict[str, list[float]]:
    """Seconds per step of every arm and round; the order within a round is random."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds + 1):
        for name in random.sample(sorted(arms), len(arms)):
            job.device.synchronize()
            began_s = now_s()
            arms[name](block)
            job.device.synchronize()
            if number:  # the first round warms up
                seconds[name].append((now_s() - began_s) / block)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--block", type=int, default=20, help="steps of one arm per round")
    parser.add_argument("--report", type=int, default=10, help="steps per report; a divisor of --block")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.block % options.report:
        parser.error(f"--block {options.block} is not a multiple of --report {options.report}.")
    device = resolve(options.device)
    environment = collect_environment([], device.name, options.threads)
    print(
        f"{utc_stamp()}  {environment.cpu.cores_logical} cores, torch {environment.versions['torch']}, "
        f"load {environment.cpu.load_average}; device {device.name}, resnet8-small, batch {BATCH} at {PX} px"
    )
    with tempfile.TemporaryDirectory() as scratch:
        job = build_job(Path(scratch), options)
        images = torch.randint(0, 256, (BATCH, PX, PX, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
        batch = Batch(images, torch.randint(0, 10, (BATCH,)), 0.0)
        arms = {PLAIN: plain_steps(job, batch)}
        arms[device.step_times] = recorded_steps(job, batch, RunDir.create(Path(scratch), "auto"), "auto")
        if device.step_times == "windows":
            arms["each"] = recorded_steps(job, batch, RunDir.create(Path(scratch), "each"), "each")
        seconds = measure(job, arms, options.rounds, options.block)
        job.close()
    for name, of_arm in seconds.items():
        ratio = quantile_estimate([s / p for s, p in zip(of_arm, seconds[PLAIN], strict=True)], 0.5)
        low, high = ("?" if end is None else f"{end:.4f}" for end in (ratio.low, ratio.high))
        beside = "" if name == PLAIN else f"; {ratio.value:.4f} ({low} to {high}) times the plain loop"
        print(f"{name:14s} {1000 * statistics.median(of_arm):8.3f} ms per step{beside}")
    print(f"medians with 95 % intervals, n = {options.rounds} rounds of {options.block} steps per arm")


if __name__ == "__main__":
    main()
