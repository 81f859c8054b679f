"""Training on several hosts over links of 10, 100 and 1,000 Mbit/s: measured, and as `vernier plan` predicts it.

The hosts are namespaces of this machine, joined by the switch of tests/hosts, which limits bandwidth per host and
direction. All links, and steps that exchange no gradients, are measured in the same processes, in shuffled rounds.
Efficiency is the time of a step without exchange over that of a step with it. Prints one row per case: medians, 95 %
intervals over rounds. Needs root.

    python benchmarks/scaling_netns.py [--cases 2x1,3x1,4x1,2x2] [--rounds 6] [--model shapes-quick] [--px 32] \\
        [--batch 16] [--compression none]

A case is hosts x processes per host. All share the cores of this machine, so compute times are those of a busy
machine; what the network takes is not affected where it takes most of the step, at 10 and 100 Mbit/s.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # tests/hosts

from loop_overhead import format_median
from tests.hosts.machines import Hosts, made_hosts, why_not

from vernier.clock import now_s, utc_stamp
from vernier.config import Config, override
from vernier.measure.planning.plan import Network, Workload, predict

LINKS = (10, 100, 1000)
APART = 0
"""Stands for steps that exchange no gradients, among the links."""
PAYLOAD = 1448 / 1514
"""Share of a full Ethernet frame that is data, with the headers of IPv4 and TCP."""
STEPS = {APART: 20, 10: 2, 100: 8, 1000: 20}
PORT = 29500


def config_of(options: argparse.Namespace, procs: int) -> Config:
    from vernier.recipes import load

    config = load(options.model)
    settings = {
        "data.source": "synthetic",
        "data.image_px": options.px,
        "data.eval_px": options.px,
        "global_batch": options.batch * procs,
        "eval.every_epochs": 0.0,
        "machine.device": "cpu",
        "machine.procs": procs,
        "machine.threads": 1,
        "machine.gradient_compression": options.compression,
    }
    for name, value in settings.items():
        config = override(config, name, value)
    return config


def work(options: argparse.Namespace) -> None:
    """One process: the first asks for a link by a line of output, and all measure when it has its answer."""
    from vernier.devices import resolve
    from vernier.engine.measured.workloads import TrainingLoad
    from vernier.engine.processes.launch import topology
    from vernier.engine.processes.world import join_processes

    order = random.Random(0)  # the same in every process
    with join_processes(topology(), resolve("cpu"), Config().machine) as world:
        config = config_of(options, world.size)
        loads = {apart: TrainingLoad(config, world, apart=apart) for apart in (False, True)}
        for load in loads.values():
            load.step()
        seconds: dict[int, list[float]] = {link: [] for link in (APART, *LINKS)}
        for _ in range(options.rounds):
            for link in order.sample(sorted(seconds), len(seconds)):
                if world.first:
                    print(json.dumps({"link": link}), flush=True)
                    sys.stdin.readline()
                world.any_process(False)
                began = now_s()
                for _ in range(STEPS[link]):
                    loads[link == APART].step()
                world.any_process(False)
                seconds[link].append((now_s() - began) / STEPS[link])
        parameters = sum(p.numel() for p in loads[False].job.model.parameters() if p.requires_grad)
        for load in loads.values():
            load.close()
        if world.first:
            print(json.dumps({"seconds": seconds, "parameters": parameters}), flush=True)


def measure(hosts: Hosts, per_host: int, words: list[str]) -> tuple[dict[int, list[float]], int]:
    """Seconds per step by link, and the parameters whose gradients are exchanged."""
    count = len(list(hosts))
    world = {"WORLD_SIZE": str(count * per_host), "MASTER_ADDR": "node1", "MASTER_PORT": str(PORT)}
    processes = []
    for rank in range(count * per_host):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank % per_host), "LOCAL_WORLD_SIZE": str(per_host)}
        processes.append(
            subprocess.Popen(
                hosts[1 + rank // per_host].command(sys.executable, __file__, *words, "--worker"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", **world, **own},
            )
        )
    first = processes[0]
    assert first.stdout is not None
    assert first.stdin is not None
    try:
        for line in first.stdout:
            answer = json.loads(line)
            if "seconds" in answer:
                return {int(link): times for link, times in answer["seconds"].items()}, answer["parameters"]
            hosts.change(mbit_s=answer["link"] or None)
            first.stdin.write("\n")
            first.stdin.flush()
    finally:
        for process in processes:
            process.wait(timeout=60)
    sys.exit("the first process ended without an answer")


def predicted_step_s(apart_s: float, batch: int, devices: int, per_host: int, link: int, sent_bytes: int) -> float:
    """A step by the communication model of `vernier plan`, from the measured time without exchange."""
    work = Workload(images_per_s=batch / apart_s, measured_batch=batch, gradient_bytes=sent_bytes, spread=0.0)
    network = Network(
        name="link",
        per_host=per_host,
        link_gb_s=1.0,  # within a host, through memory; measured at 1 to 2 GB/s
        link_us=50,
        host_gb_s=link * PAYLOAD / 8000,
        host_us=200,
    )
    return devices * batch / predict(work, devices, devices * batch, network).images_per_s_total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="2x1,3x1,4x1,2x2")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--model", default="shapes-quick")
    parser.add_argument("--px", type=int, default=32)
    parser.add_argument("--batch", type=int, default=16, help="images per process")
    parser.add_argument("--compression", default="none", choices=["none", "bf16"])
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    if why := why_not():
        sys.exit(why)
    words = sys.argv[1:]
    print(f"{utc_stamp()}  load {os.getloadavg()[0]:.1f}, medians with 95 % intervals, n = {options.rounds} rounds")
    print("| hosts x processes | link | step, measured | predicted | difference | efficiency, measured | predicted |")
    print("|---|---|---|---|---|---|---|")
    for case in options.cases.split(","):
        count, per_host = map(int, case.split("x"))
        with made_hosts(count) as hosts:
            seconds, parameters = measure(hosts, per_host, words)
        sent_bytes = parameters * (2 if options.compression == "bf16" else 4)
        apart_s = statistics.median(seconds[APART])
        for link in LINKS:
            step_s = statistics.median(seconds[link])
            expected_s = predicted_step_s(apart_s, options.batch, count * per_host, per_host, link, sent_bytes)
            print(
                f"| {count} x {per_host} | {link} Mbit/s | {format_median([1e3 * s for s in seconds[link]], 0)} ms "
                f"| {1e3 * expected_s:.0f} ms | {100 * (expected_s / step_s - 1):+.0f} % "
                f"| {100 * apart_s / step_s:.0f} % | {100 * apart_s / expected_s:.0f} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()
