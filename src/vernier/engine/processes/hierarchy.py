"""Sums of gradients over hosts with several processes: within each host first, then between one process per host.

A flat all-reduce of N processes sends 2 (N - 1) / N of the gradients over each host's network, this one
2 (H - 1) / H for H hosts: half as much for two hosts of many processes. `gradients` decides which buckets are added up.
"""

import queue
import threading
import weakref
from typing import Any

import torch
import torch.distributed as dist

from .world import World

_Job = tuple[torch.Tensor, "torch.futures.Future[torch.Tensor]"]


def ranks_by_host(world: World) -> list[list[int]]:
    """The ranks of each host, in order. Collective."""
    names = world.gather(world.topology.host)
    names = world.broadcast_from_first(lambda: names)
    return [[rank for rank, name in enumerate(names) if name == host] for host in dict.fromkeys(names)]


class HostSums:
    """All-reduces tensors, one after the other, in a thread of its own. Collective.

    gloo matches collectives by their order, so those of a tensor follow each other in this thread, and tensors in the
    order in which backward has them, which is that of all processes.
    """

    def __init__(self, world: World, hosts: list[list[int]]) -> None:
        own = next(ranks for ranks in hosts if world.rank in ranks)
        groups = [dist.new_group(ranks) for ranks in hosts]
        between = dist.new_group([ranks[0] for ranks in hosts])
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        within = groups[hosts.index(own)] if len(own) > 1 else None
        arguments = (self._jobs, within, between if own[0] == world.rank else None, own[0])
        threading.Thread(target=_serve, args=arguments, name="host-sums", daemon=True).start()
        weakref.finalize(self, self._jobs.put, None)

    def all_reduce(self, tensor: torch.Tensor) -> "torch.futures.Future[torch.Tensor]":
        """Begin to replace the tensor by its sum over all processes."""
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        self._jobs.put((tensor, future))
        return future


def _serve(jobs: "queue.SimpleQueue[_Job | None]", within: Any, between: Any, first: int) -> None:
    """`between` is None in processes that are not the first of their host, `within` where a host has one process."""
    while (job := jobs.get()) is not None:
        tensor, future = job
        try:
            if within is not None:
                dist.reduce(tensor, first, group=within)
            if between is not None:
                dist.all_reduce(tensor, group=between)
            if within is not None:
                dist.broadcast(tensor, first, group=within)
        except RuntimeError as error:  # another process is gone; who waits for the future explains it
            future.set_exception(error)  # type: ignore[arg-type]  # annotated as the result
        else:
            future.set_result(tensor)
