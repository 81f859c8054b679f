"""The cost of telemetry and events: the same training steps with and without them, alternating in one process.

Both sides run the code path of `vernier train`. One samples the sensors at 10 Hz and writes every event; the other
does neither. Blocks of steps alternate in random order, so that other programs disturb both sides alike. Printed are
the ratios of CPU time of all threads, which other programs disturb least, and of wall time: by
`vernier.lab.statistics.comparison`, as `vernier compare` does it, and as the median over rounds, which a few
disturbed blocks do not change. For machines that are too noisy for either: the CPU time of the sampling thread and of
writing events, by their own clocks.

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
from loop_overhead import build_job, format_median

from vernier.clock import now_s, process_cpu_s, thread_cpu_s, utc_stamp
from vernier.data.loading.loader import Batch
from vernier.engine.observe import Observers, Recorder, Telemetry
from vernier.engine.training.loop import Training
from vernier.engine.training.setup import Job
from vernier.engine.training.stop import StopFlag
from vernier.lab.records.telemetry import TelemetryEnd, decode_telemetry
from vernier.lab.statistics.comparison import Trace, compare
from vernier.records.events import Event
from vernier.records.run import Progress
from vernier.store import RunDir

Blocks = dict[str, list[tuple[float, float]]]
"""Wall and CPU seconds of every block, by side."""
LOADS = (("resnet8-small", 64, 32), ("resnet18", 32, 64))


class TimedRecorder(Recorder):
    """Writes events, and adds up the CPU time of doing so."""

    cpu_s = 0.0

    def emit(self, event: Event) -> None:
        began_s = thread_cpu_s()
        super().emit(event)
        self.cpu_s += thread_cpu_s() - began_s


class Side:
    """A training session that steps over one fixed batch; `hz` 0: no telemetry and no event file."""

    def __init__(self, job: Job, root: Path, batch: Batch, hz: float) -> None:
        self._run = RunDir.create(root, f"cost-{hz:g}")
        self._telemetry_run = RunDir.create(root, f"sensors-{hz:g}")  # apart: starting telemetry reads all events
        self._recorder = TimedRecorder(self._run.events())
        observers = Observers(self._recorder) if hz else Observers()
        self._training = Training(job, self._run, observers, StopFlag(), Progress())
        self._batches, self._job, self._hz = itertools.repeat(batch), job, hz

    def block(self, steps: int) -> tuple[float, float]:
        """Wall and CPU seconds of a block; starting and ending the sampler is not included."""
        with Telemetry(self._telemetry_run, self._job.device.name, self._hz):
            wall, cpu = now_s(), process_cpu_s()
            for _ in range(steps):
                self._training._one_step(self._batches)
            return now_s() - wall, process_cpu_s() - cpu

    def cpu_shares(self, wall_s: float) -> str:
        """CPU time of sampling and of events over the wall time of all blocks, in percent of one core."""
        sampling_s = sum(
            r.cpu_s for r in decode_telemetry(self._telemetry_run.read_telemetry()) if isinstance(r, TelemetryEnd)
        )
        events_s = self._recorder.cpu_s
        sampling, events, total = (100 * s / wall_s for s in (sampling_s, events_s, sampling_s + events_s))
        return f"  own clocks    : sampling {sampling:.3f} %, events {events:.3f} % of one core, {total:.3f} % together"


def measure_blocks(sides: dict[str, Side], rounds: int, block: int) -> Blocks:
    blocks: Blocks = {name: [] for name in sides}
    for side in sides.values():
        side.block(block)
    for _ in range(rounds):
        for name in random.sample(list(sides), len(sides)):
            blocks[name].append(sides[name].block(block))
    return blocks


def compare_sides(blocks: Blocks, which: int, images: float, what: str) -> str:
    """Compare wall seconds (`which` 0) or CPU seconds (1) of both sides."""
    traces = {
        name: [Trace(step_s=(pair[which],), samples_per_step=images, round=i) for i, pair in enumerate(pairs)]
        for name, pairs in blocks.items()
    }
    ratio = compare(traces["without"], traces["with"], 0.005)
    low, high = (f"{v:.5f}" if v is not None else "?" for v in (ratio.low, ratio.high))
    within = "within 0.5 %" if ratio.within_tolerance else "not certainly within 0.5 %"
    by_round = [a[which] / b[which] for a, b in zip(blocks["without"], blocks["with"], strict=True)]
    return (
        f"  {what}: throughput with over without {ratio.ratio:.5f} [{low}, {high}], {ratio.basis}; {within}\n"
        f"  {'':{len(what)}}  median over rounds {format_median(by_round, 5)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--block", type=int, default=20)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--model", choices=[name for name, *_ in LOADS], action="append")
    options = parser.parse_args()
    print(
        f"{utc_stamp()}  {os.cpu_count()} cores, torch {torch.__version__}, load {os.getloadavg()[0]:.2f}", flush=True
    )
    for model, size, px in (load for load in LOADS if not options.model or load[0] in options.model):
        with tempfile.TemporaryDirectory() as scratch:
            job = build_job(Path(scratch), model, size, px, options.threads)
            images = torch.randint(0, 256, (size, px, px, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
            batch = Batch(images, torch.randint(0, 10, (size,)), 0.0)
            sides = {
                "without": Side(job, Path(scratch), batch, 0.0),
                "with": Side(job, Path(scratch), batch, options.hz),
            }
            blocks = measure_blocks(sides, options.rounds, options.block)
            shares = sides["with"].cpu_shares(sum(wall for wall, _ in blocks["with"]))
            job.close()
        print(
            f"{model} batch {size} at {px} px, {options.rounds} rounds of {options.block} steps, {options.hz:g} Hz",
            flush=True,
        )
        print(compare_sides(blocks, 1, size * options.block, "CPU time      "), flush=True)
        print(compare_sides(blocks, 0, size * options.block, "wall time     "), flush=True)
        print(shares, flush=True)


if __name__ == "__main__":
    main()
