"""Bandwidth and latency between the processes of a run: what `vernier bench link` measures inside each of them.

Collectives use the device's own backend and its memory: gloo on a CPU, NCCL, HCCL or XCCL elsewhere. Bandwidth is that
of one direction of a link: what a ring sends through each of them (nccl-tests calls it bus bandwidth).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from vernier.clock import now_s
from vernier.devices import Device
from vernier.engine.processes.world import World
from vernier.errors import ConfigError
from vernier.lab.records.links import LinkResult, LinkRow
from vernier.lab.statistics.quantiles import quantile_estimate
from vernier.references import given, use

SAMPLE_US, MOST_CALLS = 20_000, 200
"""A sample is the mean of as many calls as take about this long: single ones of small messages are mostly clock."""


def measure_links(world: World, device: Device, sizes_kib: Sequence[int], repeats: int) -> LinkResult:
    """Every operation at every size, within hosts and between them. Collective. Raises ConfigError."""
    if world.size == 1 or device.backend is None:
        what, works = ("procs", 2) if world.size == 1 else ("machine.device", "cpu")
        raise ConfigError(
            f"{given(what, device.name if device.backend is None else 1)} has no links. Use {use(what, works)}."
        )
    where = world.topology
    # Ranks of a host are neighbours, and as many on every host; rank 0 has a peer on each side.
    scopes: list[tuple[str, Any, int, int]] = []
    if where.local_world > 1:
        scopes.append(("within hosts", world.subgroup(where.local_world), where.local_world, 1))
    if where.local_world < world.size:
        scopes.append(("between hosts", None, world.size, where.local_world))
    own = device.torch_device(where.local_rank)
    rows = []
    for scope, group, members, peer in scopes:
        for size in sizes_kib:
            message = torch.ones(size << 8, device=own)  # fp32
            parts = [torch.empty_like(message) for _ in range(members)]
            works: dict[str, tuple[Callable[[], Any], float]] = {  # and what a ring sends through each link
                "all-reduce": (partial(dist.all_reduce, message, group=group), 2 * (members - 1) / members),
                # Each process has the message, and gets those of all others.
                "all-gather": (partial(dist.all_gather, parts, message, group=group), members - 1),
                "point-to-point": (partial(_ping_pong, message, world.rank, peer), 1),
            }
            for what, (work, share) in works.items():
                # There and back: the way of a single message has no clock that both ends share.
                ways, size_bytes = 1 + (what == "point-to-point"), message.nbytes
                us = quantile_estimate([each / ways for each in _samples_us(work, world, device, repeats)], 0.5)
                rate = share * size_bytes / us.value / 1e3
                rows.append(LinkRow(what=what, where=scope, processes=members, bytes=size_bytes, us=us, gb_s=rate))
    return LinkResult(
        device=device.name,
        backend=device.backend,
        processes=world.size,
        hosts=world.size // where.local_world,
        rows=tuple(rows),
    )


def _ping_pong(message: torch.Tensor, rank: int, peer: int) -> None:
    """A message from rank 0 to its peer and back; the other processes wait for them at the next sample."""
    for sender, receiver in ((0, peer), (peer, 0)):
        if rank == sender:
            dist.send(message, receiver)
        elif rank == receiver:
            dist.recv(message, sender)


def _samples_us(work: Callable[[], Any], world: World, device: Device, repeats: int) -> list[float]:
    """Microseconds of a call, of the slowest process each time."""

    def call(count: int) -> float:
        device.synchronize()
        world.any_process(False)  # all begin together
        began_s = now_s()
        for _ in range(count):
            work()
        device.synchronize()
        return 1e6 * (now_s() - began_s) / count

    call(2)  # connections are made by the first calls
    once_us = call(1)
    count = world.broadcast_from_first(lambda: max(1, min(MOST_CALLS, int(SAMPLE_US / once_us))))
    own = [call(count) for _ in range(repeats)]
    return [max(times) for times in zip(*world.share(own), strict=True)]
