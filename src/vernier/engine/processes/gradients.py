"""How the gradients of several processes become their mean, once per step, and how long that is exposed.

Where the device has collectives, PyTorch's DistributedDataParallel sends buckets while backward still runs, unless the
device wants one all-reduce after it. Where it has none, gradients are averaged in host memory after backward. `world`
is the process group that all of them use.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from vernier.clock import now_s
from vernier.config import Config, Derived, Machine
from vernier.devices import Device
from vernier.frozen import frozen
from vernier.torch_private import data_parallel

from .world import World


@frozen
class ReductionTimes:
    """One step of this process: compute time until its last gradients were sent, and then until all were averaged."""

    compute_s: float
    exposed_s: float


class GradientReduction:
    """The gradient all-reduce of a single process: none. `network` is what a step calls."""

    after_backward = False
    """`average` must be called after the last backward pass of a step."""
    loss: torch.Tensor | None = None
    """The mean loss of the last step over all processes; None where the caller has to average."""
    correct: torch.Tensor | None = None
    """The correct predictions of the last step in all processes; None if the caller adds them up or counts none."""
    watch: Callable[[int, torch.Tensor], None] | None = None
    """Reductions by virtual shards call it with the number of each parameter and its gradient for one shard."""
    only_watch = False
    """Gradients are not added to those of the step: a shard is computed once more, to compare."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def begin_step(self) -> None:
        """A step begins; its gradients are those of several micro-batches."""

    def begin_micro(self) -> None:
        """The forward pass of a micro-batch begins."""

    def forward_done(self, loss: torch.Tensor, correct: torch.Tensor | None) -> None:
        """The loss of a micro-batch and, if they are counted, its correct predictions are known; backward follows."""

    def no_sync(self) -> AbstractContextManager[Any]:
        """The context of a micro-batch whose gradients are not all-reduced: not the last one."""
        return nullcontext()

    def backward_done(self) -> None:
        """A backward pass has been queued, whether or not it reduced gradients."""

    def average(self) -> None:
        """Replace the gradients by their mean over the processes, where that was not done during backward."""

    def pop_times(self) -> list[ReductionTimes]:
        """Times of the steps since the last call; the device must be synchronised. Empty where they are not known."""
        return []

    @staticmethod
    def copy_weights_of_first(network: nn.Module, *, on_host: bool) -> None:
        """Give every process the weights of the first, as DistributedDataParallel does when it is created.

        `on_host`: through host memory, for a device without collectives.
        """
        with torch.no_grad():
            for tensor in (*network.parameters(), *network.buffers()):
                sent = (tensor.detach().cpu() if on_host else tensor.detach()).contiguous()
                dist.broadcast(sent, 0)
                tensor.copy_(sent)


ReductionFactory = Callable[[nn.Module, World, Config, Derived, Device, int], GradientReduction]
"""What the entry points `vernier.reductions` name for machine.reduction: called by every process, with the network, the
number of compute threads last. Starting weights become those of the first process."""


def build_reduction(network: nn.Module, world: World, machine: Machine, device: Device) -> GradientReduction:
    """The reduction that suits the device. Collective: starting weights become those of the first process."""
    # DistributedDataParallel refuses a model without trainable parameters.
    if world.size == 1 or not any(p.requires_grad for p in network.parameters()):
        return GradientReduction(network)
    if device.backend is None or device.exchange == "after backward":
        return _LateReduction(network, world, on_host=device.backend is None)
    return _DdpReduction(network, world, machine, device)


class _DdpReduction(GradientReduction):
    """DistributedDataParallel: buckets of gradients are sent while backward computes the next ones."""

    def __init__(self, network: nn.Module, world: World, machine: Machine, device: Device) -> None:
        torch_device = device.torch_device(world.topology.local_rank)
        wrapped = data_parallel(  # buffers during training: `World.sync_batch_norm_statistics`
            network,
            device_ids=None if torch_device.index is None else [torch_device.index],
            bucket_cap_mb=machine.bucket_mb or device.bucket_mb,
            gradient_as_bucket_view=True,  # no second copy of all gradients
        )
        super().__init__(wrapped)
        self._device = device
        self._began: Any = None
        self._buckets = _Buckets(world, device)
        self._moments: list[tuple[Any, Any, Any]] = []
        wrapped.register_comm_hook(self._buckets, _all_reduce_bucket)

    def begin_step(self) -> None:
        self._began, self._buckets.last_sent = self._device.record_event(), None

    def no_sync(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.network.no_sync()  # type: ignore[operator]
        return context

    def backward_done(self) -> None:
        """On the compute stream: it waits for the averaged buckets, so the time since the last one is exposed."""
        last_sent = self._buckets.last_sent
        # None after a micro-batch that is only accumulated. Without events of the device, no time is made up.
        if last_sent is not None and self._device.step_times != "windows":
            self._moments.append((self._began, last_sent, self._device.record_event()))

    def pop_times(self) -> list[ReductionTimes]:
        moments, self._moments = self._moments, []
        elapsed_s = self._device.elapsed_s
        return [ReductionTimes(compute_s=elapsed_s(a, b), exposed_s=elapsed_s(b, c)) for a, b, c in moments]


class _Buckets:
    """What averaging a bucket needs. DistributedDataParallel keeps it where the garbage collector cannot look.

    So it must not lead back to the network, which would never be freed, nor the process group with its threads.
    """

    def __init__(self, world: World, device: Device) -> None:
        self.world, self.device = world, device
        self.last_sent: Any = None
        """When the last bucket of the step was sent: an event of the device."""


def _all_reduce_bucket(
    buckets: _Buckets,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """PyTorch's own averaging of a gradient bucket, with a note of when the last one was sent."""
    if bucket.is_last():
        buckets.last_sent = buckets.device.record_event()
    buckets.world.count_collective()
    # Divided before the sum, as PyTorch's own hook does: a sum in fp16 could overflow.
    tensor = bucket.buffer().div_(buckets.world.size)
    future: torch.futures.Future[torch.Tensor] = dist.all_reduce(tensor, async_op=True).get_future()
    return future.then(lambda finished: finished.value()[0])


class _LateReduction(GradientReduction):
    """One all-reduce of all gradients after the backward pass. Nothing of it is hidden behind computation.

    `on_host`: in host memory, for a device without collectives: one copy down and one up. Otherwise on the device, as
    part of the step's program; no time of it is known.
    """

    after_backward = True

    def __init__(self, network: nn.Module, world: World, *, on_host: bool) -> None:
        super().__init__(network)
        self._world, self._on_host = world, on_host
        self._parameters = [p for p in network.parameters() if p.requires_grad]
        self._began_s = now_s()
        self._times: list[ReductionTimes] = []
        self.copy_weights_of_first(network, on_host=on_host)

    def begin_step(self) -> None:
        self._began_s = now_s()

    def average(self) -> None:
        """The mean over all processes; a parameter that has no gradient in any of them stays without.

        The copy to the host waits for the device, so the clock is read when the gradients are computed.
        """
        gradients = [p.grad for p in self._parameters]
        parts = [torch.zeros_like(p) if g is None else g for p, g in zip(self._parameters, gradients, strict=True)]
        flat = torch.cat([part.reshape(-1) for part in parts])
        if self._on_host:
            flat = flat.cpu()
        # Also summed: how many processes have a gradient. Zeros for a parameter that none uses would let weight decay
        # and momentum change it.
        present = torch.tensor([float(g is not None) for g in gradients], dtype=flat.dtype).to(flat.device)
        sent_s = now_s()
        self._world.count_collective()
        flat = torch.cat([flat.div_(self._world.size), present])
        dist.all_reduce(flat)
        *means, counts = torch.split(flat.to(parts[0].device), [*(part.numel() for part in parts), len(parts)])
        # Read only where it matters: reading waits for the device.
        missing = [g is None for g in gradients]
        used = counts.tolist() if any(missing) else [1.0] * len(parts)
        for parameter, mean, count in zip(self._parameters, means, used, strict=True):
            if count and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if parameter.grad is not None:
                parameter.grad.copy_(mean.view(parameter.shape))
        if self._on_host:
            self._times.append(ReductionTimes(compute_s=sent_s - self._began_s, exposed_s=now_s() - sent_s))

    def pop_times(self) -> list[ReductionTimes]:
        times, self._times = self._times, []
        return times
