"""The processes of a run as one: how they meet, agree, share results and gradients, and end together.

A run of one process has a World too, whose members do nothing, so that the engine reads the same in both cases. Which
processes there are is `engine.launch`'s business, whether they are still alive `engine.heartbeat`'s.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vernier.clock import now_s
from vernier.config import Machine
from vernier.devices import Device
from vernier.engine.processes.affinity import allowed
from vernier.engine.processes.heartbeat import Heartbeat, open_store
from vernier.engine.processes.launch import Topology, record_failure
from vernier.errors import ConfigError, RunFailed

T = TypeVar("T")

STALL_FACTOR = 10
"""Processes wait this many times machine.rank_timeout_s for one that is alive but does not come."""
_LOST = ("gloo", "nccl", "hccl", "xccl", "Connection closed", "Connection reset", "Broken pipe", "Socket", "peer")


@dataclass(frozen=True)
class Agreed:
    """What all processes have decided together at the end of a step."""

    stop: bool
    flush: bool


class World:
    """This process and its peers. Made by `joined`."""

    def __init__(self, where: Topology, heart: Heartbeat | None = None, control: Any = None) -> None:
        self.where, self.rank, self.size = where, where.rank, where.world
        self.heart, self._control = heart, control
        self._pending: tuple[torch.Tensor, Any] | None = None
        self.handed_over_s: float | None = None
        """When the last gradient of this step was given to the others: until then the time was this process's own."""
        self._waited_s = 0.0

    @property
    def first(self) -> bool:
        return self.where.first

    def gradients_are_back(self) -> None:
        """Note how long this process has waited for the others' gradients since it had given away its own."""
        if self.handed_over_s is not None:
            self._waited_s += max(0.0, now_s() - self.handed_over_s)

    def take_waited_s(self) -> float:
        """Seconds so waited since last asked; on an accelerator, as the host sees it."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s

    def reached(self) -> None:
        """Note that this process has come to a point that all come to: whoever has not is stuck, when the others wait."""
        if self.heart is not None:
            self.heart.meetings += 1

    # ------------------------------------------------------------------------------------------------- small agreement

    def exchange(self, step: int, *, stop: bool, flush: bool) -> Agreed:
        """Whether any process wants to stop or to report; with several processes the answer is that of the step before."""
        if self.size == 1:
            return Agreed(stop, flush)
        if self.heart is not None:
            self.heart.step = step
        self.reached()
        before = self._settled()
        wishes = torch.tensor([stop, flush], dtype=torch.int32)
        self._pending = (wishes, dist.all_reduce(wishes, dist.ReduceOp.MAX, group=self._control, async_op=True))
        return before

    def _settled(self) -> Agreed:
        if self._pending is None:
            return Agreed(False, False)
        wishes, work = self._pending
        work.wait()
        self._pending = None
        return Agreed(bool(wishes[0]), bool(wishes[1]))

    def any(self, wish: bool) -> bool:
        """Whether any process wishes it, now."""
        if self.size == 1:
            return wish
        self.reached()
        told = torch.tensor([wish], dtype=torch.int32)
        dist.all_reduce(told, dist.ReduceOp.MAX, group=self._control)
        return bool(told[0])

    def gathered(self, value: T) -> list[T]:
        """Everybody's value, by rank, at the first process; elsewhere an empty list."""
        if self.size == 1:
            return [value]
        self.reached()
        values: list[Any] | None = [None] * self.size if self.first else None
        dist.gather_object(value, values, dst=0, group=self._control)
        return values or []

    def from_first(self, do: Callable[[], T]) -> T:
        """What the first process makes of it, everywhere; an error for people there is the same error everywhere."""
        if self.size == 1:
            return do()
        outcome: list[Any] = [None, None]
        if self.first:
            try:
                outcome[0] = do()
            except (ConfigError, RunFailed) as error:
                outcome[1] = error
        self.reached()
        dist.broadcast_object_list(outcome, src=0, group=self._control)
        if isinstance(outcome[1], Exception):
            raise outcome[1]
        result: T = outcome[0]
        return result

    # -------------------------------------------------------------------------------------------------------- tensors

    def mean_(self, tensors: list[torch.Tensor]) -> None:
        """Replace each tensor by its mean over the processes."""
        if self.size == 1 or not tensors:
            return
        self.reached()
        flat = torch.cat([t.detach().reshape(-1).double().cpu() for t in tensors])
        dist.all_reduce(flat, group=self._control)
        flat /= self.size
        for tensor, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view(tensor.shape))

    def share_statistics(self, model: nn.Module, averages: dict[str, torch.Tensor] | None, policy: str) -> None:
        """Make batch-norm statistics the same everywhere: the mean over processes, or those of the first."""
        if self.size == 1:
            return
        saved = model.state_dict()  # default boxes and the like are no statistics
        names = [n for n, b in model.named_buffers() if n in saved and b.is_floating_point()]
        live = dict(model.named_buffers())
        tensors = [live[n] for n in names] + ([averages[n] for n in names] if averages is not None else [])
        if policy == "first" and not self.first:
            for tensor in tensors:
                tensor.zero_()
        self.mean_(tensors)
        if policy == "first":
            for tensor in tensors:
                tensor.mul_(self.size)

    def parallel(self, network: nn.Module, machine: Machine, place: torch.device) -> nn.Module:
        """The network with gradients averaged over processes while they are computed; itself for one process."""
        if self.size == 1 or not any(p.requires_grad for p in network.parameters()):
            return network
        wrapped = DistributedDataParallel(
            network,
            device_ids=None if place.index is None else [place.index],
            forward_sync_buffers=False,  # `share_statistics` decides about them
            bucket_cap_mb=machine.bucket_mb,
            gradient_as_bucket_view=True,
        )
        wrapped.register_comm_hook(self, _reduce_and_note)
        return wrapped

    def group_of(self, processes: int) -> Any:
        """The subgroup of so many neighbouring processes that this one is in; every process has to ask."""
        groups = [
            dist.new_group(list(range(first, first + processes))) for first in range(0, self.size, processes)
        ]  # fmt: skip
        return groups[self.rank // processes]

    # ------------------------------------------------------------------------------------------------------ lost peers

    def explain(self, error: RuntimeError) -> RunFailed | None:
        """The error for people behind a collective that failed: which process is gone. None: it is no such error."""
        text = str(error)
        if self.heart is None or not (isinstance(error, dist.DistError) or any(word in text for word in _LOST)):
            return None
        began, patience_s = now_s(), 5.0
        while now_s() - began < patience_s:
            if reason := self._reason():
                return LostPeer(reason)
            threading.Event().wait(0.2)
        lost = f"Lost contact with another process ({text.splitlines()[0][:200]})."
        return LostPeer(f"{late}. {lost}" if (late := self._reason(behind=True)) else lost)

    def _reason(self, *, behind: bool = False) -> str | None:
        assert self.heart is not None
        try:
            return self.heart.behind() if behind else self.heart.verdict() or self.heart.missing(3.0)
        except RuntimeError:
            return f"The meeting place at {self.where.address}:{self.where.port} is gone."

    def on_loss(self, tell: Callable[[str], None]) -> None:
        """What to do with the reason before this process is ended because another one is gone."""
        if self.heart is not None:
            self.heart.on_verdict = tell


class Stragglers:
    """Notices a process that is slower than the others by itself, not because it waits for them."""

    factor, windows = 1.5, 5

    def __init__(self) -> None:
        self._slow: dict[int, int] = {}
        self._told: set[int] = set()

    def look(self, own_s: list[float]) -> str | None:
        """A warning, once a process, when one was slower than the median by `factor` in `windows` reports in a row."""
        if not own_s:
            return None
        median = sorted(own_s)[(len(own_s) - 1) // 2]
        for rank, seconds in enumerate(own_s):
            self._slow[rank] = self._slow.get(rank, 0) + 1 if seconds > self.factor * median else 0
            if self._slow[rank] >= self.windows and rank not in self._told:
                self._told.add(rank)
                times = ", ".join(f"rank {r} {1000 * s:.0f} ms" for r, s in enumerate(own_s))
                return f"rank {rank} is slow: {seconds / median:.1f} times the median. Its own work a step: {times}"
        return None


class LostPeer(RunFailed):
    """Another process of the run is gone. The run directory is sound: the same command goes on from the last checkpoint."""


def _reduce_and_note(
    world: World,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """PyTorch's own averaging of a bucket of gradients, and a note of when this process was done with it."""
    world.handed_over_s = now_s()
    world.reached()
    tensor = bucket.buffer().div_(world.size)
    done: torch.futures.Future[torch.Tensor] = dist.all_reduce(tensor, async_op=True).get_future()
    return done.then(lambda finished: finished.value()[0])


def this_process(world: World, device: Device, threads: int) -> dict[str, Any]:
    """What a run records about each of its processes."""
    where = world.where
    return {
        "rank": where.rank,
        "host": where.host,
        "device": str(device.torch_device(where.local_rank)),
        "cores": allowed(),
        "threads": threads,
        "pid": os.getpid(),
        "launcher": where.launcher,
    }


def process_line(p: dict[str, Any]) -> str:
    """The same for people."""
    return f"rank {p['rank']}: {p['host']}, {p['device']}, cores {','.join(map(str, p['cores']))} ({p['launcher']})"


# -------------------------------------------------------------------------------------------------------- coming together


@contextlib.contextmanager
def joined(where: Topology, device: Device, machine: Machine) -> Iterator[World]:
    """A World while entered. An error that leaves it is told to the other processes, which then end too."""
    if where.world == 1:
        yield World(where)
        return
    if device.backend is None:
        raise ConfigError(f"--procs {where.world}: {device.name} runs in one process only. Use --procs 1.")
    world = _meet(where, device, machine)
    assert world.heart is not None
    try:
        yield world
    except BaseException as error:
        lost = world.explain(error) if isinstance(error, RuntimeError) and not isinstance(error, RunFailed) else None
        told = lost or error
        message = str(told) or type(told).__name__
        record_failure(message)
        with contextlib.suppress(RuntimeError):
            world.heart.report(message if isinstance(told, LostPeer) else f"{where.where()} failed: {message}")
        world.heart.close()
        world.heart.linger()
        if lost is not None:
            raise lost from error
        raise
    world.any(False)  # nobody leaves while another still works
    world.heart.close()
    dist.destroy_process_group()


def _meet(where: Topology, device: Device, machine: Machine) -> World:
    if where.local_world < where.world:
        _choose_interface(where)
    stall_s = STALL_FACTOR * machine.rank_timeout_s
    patience = timedelta(seconds=stall_s + 2 * machine.rank_timeout_s)  # the heartbeat, which knows names, speaks first
    try:
        store = open_store(where, machine.rank_timeout_s, serve=True)
        dist.init_process_group(device.backend, store=store, rank=where.rank, world_size=where.world, timeout=patience)
        control = dist.new_group(backend="gloo", timeout=patience)
        heart = Heartbeat(where, machine.rank_timeout_s, stall_s)
        world = World(where, heart, control)
        world.any(False)
    except RuntimeError as error:
        raise RunFailed(
            f"{where.where()} could not meet the others at {where.address}:{where.port}: {str(error).splitlines()[0].rstrip('.')}. "
            "Check that every host reaches that address and port."
        ) from error
    heart.start()
    return world


def _choose_interface(where: Topology) -> None:
    """Talk over the network that leads to the meeting place, unless GLOO_SOCKET_IFNAME says otherwise."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect((where.address, where.port))
        mine = probe.getsockname()[0]
        for name, addresses in psutil.net_if_addrs().items():
            if any(a.address == mine for a in addresses):
                os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
