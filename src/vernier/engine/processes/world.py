"""The process group of a run: rendezvous, agreement, gathering results, and ending together.

A run of one process has a World too, whose collectives do nothing, so the engine reads the same in both cases. `launch`
finds out which processes there are; `heartbeat` watches whether they are alive; `gradients` averages gradients.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from vernier.clock import now_s
from vernier.config import Machine
from vernier.cores import allowed_cores
from vernier.devices import Device
from vernier.errors import ConfigError, Refusal, RunFailed
from vernier.records.events import ProcessInfo
from vernier.references import given, plain, use
from vernier.signals import StopRequested
from vernier.wording import plural

from .heartbeat import STOP, Heartbeat, open_store
from .launch import Topology, record_failure
from .reach import connect_hosts

T = TypeVar("T")

STALL_FACTOR = 10
"""A process that is alive but enters no collective for this many times machine.rank_timeout_s is called stuck."""
# Backends share no error type for a lost peer; each raises a RuntimeError with a text of its own.
_CONNECTION_WORDS = (
    "gloo",
    "nccl",
    "hccl",
    "xccl",
    "Connection closed",
    "Connection reset",
    "Broken pipe",
    "Socket",
    "peer",
)


@dataclass(frozen=True)
class _StepDecision:
    """What all processes agreed on at the end of a step: to stop the run, to report the steps so far."""

    stop: bool
    report: bool


class World:
    """This process and its peers. Created by `join_processes`."""

    def __init__(self, topology: Topology, heart: Heartbeat | None = None, control: Any = None) -> None:
        self.topology, self.rank, self.size = topology, topology.rank, topology.world
        self.heart, self._control = heart, control
        self._pending: tuple[torch.Tensor, Any] | None = None

    @property
    def first(self) -> bool:
        """Whether this is rank 0."""
        return self.topology.first

    def process_info(self, device: Device, threads: int) -> ProcessInfo:
        """Where this process runs, for the run's record."""
        topology = self.topology
        return ProcessInfo(
            rank=topology.rank,
            host=topology.host,
            device=str(device.torch_device(topology.local_rank)),
            cores=tuple(allowed_cores()),
            threads=threads,
            pid=os.getpid(),
            launcher=topology.launcher,
            uuid=device.own_device(topology.local_rank).uuid,
        )

    def count_collective(self) -> None:
        """Count one more collective entered; the heartbeat names the rank that entered fewest."""
        if self.heart is not None:
            self.heart.collectives_entered += 1

    # ------------------------------------------------------------------------------------------------ agreement

    def agree_on_stop_and_report(self, step: int, *, stop: bool, report: bool) -> _StepDecision:
        """Whether any process wants to stop or report; with several processes, the answer of the previous step."""
        if self.size == 1:
            return _StepDecision(stop, report)
        if self.heart is not None:
            self.heart.step = step
        self.count_collective()
        decision = _StepDecision(False, False)
        # The all-reduce of a step runs beside the next step and is read after it, so that no step waits for it. All
        # processes read the same answer at the same step, and act on it together.
        if self._pending is not None:
            earlier, work = self._pending
            work.wait()
            decision = _StepDecision(*earlier.bool().tolist())
        requests = torch.tensor([stop, report], dtype=torch.int32)
        self._pending = (requests, dist.all_reduce(requests, dist.ReduceOp.MAX, group=self._control, async_op=True))
        return decision

    def any_process(self, condition: bool) -> bool:
        """Whether the condition holds in any process, now."""
        if self.size == 1:
            return condition
        self.count_collective()
        flag = torch.tensor([condition], dtype=torch.int32)
        dist.all_reduce(flag, dist.ReduceOp.MAX, group=self._control)
        return bool(flag[0])

    def gather(self, value: T) -> list[T]:
        """All values by rank in the first process; elsewhere an empty list."""
        if self.size == 1:
            return [value]
        self.count_collective()
        values: list[Any] | None = [None] * self.size if self.first else None
        dist.gather_object(value, values, dst=0, group=self._control)
        return values or []

    def share(self, value: T) -> list[T]:
        """All values by rank, in every process."""
        if self.size == 1:
            return [value]
        self.count_collective()
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self._control)
        return values

    def broadcast_from_first(self, compute: Callable[[], T]) -> T:
        """The result of `compute`, run in the first process, in all; so is its ConfigError or RunFailed."""
        if self.size == 1:
            return compute()
        outcome: list[Any] = [None, None]
        # All processes get the error as the outcome. Raised in rank 0 alone, it would leave others in the broadcast.
        if self.first:
            try:
                outcome[0] = compute()
            except (ConfigError, RunFailed) as error:
                outcome[1] = error
        self.count_collective()
        dist.broadcast_object_list(outcome, src=0, group=self._control)
        if isinstance(outcome[1], Exception):
            raise outcome[1]
        result: T = outcome[0]
        return result

    # -------------------------------------------------------------------------------------------------------- tensors

    def average_(self, tensors: list[torch.Tensor]) -> None:
        """Replace each tensor by its mean over the processes."""
        if self.size == 1 or not tensors:
            return
        self.count_collective()
        flat = torch.cat([t.detach().reshape(-1) for t in tensors]).cpu().double()  # one copy; some devices lack double
        dist.all_reduce(flat, group=self._control)
        flat /= self.size
        for tensor, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view(tensor.shape))

    def sync_batch_norm_statistics(
        self, model: nn.Module, averages: dict[str, torch.Tensor] | None, policy: str
    ) -> None:
        """Make batch-norm statistics equal in all processes: their mean, or those of the first process."""
        if self.size == 1:
            return
        saved = model.state_dict()  # buffers that are not saved, such as default boxes, are no statistics
        names = [n for n, b in model.named_buffers() if n in saved and b.is_floating_point()]
        live = dict(model.named_buffers())
        tensors = [live[n] for n in names] + ([averages[n] for n in names] if averages is not None else [])
        # The others contribute zeros: one all-reduce gives all processes the statistics of rank 0, divided by the size.
        if policy == "first" and not self.first:
            for tensor in tensors:
                tensor.zero_()
        self.average_(tensors)
        if policy == "first":
            for tensor in tensors:
                tensor.mul_(self.size)

    def subgroup(self, processes: int, backend: str | None = None) -> Any:
        """This process's group of so many neighbouring ranks, with the device's backend unless another one is given.

        Collective: every process must call it.
        """
        starts = range(0, self.size, processes)
        # PyTorch requires every process to create every group in the same order, also those it does not belong to.
        groups = [dist.new_group(list(range(start, start + processes)), backend=backend) for start in starts]
        return groups[self.rank // processes]

    # ------------------------------------------------------------------------------------------------------------- end

    @property
    def in_flight(self) -> bool:
        """Whether a collective may still be waiting for other processes."""
        return self._pending is not None

    def destroy_groups(self) -> None:
        """Destroy the process groups, which waits for their threads; no collective may be waiting for a lost process.

        A gloo thread may still have to drop the tensor of the last collective, which is one of the control group. If
        Python shuts down before that, the process is aborted, and a finished run has failed.
        """
        if self._pending is not None:
            self._pending[1].wait()
        self._pending = self._control = None
        dist.destroy_process_group()

    # ------------------------------------------------------------------------------------------------------ lost peers

    def explain_lost_peer(self, error: RuntimeError) -> RunFailed | None:
        """Which process is gone, when a collective failed for that reason; None for any other error.

        Raises StopRequested when a signal has ended it before the first step.
        """
        text = str(error)
        connection = isinstance(error, dist.DistError) or any(word in text for word in _CONNECTION_WORDS)
        heart = self.heart
        if heart is None or not connection:
            return None
        # The collective fails at once. A verdict comes after the next beat, about one per second, silence after three.
        began, patience_s = now_s(), 5.0
        while now_s() - began < patience_s:
            if reason := self._ask_heart(lambda: heart.verdict() or heart.describe_silent(3.0)):
                if reason.startswith(STOP):
                    raise StopRequested(reason.removeprefix(STOP)) from None
                return LostPeer(reason)
            threading.Event().wait(0.2)
        # Messages of NCCL go over many lines.
        lost = f"Lost contact with another process ({text.splitlines()[0][:200]})."
        return LostPeer(f"{late}. {lost}" if (late := self._ask_heart(heart.describe_laggards)) else lost)

    def _ask_heart(self, question: Callable[[], str | None]) -> str | None:
        try:
            return question()
        except RuntimeError:
            return f"The rendezvous at {self.topology.rendezvous} is gone."

    def on_lost_peer(self, callback: Callable[[str], None]) -> None:
        """Call `callback` with the reason before this process is ended because another one is gone."""
        if self.heart is not None:
            self.heart.on_verdict = callback


class Stragglers:
    """Finds processes that are slow by their own work, not because they wait for others."""

    # Five reports in a row: one slow report can be another program, or a checkpoint.
    factor, windows = 1.5, 5

    def __init__(self) -> None:
        self._slow_reports: dict[int, int] = {}
        self._warned: set[int] = set()

    def check(self, compute_s: list[float]) -> str | None:
        """A warning, once per process, when one exceeds `factor` times the median in `windows` reports in a row."""
        if not compute_s:
            return None
        # The lower one of two middle values: of two processes it is the faster one, which the slower one can exceed.
        median = sorted(compute_s)[(len(compute_s) - 1) // 2]
        for rank, seconds in enumerate(compute_s):
            self._slow_reports[rank] = self._slow_reports.get(rank, 0) + 1 if seconds > self.factor * median else 0
            if self._slow_reports[rank] >= self.windows and rank not in self._warned:
                self._warned.add(rank)
                times = ", ".join(f"rank {r} {1000 * s:.0f} ms" for r, s in enumerate(compute_s))
                return f"rank {rank} is slow: {seconds / median:.1f} times the median. Own work per step: {times}"
        return None


class LostPeer(RunFailed):
    """Another process of the run is gone. The run can be resumed from its last checkpoint with the same command."""


# ----------------------------------------------------------------------------------------------------------- rendezvous


@contextlib.contextmanager
def join_processes(topology: Topology, device: Device, machine: Machine) -> Iterator[World]:
    """The process group while entered. An error in here ends the other processes too, with its message."""
    if topology.world == 1:
        yield World(topology)
        return
    _refuse_more_processes_than_devices(topology, device)
    world = _rendezvous(topology, device, machine)
    assert world.heart is not None
    try:
        _refuse_devices_in_use_twice(world, device)
        yield world
    except BaseException as error:
        cause = _cause(world, error)
        # With its references: the process that prints it words them as its command would.
        message = (cause.message if isinstance(cause, Refusal) else str(cause)) or type(cause).__name__
        record_failure(plain(message))
        # The verdict before the beats end: otherwise this process would be named as silent, and its reason be lost.
        with contextlib.suppress(RuntimeError):
            world.heart.report(_verdict(topology, cause, message))
        world.heart.close()
        world.heart.keep_store_readable()
        if cause is not error:
            raise cause from error
        # Destroying a group waits for its collectives, and a peer of this one may never enter it.
        if not world.in_flight:
            world.destroy_groups()
        raise
    world.any_process(False)  # a barrier: nobody leaves while another still works
    world.heart.close()
    world.destroy_groups()


def _cause(world: World, error: BaseException) -> BaseException:
    """The error, or what it comes from: that another process is gone."""
    if not isinstance(error, RuntimeError) or isinstance(error, RunFailed):
        return error
    try:
        return world.explain_lost_peer(error) or error
    except StopRequested as request:
        return request


def _verdict(topology: Topology, cause: BaseException, message: str) -> str:
    """Why the other processes have to end."""
    if isinstance(cause, StopRequested):
        return f"{STOP}{message}"
    return message if isinstance(cause, LostPeer) else f"{topology.describe()} failed: {message}"


def _refuse_more_processes_than_devices(topology: Topology, device: Device) -> None:
    """Where a process sees one device, a launcher may have given each process its own; not where it cannot have."""
    count, local = device.count(), topology.local_world
    if not device.shared and local > count and (count > 1 or device.backend is None):
        raise ConfigError(
            f"{given('machine.procs', topology.world)}: {plural(local, 'process')} on this host, which has "
            f"{plural(count, f'{device.name} device')}, and each needs its own. Use {use('machine.procs', count)}, or "
            f"{use('machine.device', 'cpu')}."
        )


def _refuse_devices_in_use_twice(world: World, device: Device) -> None:
    """Two processes of a host on one device, which it does not allow; a UUID that is not known is not compared."""
    where, own = world.topology, None if device.shared else device.own_device(world.topology.local_rank).uuid
    everyone = world.gather((where.host, own))
    pairs = world.broadcast_from_first(lambda: [pair for pair in everyone if pair[1] and everyone.count(pair) > 1])
    if pairs:
        host, uuid = pairs[0]
        raise ConfigError(
            f"{plural(pairs.count(pairs[0]), 'process')} on {host} share the {device.name} device {uuid}, and each "
            "needs its own. Start fewer processes there, or let each see another device."
        )


def _rendezvous(topology: Topology, device: Device, machine: Machine) -> World:
    stall_s = STALL_FACTOR * machine.rank_timeout_s
    # longer than the heartbeat's limits: its message names the process, a collective's timeout does not
    timeout = timedelta(seconds=stall_s + 2 * machine.rank_timeout_s)
    device.prepare_collectives(
        rank=topology.rank,
        local_rank=topology.local_rank,
        world=topology.world,
        deterministic=machine.deterministic,
    )
    try:
        store = open_store(topology, machine.rank_timeout_s, serve=True)
        # Before the first collective: it chooses the network interface of gloo, which reads it when the group is made.
        if topology.local_world < topology.world:
            connect_hosts(PrefixStore("reach", store), topology, machine.rank_timeout_s)
        dist.init_process_group(
            device.backend or "gloo",
            store=store,
            rank=topology.rank,
            world_size=topology.world,
            timeout=timeout,
            # NCCL then connects now, where its errors are understood, and not in the first backward pass.
            device_id=device.torch_device(topology.local_rank) if device.connects_early else None,
        )
        # Decisions and records are in host memory, which NCCL cannot send. In a group of their own, because collectives
        # of one group are matched by their order, and gradients are sent while backward runs.
        control = dist.new_group(backend="gloo", timeout=timeout)
        heart = Heartbeat(topology, machine.rank_timeout_s, stall_s)
        world = World(topology, heart, control)
        # A barrier: `multi_get` of the watching thread would wait for the first beat of a process that starts late.
        world.any_process(False)
    except RunFailed:
        raise
    except RuntimeError as error:
        raise RunFailed(_describe_rendezvous_error(topology, str(error))) from error
    heart.start()
    return world


def _describe_rendezvous_error(topology: Topology, text: str) -> str:
    if "EADDRINUSE" in text:
        return (
            f"{topology.describe()}: another program uses port {topology.port} there, which is to be the rendezvous of "
            "this run. Set the variable MASTER_PORT to a free port, the same for all processes."
        )
    return (
        f"{topology.describe()} could not reach the rendezvous at {topology.rendezvous}: "
        f"{text.splitlines()[0].rstrip('.')}. Check that every host can reach that address and port."
    )
