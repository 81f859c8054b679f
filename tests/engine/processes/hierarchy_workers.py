"""Four processes that take themselves for two hosts of two: hierarchical sums beside flat ones, as JSON."""

import json
import os
import socket
import sys
import traceback
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from vernier.config import Config, Machine
from vernier.devices import resolve
from vernier.devices.cpu import Cpu
from vernier.engine.processes.gradients import build_exchange
from vernier.engine.processes.launch import topology
from vernier.engine.processes.world import World, join_processes


def gradients(world: World, **settings: Any) -> torch.Tensor:
    """Of two steps over several buckets."""
    torch.manual_seed(0)
    network = nn.Sequential(*(nn.Linear(600, 600) for _ in range(3)))
    exchange = build_exchange(network, world, Machine(bucket_mb=1, **settings), Cpu())
    parts = []
    for step in range(2):
        images = torch.randn(8, 600, generator=torch.Generator().manual_seed(10 * step + world.rank))
        network.zero_grad()
        exchange.begin_step()
        exchange.network(images).square().mean().backward()
        exchange.backward_done()
        parts += [p.grad.reshape(-1).clone() for p in network.parameters() if p.grad is not None]
    return torch.cat(parts)


def run_process() -> None:
    # Ranks of a host are not neighbours, as Slurm's cyclic distribution has it.
    where = topology()
    with join_processes(where, resolve("cpu"), Config().machine) as world:
        world.topology = replace(where, host=f"host{where.rank % 2}")
        flat = gradients(world)
        answers = {}
        for compression in ("none", "bf16"):
            own = gradients(world, all_reduce="hierarchical", gradient_compression=compression)
            difference = float((own - flat).norm() / flat.norm())
            answers[compression] = {"difference": difference, "sums": world.gather(own.double().sum().item())}
        if world.first:
            print(json.dumps(answers))


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    torch.set_num_threads(1)
    children = []
    for rank in range(4):
        child = os.fork()
        if child == 0:
            os.environ["RANK"] = str(rank)
            try:
                run_process()
                sys.stdout.flush()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    if any(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children):
        sys.exit(1)


if __name__ == "__main__":
    main()
