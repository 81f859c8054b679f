"""Training on several hosts over links of 10, 100 and 1,000 Mbit/s: measured, and as `vernier plan` predicts it.

The hosts are namespaces of this machine, joined by the switch of tests/hosts, which limits bandwidth per host and
direction. All links, and steps that exchange no gradients, are measured in the same processes, in shuffled rounds. So
is the link itself: how fast hosts send to each other in a ring, all at once, over plain TCP, and how long a message of
four bytes takes. The prediction is made from that, because TCP does not reach the nominal bandwidth in both directions
at once. Efficiency is the time of a step without exchange over that of a step with it. Prints one row per case:
medians, 95 % intervals over rounds. Needs root.

    python benchmarks/scaling_netns.py [--cases 2x1,3x1,4x1,2x2] [--rounds 6] [--model shapes-quick] [--px 32] \\
        [--batch 16] [--compression none]

A case is hosts x processes per host; with several, machine.all_reduce=hierarchical takes turns with flat. All share the
cores of this machine, so compute times are those of a busy machine; what the network takes is not affected where it
takes most of the step, at 10 and 100 Mbit/s.
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
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
PROBE_BYTES = {10: 500_000, 100: 2_000_000, 1000: 8_000_000}
"""Sent by each host to measure a link."""
STEPS = {APART: 20, 10: 2, 100: 8, 1000: 20}
PORT = 29500


def config_of(options: argparse.Namespace, procs: int, all_reduce: str) -> Config:
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
        "machine.all_reduce": all_reduce,
    }
    for name, value in settings.items():
        config = override(config, name, value)
    return config


class Ring:
    """Plain TCP connections from the first process of each host to that of the next host."""

    def __init__(self, rank: int, world: int, per_host: int) -> None:
        self._member = rank % per_host == 0
        if not self._member:
            return
        host, hosts = rank // per_host, world // per_host
        server = socket.create_server((f"10.77.0.{host + 1}", PORT + 1))
        self._sender = connect(f"10.77.0.{(host + 1) % hosts + 1}", PORT + 1)
        self._receiver, _ = server.accept()
        server.close()

    def exchange(self, count: int) -> float:
        """Seconds until so many bytes were received, while as many are sent."""
        if not self._member:
            return 0.0
        began, left = now_s(), count
        thread = threading.Thread(target=self._sender.sendall, args=(bytes(count),))
        thread.start()
        while left:
            left -= len(self._receiver.recv(min(left, 1 << 20)))
        thread.join()
        return now_s() - began


def connect(address: str, port: int) -> socket.socket:
    """To a host that may not listen yet."""
    deadline_s = now_s() + 60
    while True:
        try:
            return socket.create_connection((address, port))
        except OSError:
            if now_s() > deadline_s:
                raise
            threading.Event().wait(0.1)


def work(options: argparse.Namespace) -> None:
    """One process: the first asks for a link by a line of output, and all measure when it has its answer."""
    import torch
    import torch.distributed as dist

    from vernier.devices import resolve
    from vernier.engine.measured.workloads import TrainingLoad
    from vernier.engine.processes.launch import topology
    from vernier.engine.processes.world import join_processes

    order, where = random.Random(0), topology()  # the same order in every process
    with join_processes(where, resolve("cpu"), Config().machine) as world:
        arms = ("flat",) if where.local_world == 1 else ("flat", "hierarchical")
        loads = {arm: TrainingLoad(config_of(options, world.size, arm), world) for arm in arms}
        loads["apart"] = TrainingLoad(config_of(options, world.size, "flat"), world, apart=True)
        for load in loads.values():
            load.step()
        ring, message = Ring(world.rank, world.size, where.local_world), torch.ones(1)
        times: dict[str, dict[int, list[float]]] = {"apart": {APART: []}}
        times |= {name: {link: [] for link in LINKS} for name in (*arms, "byte", "message")}

        def take(arm: str, link: int) -> None:
            world.any_process(False)
            began = now_s()
            for _ in range(STEPS[link]):
                loads[arm].step()
            world.any_process(False)
            times[arm][link].append((now_s() - began) / STEPS[link])

        for _ in range(options.rounds):
            for link in order.sample((APART, *LINKS), 1 + len(LINKS)):
                if world.first:
                    print(json.dumps({"link": link}), flush=True)
                    sys.stdin.readline()
                for arm in ("apart",) if link == APART else order.sample(arms, len(arms)):
                    take(arm, link)
                if link == APART:
                    continue
                world.any_process(False)
                slowest = torch.tensor(ring.exchange(PROBE_BYTES[link]))
                dist.all_reduce(slowest, dist.ReduceOp.MAX)
                times["byte"][link].append(slowest.item() / PROBE_BYTES[link])
                began = now_s()
                for _ in range(5):
                    dist.all_reduce(message)
                times["message"][link].append((now_s() - began) / 5)
        parameters = sum(p.numel() for p in loads["flat"].job.model.parameters() if p.requires_grad)
        for load in loads.values():
            load.close()
        if world.first:
            print(json.dumps({"times": times, "parameters": parameters}), flush=True)


Times = dict[str, dict[int, list[float]]]


def measure(hosts: Hosts, per_host: int, words: list[str]) -> tuple[Times, int]:
    """Seconds per step, per byte and per message by link, and the parameters whose gradients are exchanged."""
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


def predicted_step_s(times: Times, batch: int, devices: int, per_host: int, link: int, sent_bytes: int) -> float:
    """A step by the communication model of `vernier plan`, from the time without exchange and the link as measured."""
    apart_s, byte_s, message_s = (
        statistics.median(times[name][at]) for name, at in (("apart", APART), ("byte", link), ("message", link))
    )
    work = Workload(images_per_s=batch / apart_s, measured_batch=batch, gradient_bytes=sent_bytes, spread=0.0)
    network = Network(
        name="link",
        per_host=per_host,
        link_gb_s=1.0,  # within a host, through memory; measured at 1 to 2 GB/s
        link_us=50,
        host_gb_s=1e-9 / byte_s,
        host_us=1e6 * message_s / (2 * (devices - 1)),  # a ring sends so many messages, one after the other
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
    columns = ("hosts x processes", "link", "of it reached", "step, measured", "predicted", "difference")
    print(f"| {' | '.join(columns)} | efficiency, measured | predicted |")
    print("|---|---|---|---|---|---|---|---|")
    for case in options.cases.split(","):
        count, per_host = map(int, case.split("x"))
        with made_hosts(count) as hosts:
            times, parameters = measure(hosts, per_host, words)
        sent_bytes = parameters * (2 if options.compression == "bf16" else 4)
        apart_s = statistics.median(times["apart"][APART])
        for link in LINKS:
            reached = 8e-6 / statistics.median(times["byte"][link]) / link
            expected_s = predicted_step_s(times, options.batch, count * per_host, per_host, link, sent_bytes)
            for arm in ("flat", "hierarchical")[: min(per_host, 2)]:
                seconds = times[arm][link]
                step_s = statistics.median(seconds)
                label = case.replace("x", " x ") + ("" if per_host == 1 else f", {arm}")
                print(
                    f"| {label} | {link} Mbit/s | {100 * reached:.0f} % "
                    f"| {format_median([1e3 * s for s in seconds], 0)} ms "
                    f"| {1e3 * expected_s:.0f} ms | {100 * (expected_s / step_s - 1):+.0f} % "
                    f"| {100 * apart_s / step_s:.0f} % | {100 * apart_s / expected_s:.0f} % |",
                    flush=True,
                )
            if per_host > 1:
                ratios = [h / f for h, f in zip(times["hierarchical"][link], times["flat"][link], strict=True)]
                print(f"  {link} Mbit/s: hierarchical takes {format_median(ratios, 2)} of the time of flat", flush=True)


if __name__ == "__main__":
    main()
