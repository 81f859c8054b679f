"""Training on several hosts over links of 10, 100 and 1,000 Mbit/s: measured, and as `vernier plan` predicts it.

The hosts are namespaces of this machine, joined by the switch of tests/hosts, which limits bandwidth per host and
direction. All links and ways to exchange gradients, and steps that exchange none, are measured in the same processes,
in shuffled rounds. So is the network, as one would measure it before a plan: all-reduces of one process per host, of a
quarter and of three quarters of the gradients. A straight line through both gives the bandwidth and the latency from
which steps are predicted. Efficiency is the time of a step without exchange over that of a step with it.
Prints one row per case, link and way: medians, 95 % intervals over rounds. Needs root.

    python benchmarks/scaling_netns.py [--cases 2x1,3x1,4x1,2x2] [--ways flat,buckets-1] [--links 10,100,1000] \\
        [--rounds 6] [--model shapes-quick] [--px 32] [--batch 2]

A case is hosts x processes per host. A way is flat or buckets-1 (of 1 MiB instead of 25). All share the
cores of this machine, so compute times are those of a busy machine; what the network takes is not affected where it
takes most of the step, at 10 and 100 Mbit/s.
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
from vernier.lab.planning.plan import Network, Workload, predict

APART = 0
"""Stands for steps that exchange no gradients, among the links."""
STEPS = {APART: 20, 10: 2, 100: 5, 1000: 12}
PROBES = {10: 1, 100: 3, 1000: 8}
"""All-reduces of each size that measure the network."""
SMALL, LARGE = 0.25, 0.75
"""Their sizes, as shares of the gradients."""
WAYS: dict[str, dict[str, object]] = {
    "flat": {},
    "buckets-1": {"machine.bucket_mb": 1},
}
WARM_UP_STEPS = 4
PORT = 29500
INSIDE_GB_S, INSIDE_US = 1.0, 50.0
"""Within a host, through memory; measured at 1 to 2 GB/s."""

Times = dict[str, dict[int, list[float]]]


def config_of(options: argparse.Namespace, procs: int, way: str) -> Config:
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
        **WAYS[way],
    }
    for name, value in settings.items():
        config = override(config, name, value)
    return config


def links_of(options: argparse.Namespace) -> list[int]:
    return [int(link) for link in options.links.split(",")]


def work(options: argparse.Namespace) -> None:
    """One process: the first asks for a link by a line of output, and all measure when it has its answer."""
    import torch
    import torch.distributed as dist

    from vernier.devices import resolve
    from vernier.engine.processes.launch import topology
    from vernier.engine.processes.world import join_processes
    from vernier.lab.measured.workloads import TrainingLoad

    order, where = random.Random(0), topology()  # the same order in every process
    with join_processes(where, resolve("cpu"), Config().machine) as world:
        ways, links = options.ways.split(","), links_of(options)
        loads = {way: TrainingLoad(config_of(options, world.size, way), world) for way in ways}
        loads["apart"] = TrainingLoad(config_of(options, world.size, "flat"), world, apart=True)
        for load in loads.values():
            for _ in range(WARM_UP_STEPS):
                load.step()
        parameters = sum(p.numel() for p in loads["apart"].job.model.parameters() if p.requires_grad)
        first_of_hosts = list(range(0, world.size, where.local_world))
        between = dist.new_group(first_of_hosts)
        probes = {share: torch.ones(round(share * parameters)) for share in (SMALL, LARGE)}
        times: Times = {"apart": {APART: []}}
        times |= {name: {link: [] for link in links} for name in (*ways, str(SMALL), str(LARGE))}

        def take(way: str, link: int) -> None:
            world.any_process(False)
            began = now_s()
            for _ in range(STEPS[link]):
                loads[way].step()
            world.any_process(False)
            times[way][link].append((now_s() - began) / STEPS[link])

        def probe(share: float, link: int) -> None:
            """All-reduces between hosts; the other processes wait."""
            seconds = []
            for _ in range(PROBES[link]):
                world.any_process(False)
                began = now_s()
                if world.rank in first_of_hosts:
                    dist.all_reduce(probes[share], group=between)
                seconds.append(now_s() - began)
            times[str(share)][link].append(statistics.mean(seconds))

        def warm_up() -> None:
            """TCP gets to know the link: its first messages after a change are slower."""
            for way in ways:
                loads[way].step()
            if world.rank in first_of_hosts:
                dist.all_reduce(torch.ones(parameters), group=between)

        for _ in range(options.rounds):
            for link in order.sample((APART, *links), 1 + len(links)):
                if world.first:
                    print(json.dumps({"link": link}), flush=True)
                    sys.stdin.readline()
                if link == APART:
                    take("apart", APART)
                    continue
                warm_up()
                for way in order.sample(ways, len(ways)):
                    take(way, link)
                for share in order.sample((SMALL, LARGE), 2):
                    probe(share, link)
        for load in loads.values():
            load.close()
        if world.first:
            print(json.dumps({"times": times, "parameters": parameters}), flush=True)


def measure(hosts: Hosts, per_host: int, words: list[str]) -> tuple[Times, int]:
    """Seconds per step and per all-reduce by link, and the parameters whose gradients are exchanged."""
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
            if "times" in answer:
                by_link = {k: {int(link): v for link, v in times.items()} for k, times in answer["times"].items()}
                return by_link, answer["parameters"]
            hosts.change(mbit_s=answer["link"] or None)
            first.stdin.write("\n")
            first.stdin.flush()
    finally:
        for process in processes:
            process.wait(timeout=60)
    sys.exit("the first process ended without an answer")


def measured_network(times: Times, hosts: int, link: int, parameters: int) -> tuple[float, float]:
    """GB/s and microseconds of the ring between hosts: the line through all-reduces of two sizes."""
    small_s, large_s = (statistics.median(times[str(share)][link]) for share in (SMALL, LARGE))
    s_per_byte = (large_s - small_s) / (4 * (LARGE - SMALL) * parameters)
    rounds = 2 * (hosts - 1)
    latency_s = max(0.0, small_s - 4 * SMALL * parameters * s_per_byte) / rounds
    return 1e-9 * rounds / hosts / s_per_byte, 1e6 * latency_s


def predicted_step_s(
    times: Times, way: str, batch: int, hosts: int, per_host: int, link: int, parameters: int
) -> float:
    """A step by the communication model of `vernier plan`, from the time without exchange and the measured network."""
    apart_s, devices = statistics.median(times["apart"][APART]), hosts * per_host
    gb_s, latency_us = measured_network(times, hosts, link, parameters)
    work = Workload(
        images_per_s=batch / apart_s,
        measured_batch=batch,
        gradient_bytes=4 * parameters,
        bucket_bytes=(1 if way == "buckets-1" else 25) << 20,
        one_ring=True,
        spread=0.0,
    )
    network = Network(
        name="link",
        per_host=per_host,
        link_gb_s=INSIDE_GB_S,
        link_us=INSIDE_US,
        host_gb_s=gb_s,
        host_us=latency_us,
    )
    return devices * batch / predict(work, devices, devices * batch, network).images_per_s_total


def print_rows(case: str, times: Times, parameters: int, options: argparse.Namespace) -> None:
    """One row per link and way, and below each link how the other ways compare with the first one."""
    hosts, per_host = map(int, case.split("x"))
    ways, apart_s = options.ways.split(","), statistics.median(times["apart"][APART])
    for link in links_of(options):
        gb_s, latency_us = measured_network(times, hosts, link, parameters)
        for way in ways:
            seconds = times[way][link]
            step_s = statistics.median(seconds)
            expected_s = predicted_step_s(times, way, options.batch, hosts, per_host, link, parameters)
            cells = [f"{case.replace('x', ' x ')}" + (f", {way}" if len(ways) > 1 else ""), f"{link:,} Mbit/s"]
            cells += [f"{100 * 8e3 * gb_s / link:.0f} %, {1e-3 * latency_us:.1f} ms"]
            cells += [f"{format_median([1e3 * s for s in seconds], 0)} ms"]
            cells += [f"{1e3 * expected_s:.0f} ms", f"{100 * (expected_s / step_s - 1):+.0f} %"]
            cells += [f"{100 * apart_s / step_s:.0f} %", f"{100 * apart_s / expected_s:.0f} %"]
            print(f"| {' | '.join(cells)} |", flush=True)
        for way in ways[1:]:
            ratios = [a / b for a, b in zip(times[way][link], times[ways[0]][link], strict=True)]
            print(f"  {link} Mbit/s: {way} takes {format_median(ratios, 2)} of the time of {ways[0]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="2x1,3x1,4x1,2x2")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--model", default="shapes-quick")
    parser.add_argument("--px", type=int, default=32)
    parser.add_argument("--ways", default="flat", help=", ".join(WAYS))
    parser.add_argument("--links", default="10,100,1000", help="Mbit/s")
    parser.add_argument("--batch", type=int, default=2, help="images per process")
    parser.add_argument("--raw", help="append all times to this file, as JSON")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    if why := why_not():
        sys.exit(why)
    words = sys.argv[1:]
    print(f"{utc_stamp()}  load {os.getloadavg()[0]:.1f}, medians with 95 % intervals, n = {options.rounds} rounds")
    columns = ("hosts x processes", "link", "of it reached, latency", "step, measured", "predicted", "difference")
    print(f"| {' | '.join(columns)} | efficiency, measured | predicted |")
    print("|---|---|---|---|---|---|---|---|")
    for case in options.cases.split(","):
        count, per_host = map(int, case.split("x"))
        with made_hosts(count) as hosts:
            times, parameters = measure(hosts, per_host, words)
        print_rows(case, times, parameters, options)
        if options.raw:
            with open(options.raw, "a", encoding="utf-8") as file:
                file.write(json.dumps({"case": case, "times": times, "parameters": parameters}) + "\n")


if __name__ == "__main__":
    main()
