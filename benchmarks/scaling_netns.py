"""Training on several hosts over links of 10, 100 and 1,000 Mbit/s: measured, and as `vernier plan` predicts it.

The hosts are namespaces of this machine, joined by the switch of tests/hosts, which limits bandwidth per host and
direction. All links and ways to exchange gradients, and steps that exchange none, are measured in the same processes,
in shuffled rounds. So is the link itself, over plain TCP: how fast hosts send as many bytes as the gradients have to
each other in a ring, all at once, and how long a message takes meanwhile. The prediction is made from that, because TCP
does not reach the nominal bandwidth in both directions at once, and because gloo's receivers announce every segment by
a message, which waits behind data. Efficiency is the time of a step without exchange over that of a step with it.
Prints one row per case, link and way: medians, 95 % intervals over rounds. Needs root.

    python benchmarks/scaling_netns.py [--cases 2x1,3x1,4x1,2x2] [--ways flat,hierarchical] [--links 10,100,1000] \\
        [--rounds 6] [--model shapes-quick] [--px 32] [--batch 2]

A case is hosts x processes per host. A way is one of flat, hierarchical (hosts with several processes only), bf16,
powersgd and buckets-1 (of 1 MiB instead of 25). All share the cores of this machine, so compute times are those of a
busy machine; what the network takes is not affected where it takes most of the step, at 10 and 100 Mbit/s.
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

APART = 0
"""Stands for steps that exchange no gradients, among the links."""
STEPS = {APART: 20, 10: 2, 100: 8, 1000: 20}
PROBES = {10: 1, 100: 4, 1000: 10}
"""How often the bytes of the gradients are sent to measure a link, with a pause before each, as in a step."""
WAYS: dict[str, dict[str, object]] = {
    "flat": {},
    "hierarchical": {"machine.all_reduce": "hierarchical"},
    "bf16": {"machine.gradient_compression": "bf16"},
    "powersgd": {"machine.gradient_compression": "powersgd", "machine.powersgd_start": 2},
    "buckets-1": {"machine.bucket_mb": 1},
}
WARM_UP_STEPS = 4
PORT = 29500
INSIDE_GB_S, INSIDE_US = 1.0, 50.0
"""Within a host, through memory; measured at 1 to 2 GB/s."""


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


class Ring:
    """Plain TCP connections from the first process of each host to that of the next host, for data and for messages."""

    def __init__(self, rank: int, world: int, per_host: int) -> None:
        self._member = rank % per_host == 0
        if not self._member:
            return
        host, hosts = rank // per_host, world // per_host
        self._sender, self._receiver = self._join(host, hosts, PORT + 1)
        self._asker, answerer = self._join(host, hosts, PORT + 2)
        threading.Thread(target=_answer, args=(answerer,), daemon=True).start()

    @staticmethod
    def _join(host: int, hosts: int, port: int) -> tuple[socket.socket, socket.socket]:
        server = socket.create_server((f"10.77.0.{host + 1}", port))
        to_next = connect(f"10.77.0.{(host + 1) % hosts + 1}", port)
        from_previous, _ = server.accept()
        server.close()
        for connection in (to_next, from_previous):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return to_next, from_previous

    def exchange(self, count: int) -> tuple[float, float]:
        """Seconds until so many bytes were received while as many are sent, and those of a message one way meanwhile.

        Half of the way there and back: a message waits behind the data of the hosts that send it.
        """
        if not self._member:
            return 0.0, 0.0
        ended, messages_s = threading.Event(), list[float]()
        threads = [
            threading.Thread(target=self._sender.sendall, args=(bytes(count),)),
            threading.Thread(target=self._ask, args=(ended, messages_s)),
        ]
        began, left = now_s(), count
        for thread in threads:
            thread.start()
        while left:
            left -= len(self._receiver.recv(min(left, 1 << 20)))
        seconds = now_s() - began
        ended.set()
        for thread in threads:
            thread.join()
        return seconds, statistics.median(messages_s)

    def _ask(self, ended: threading.Event, messages_s: list[float]) -> None:
        while not messages_s or not ended.wait(0.002):
            began = now_s()
            self._asker.sendall(b"?")
            self._asker.recv(1)
            messages_s.append((now_s() - began) / 2)


def _answer(connection: socket.socket) -> None:
    while question := connection.recv(1):
        connection.sendall(question)


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
        ways, links = ways_of(options, where.local_world), links_of(options)
        loads = {way: TrainingLoad(config_of(options, world.size, way), world) for way in ways}
        loads["apart"] = TrainingLoad(config_of(options, world.size, "flat"), world, apart=True)
        for load in loads.values():
            for _ in range(WARM_UP_STEPS):
                load.step()
        parameters = sum(p.numel() for p in loads["apart"].job.model.parameters() if p.requires_grad)
        ring = Ring(world.rank, world.size, where.local_world)
        times: dict[str, dict[int, list[float]]] = {"apart": {APART: []}}
        times |= {name: {link: [] for link in links} for name in (*ways, "byte", "message")}

        def take(way: str, link: int) -> None:
            world.any_process(False)
            began = now_s()
            for _ in range(STEPS[link]):
                loads[way].step()
            world.any_process(False)
            times[way][link].append((now_s() - began) / STEPS[link])

        for _ in range(options.rounds):
            for link in order.sample((APART, *links), 1 + len(links)):
                if world.first:
                    print(json.dumps({"link": link}), flush=True)
                    sys.stdin.readline()
                for way in ("apart",) if link == APART else order.sample(ways, len(ways)):
                    take(way, link)
                if link == APART:
                    continue
                probes: list[tuple[float, float]] = []
                for _ in range(PROBES[link]):
                    threading.Event().wait(0.02)
                    world.any_process(False)
                    seconds, message_s = ring.exchange(4 * parameters)
                    slowest, messages = torch.tensor(seconds), torch.tensor(message_s)
                    dist.all_reduce(slowest, dist.ReduceOp.MAX)
                    dist.all_reduce(messages)
                    probes.append((slowest.item(), messages.item()))
                hosts = world.size // where.local_world
                times["byte"][link].append(statistics.mean(s for s, _ in probes) / (4 * parameters))
                times["message"][link].append(statistics.mean(s for _, s in probes) / hosts)
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


def predicted_step_s(
    times: Times, way: str, batch: int, hosts: int, per_host: int, link: int, parameters: int
) -> float | None:
    """A step by the communication model of `vernier plan`, from the time without exchange and the link as measured.

    None for what the model does not cover.
    """
    if way == "powersgd":
        return None
    apart_s, byte_s, message_s = (
        statistics.median(times[name][at]) for name, at in (("apart", APART), ("byte", link), ("message", link))
    )
    devices = hosts * per_host
    work = Workload(
        images_per_s=batch / apart_s,
        measured_batch=batch,
        gradient_bytes=parameters * (2 if way == "bf16" else 4),
        bucket_bytes=(1 if way == "buckets-1" else 25) << 20,
        one_ring=way != "hierarchical",
        spread=0.0,
    )
    network = Network(
        name="link",
        per_host=per_host,
        link_gb_s=INSIDE_GB_S,
        link_us=INSIDE_US,
        host_gb_s=1e-9 / byte_s,
        host_us=1e6 * message_s,
    )
    return devices * batch / predict(work, devices, devices * batch, network).images_per_s_total


def ways_of(options: argparse.Namespace, per_host: int) -> list[str]:
    """The ways that differ from each other with so many processes per host."""
    return [way for way in options.ways.split(",") if way != "hierarchical" or per_host > 1]


def links_of(options: argparse.Namespace) -> list[int]:
    return [int(link) for link in options.links.split(",")]


def print_rows(case: str, times: Times, parameters: int, options: argparse.Namespace) -> None:
    """One row per link and way, and below each link how the other ways compare with the first one."""
    hosts, per_host = map(int, case.split("x"))
    ways, apart_s = ways_of(options, per_host), statistics.median(times["apart"][APART])
    for link in links_of(options):
        reached = 8e-6 / statistics.median(times["byte"][link]) / link
        for way in ways:
            seconds = times[way][link]
            step_s = statistics.median(seconds)
            expected_s = predicted_step_s(times, way, options.batch, hosts, per_host, link, parameters)
            cells = [f"{case.replace('x', ' x ')}" + (f", {way}" if len(ways) > 1 else ""), f"{link:,} Mbit/s"]
            cells += [f"{100 * reached:.0f} %", f"{1e3 * statistics.median(times['message'][link]):.1f} ms"]
            cells += [f"{format_median([1e3 * s for s in seconds], 0)} ms"]
            if expected_s is None:
                cells += ["", "", f"{100 * apart_s / step_s:.0f} %", ""]
            else:
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
    parser.add_argument("--ways", default="flat,hierarchical", help=", ".join(WAYS))
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
    columns = ("hosts x processes", "link", "of it reached", "message", "step, measured", "predicted", "difference")
    print(f"| {' | '.join(columns)} | efficiency, measured | predicted |")
    print("|---|---|---|---|---|---|---|---|---|")
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
