"""What machine.reduction = exact costs beside DistributedDataParallel: ResNet-18, two processes.

Both reductions train in the same processes, in alternating blocks of steps, on the code path of `vernier train` with
images that are already in memory. Prints the ratio of step times with a 95 % interval from the paired blocks. A block
lasts until the slower process has ended it.

    python -m torch.distributed.run --standalone --nproc-per-node 2 benchmarks/exact_reduction.py \
        [--model resnet18] [--px 224] [--batch 192] [--shards 12] [--pairs 8] [--block 1]
"""

import argparse
import random
import statistics

import torch
from loop_overhead import format_median

from vernier.clock import now_s, process_cpu_s, utc_stamp
from vernier.config import Config, override
from vernier.devices import resolve
from vernier.engine.processes.launch import topology
from vernier.engine.processes.world import World, join_processes
from vernier.lab.measured.workloads import TrainingLoad
from vernier.measure.environment import collect_environment
from vernier.recipes import load


class Arm:
    """One way to reduce, with the setting of the process that belongs to it."""

    def __init__(self, config: Config, world: World) -> None:
        torch.use_deterministic_algorithms(False)
        self._load, self._world = TrainingLoad(config, world), world
        self._deterministic = torch.are_deterministic_algorithms_enabled()

    def steps(self, count: int) -> tuple[float, float]:
        """Wall seconds until all processes are done, and CPU seconds of this one."""
        torch.use_deterministic_algorithms(self._deterministic)
        self._world.any_process(False)
        wall, cpu = now_s(), process_cpu_s()
        for _ in range(count):
            self._load.step()
        self._world.any_process(False)
        return now_s() - wall, process_cpu_s() - cpu

    def close(self) -> None:
        self._load.close()


def config_of(options: argparse.Namespace, procs: int, reduction: str) -> Config:
    config = load(options.model)
    settings = {
        "data.source": "synthetic",
        "data.image_px": options.px,
        "data.eval_px": options.px,
        "global_batch": options.batch,
        "eval.every_epochs": 0.0,
        "machine.device": "cpu",
        "machine.procs": procs,
        "machine.threads": 1,
        "machine.reduction": reduction,
        "virtual_shards": options.shards if reduction == "exact" else None,
    }
    for name, value in settings.items():
        config = override(config, name, value)
    return config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--px", type=int, default=224)
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--block", type=int, default=1)
    options = parser.parse_args()
    order = random.Random(0)  # the same in every process
    with join_processes(topology(), resolve("cpu"), Config().machine) as world:
        ddp, exact = (Arm(config_of(options, world.size, reduction), world) for reduction in ("ddp", "exact"))
        ddp.steps(1), exact.steps(1)
        wall, cpu, ddp_s, exact_s = [], [], [], []
        for _ in range(options.pairs):
            arms = {"ddp": ddp, "exact": exact}
            seconds = {name: arms[name].steps(options.block) for name in order.sample(sorted(arms), 2)}
            wall.append(seconds["exact"][0] / seconds["ddp"][0])
            cpu.append(seconds["exact"][1] / seconds["ddp"][1])
            ddp_s.append(seconds["ddp"][0] / options.block)
            exact_s.append(seconds["exact"][0] / options.block)
            if world.first:
                print(f"pair {len(wall)} of {options.pairs}: {wall[-1]:.3f}, CPU {cpu[-1]:.3f}", flush=True)
        ddp.close(), exact.close()
        if world.first:
            environment = collect_environment([], "cpu", 1)
            print(
                f"{utc_stamp()}  {environment.cpu.cores_logical} cores, torch {environment.versions['torch']}, "
                f"load {environment.cpu.load_average}\n"
                f"{options.model} at {options.px} px, batch {options.batch} on {world.size} processes, "
                f"{options.shards} virtual shards: DDP {statistics.median(ddp_s):.2f} s per step, exact "
                f"{statistics.median(exact_s):.2f}; ratio {format_median(wall, 3)}, by CPU time "
                f"{format_median(cpu, 3)}; medians with 95 % intervals, n = {options.pairs} pairs of "
                f"{options.block} steps",
                flush=True,
            )


if __name__ == "__main__":
    main()
