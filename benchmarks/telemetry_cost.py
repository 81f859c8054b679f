"""What telemetry and events cost a training: the same steps with and without them, in turns, in one process.

Both sides run the code path of `vernier train`. One samples the sensors at 10 Hz and writes every event; the other does
neither. Blocks of steps take turns in random order, so whatever else the machine does meets both. Reported are the ratio of
processor time of all threads, which other programs disturb least, and of wall time: by `vernier.measure.statistics.comparison`, as
`vernier compare` does it, and as the median over rounds, which a few disturbed blocks cannot move. And, where the machine is
too noisy for either: the processor time that the sampling thread and the writing of events took by their own clocks.

    python benchmarks/telemetry_cost.py [--rounds 30] [--block 20] [--threads N] [--hz 10] [--model NAME]...
"""

import argparse
import itertools
import os
import random
import tempfile
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line sets it, before torch is imported

import torch
from loop_overhead import build_job

from vernier.clock import now_s, process_cpu_s, thread_cpu_s, utc_stamp
from vernier.data.loading.loader import Batch
from vernier.engine.observe import Observers, Recorder, Telemetry
from vernier.engine.training.loop import Training
from vernier.engine.training.setup import Job
from vernier.engine.training.stop import StopFlag
from vernier.measure.statistics.comparison import Trace, compare
from vernier.measure.statistics.estimates import quantile_estimate
from vernier.records.checkpoint import Progress
from vernier.records.events import Event
from vernier.records.telemetry import TelemetryEnd, decode_telemetry
from vernier.store import RunDir

LOADS = (("resnet8-small", 64, 32), ("resnet18", 32, 64))


class Accounted(Recorder):
    """Writes events, and knows the processor time that took."""

    cpu_s = 0.0

    def emit(self, event: Event) -> None:
        began_s = thread_cpu_s()
        super().emit(event)
        self.cpu_s += thread_cpu_s() - began_s


class Side:
    """A training session that steps over one fixed batch; `hz` 0: no telemetry and no event file."""

    def __init__(self, job: Job, root: Path, batch: Batch, hz: float) -> None:
        self._run = RunDir.create(root, f"cost-{hz:g}")
        self._sensed = RunDir.create(
            root, f"sensors-{hz:g}"
        )  # starting in a run of many events would mean reading them
        self._recorder = Accounted(self._run.events())
        observers = Observers(self._recorder) if hz else Observers()
        self._training = Training(job, self._run, observers, StopFlag(), Progress())
        self._batches, self._job, self._hz = itertools.repeat(batch), job, hz

    def block(self, steps: int) -> tuple[float, float]:
        """Wall and processor seconds of a block, with the sampler started and ended outside of them."""
        with Telemetry(self._sensed, self._job.device.name, self._hz):
            wall, cpu = now_s(), process_cpu_s()
            for _ in range(steps):
                self._training._one_step(self._batches)
            return now_s() - wall, process_cpu_s() - cpu

    def accounted(self, wall_s: float) -> str:
        """Of what `block` has taken so far, of one core."""
        sampling_s = sum(
            r.cpu_s for r in decode_telemetry(self._sensed.read_telemetry()) if isinstance(r, TelemetryEnd)
        )
        shares = [
            f"{what} {100 * s / wall_s:.3f} %"
            for what, s in (("sampling", sampling_s), ("events", self._recorder.cpu_s))
        ]
        return f"  accounted     : {', '.join(shares)} of one core, {100 * (sampling_s + self._recorder.cpu_s) / wall_s:.3f} % together"


def measured(sides: dict[str, Side], rounds: int, block: int) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for side in sides.values():
        side.block(block)
    for _ in range(rounds):
        for name in random.sample(list(sides), len(sides)):
            found[name].append(sides[name].block(block))
    return found


def line(found: dict[str, list[tuple[float, float]]], which: int, images: float, what: str) -> str:
    traces = {
        name: [Trace(step_s=(pair[which],), samples_per_step=images, round=i) for i, pair in enumerate(pairs)]
        for name, pairs in found.items()
    }
    ratio = compare(traces["without"], traces["with"], 0.005)
    low, high = (f"{v:.5f}" if v is not None else "?" for v in (ratio.low, ratio.high))
    within = "within 0.5 %" if ratio.within_tolerance else "not surely within 0.5 %"
    by_round = [a[which] / b[which] for a, b in zip(found["without"], found["with"], strict=True)]
    middle = quantile_estimate(by_round, 0.5)
    return (
        f"  {what}: throughput with over without {ratio.ratio:.5f} [{low}, {high}], {ratio.basis}; {within}\n"
        f"  {'':{len(what)}}  median over rounds {middle.value:.5f} [{middle.low:.5f}, {middle.high:.5f}]"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--block", type=int, default=20)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--model", choices=[name for name, *_ in LOADS], action="append")
    given = parser.parse_args()
    print(
        f"{utc_stamp()}  {os.cpu_count()} cores, torch {torch.__version__}, load {os.getloadavg()[0]:.2f}", flush=True
    )
    for model, size, px in (load for load in LOADS if not given.model or load[0] in given.model):
        with tempfile.TemporaryDirectory() as scratch:
            job = build_job(Path(scratch), model, size, px, given.threads)
            images = torch.randint(0, 256, (size, px, px, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
            batch = Batch(images, torch.randint(0, 10, (size,)), 0.0)
            sides = {"without": Side(job, Path(scratch), batch, 0.0), "with": Side(job, Path(scratch), batch, given.hz)}
            found = measured(sides, given.rounds, given.block)
            told = sides["with"].accounted(sum(wall for wall, _ in found["with"]))
            job.close()
        print(
            f"{model} batch {size} at {px} px, {given.rounds} rounds of {given.block} steps, {given.hz:g} Hz",
            flush=True,
        )
        print(line(found, 1, size * given.block, "processor time"), flush=True)
        print(line(found, 0, size * given.block, "wall time     "), flush=True)
        print(told, flush=True)


if __name__ == "__main__":
    main()
