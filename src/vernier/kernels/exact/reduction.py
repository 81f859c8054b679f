"""Gradients, losses and batch-norm statistics of virtual shards, summed in the fixed tree of `tree`.

Every shard is computed alone, and its position in the tree does not depend on the process that computes it: the sums
are the same bit for bit for any number of processes. A process adds up what it can alone while backward runs. When the
last shard's gradients of a bucket are there, each process gets one part of the bucket's sums from every other, adds
them up, and all gather the result: as much traffic as an all-reduce, where processes hold whole nodes of the tree.
"""

from typing import Any
from weakref import ref

import torch
import torch.distributed as dist
from torch import nn

from vernier.config import Config, Derived
from vernier.devices import Device
from vernier.engine.processes.gradients import GradientReduction, ReductionTimes
from vernier.engine.processes.world import World
from vernier.errors import ConfigError, RunFailed
from vernier.torch_private import all_gather_flat, foreach_copy_
from vernier.wording import plural

from .shard_convolutions import convert_convolutions
from .tree import Node, PartialSums, add_up, nodes_within

_ALIGNED = 16
"""Gradients begin at multiples of so many elements, 64 bytes, as a tensor of their own would."""
_MIB = 2**20


def exact_reduction(
    network: nn.Module, world: World, config: Config, derived: Derived, device: Device, threads: int
) -> GradientReduction:
    """The reduction of machine.reduction = exact. Collective. Raises ConfigError for processes that are not alike."""
    refuse_unequal_processes(world, device, threads)
    convert_convolutions(network)
    return ExactReduction(network, world, derived, config.machine.bucket_mb or device.bucket_mb, device)


def refuse_unequal_processes(world: World, device: Device, threads: int) -> None:
    """Refuse processes whose kernels differ: weights would depend on which of them computed which shard. Collective."""
    own = device.own_device(world.topology.local_rank)
    # The instruction set and the number of threads decide how kernels divide their sums: either changes the last bits.
    kernels = torch.backends.cpu.get_cpu_capability()
    what = (f"{own.name}, {kernels}", threads, torch.__version__)
    everyone = world.gather((world.topology.describe(), what))
    # Only rank 0 has `everyone`. It decides for all, so that every process raises the same error or none does.
    pairs = world.broadcast_from_first(lambda: [pair for pair in everyone if pair[1] != everyone[0][1]][:1])
    if pairs:
        ((other, differs),) = pairs
        raise ConfigError(
            "machine.reduction = exact needs processes that compute alike, and these do not: rank 0 has "
            f"{_described(world.broadcast_from_first(lambda: what))}; {other} has {_described(differs)}. Use hosts of "
            "one kind and the same machine.threads, or machine.reduction=ddp."
        )


def _described(what: tuple[str, int, str]) -> str:
    name, threads, version = what
    return f"{name}, {plural(threads, 'thread')}, torch {version}"


class _Division:
    """Which nodes of the tree each process computes alone."""

    def __init__(self, shards: int, world: World) -> None:
        each = shards // world.size
        self.shards, self.world, self.rank = shards, world.size, world.rank
        self.held = (world.rank * each, (world.rank + 1) * each)
        # [rank][turn]. Ranks may hold different numbers of nodes: 2, 3 and 2 for 12 shards on 3 processes.
        self.nodes = [nodes_within((rank * each, (rank + 1) * each), shards) for rank in range(world.size)]
        self.rounds = max(map(len, self.nodes))
        """The most sums that one process has to send."""

    def partial_sums(self) -> PartialSums[torch.Tensor]:
        return PartialSums(self.held, self.shards, torch.Tensor.add_)

    def add_up(self, sums: dict[Node, torch.Tensor]) -> torch.Tensor:
        return add_up(sums, self.shards, torch.Tensor.add_)


class _Bucket:
    """Neighbouring gradients, sent together. Does not refer to parameters, which have hooks that refer to it."""

    def __init__(self, parameters: list[nn.Parameter], division: _Division) -> None:
        self._division = division
        starts, length = [], 0
        for parameter in parameters:
            starts.append(length)
            length += -(-parameter.numel() // _ALIGNED) * _ALIGNED
        # Each rank adds up one part for all. Parts have one length, so the bucket may end with padding: it stays zero.
        self._part = -(-length // (division.world * _ALIGNED)) * _ALIGNED
        own = len(division.nodes[division.rank])
        like = parameters[0]
        # One flat tensor [world x part] per node of this rank, and views into it with the layout of each parameter,
        # such as channels-last: they become `parameter.grad`.
        self._flats = [like.new_zeros(self._part * division.world) for _ in range(own)]
        self._views = [
            [flat.as_strided(p.shape, p.stride(), start) for p, start in zip(parameters, starts, strict=True)]
            for flat in self._flats
        ]
        # Turn t exchanges the t-th node of each rank that has one: [senders, part]. One process alone receives nothing.
        senders = [sum(len(nodes) > turn for nodes in division.nodes) for turn in range(division.rounds)]
        self._received = [like.new_empty(count, self._part) for count in senders if division.world > 1]
        self._sums = [division.partial_sums() for _ in parameters]
        self._missing = len(parameters)
        self._works: list[Any] = []

    @property
    def ready(self) -> bool:
        """Whether the gradients of all held shards are there."""
        return self._missing == 0

    @property
    def gradients(self) -> list[torch.Tensor]:
        """The sums over all shards, after `gather`; the memory is that of the next step's too."""
        return self._views[0]

    def push(self, index: int, gradient: torch.Tensor) -> None:
        """Add the gradient of the next shard, which becomes the bucket's own."""
        sums = self._sums[index]
        sums.push(gradient)
        if sums.complete:
            for views, total in zip(self._views, sums.pop(), strict=True):
                views[index].copy_(total)
            self._missing -= 1

    def send(self) -> None:
        """Give every process its part of this one's sums. Nothing waits."""
        for turn, received in enumerate(self._received):
            # A rank without a node in this turn has to take part in the collective all the same, with nothing to send.
            own = self._flats[turn] if turn < len(self._flats) else self._flats[0][:0]
            work = dist.all_to_all_single(
                received.view(-1),
                own,
                output_split_sizes=[self._part if len(nodes) > turn else 0 for nodes in self._division.nodes],
                input_split_sizes=[len(own) // self._division.world] * self._division.world,
                async_op=True,
            )
            self._works.append(work)

    def add_up(self) -> None:
        """Add up this process's part of the sums of all, and give it to the others. Waits for what `send` began."""
        self._wait()
        sums: dict[Node, torch.Tensor] = {}
        for turn, received in enumerate(self._received):
            holders = [nodes[turn] for nodes in self._division.nodes if len(nodes) > turn]
            sums.update(zip(holders, received.unbind(), strict=True))
        # The total overwrites the first flat, whose content is with the others: `_wait` has returned for what was sent.
        self._works.append(all_gather_flat(self._flats[0], self._division.add_up(sums)))

    def gather(self) -> None:
        """Wait until all of the bucket is added up."""
        self._wait()
        self._missing = len(self._sums)

    def _wait(self) -> None:
        works, self._works = self._works, []
        for work in works:
            work.wait()


class _Sending:
    """Sends buckets in their order, which is that of all processes, as soon as they are ready.

    When a bucket is sent, the one before it is added up: both are under way while backward computes the next one.
    """

    def __init__(self, buckets: list[_Bucket], world: World, device: Device) -> None:
        self.buckets, self._world, self._device = buckets, world, device
        self.last_sent: Any = None
        self._next = 0

    def push(self, bucket: _Bucket, index: int, gradient: torch.Tensor) -> None:
        bucket.push(index, gradient)
        # A later bucket that is ready first waits: collectives are matched by their order, the same in every process.
        while self._next < len(self.buckets) and self.buckets[self._next].ready:
            self._exchange(self._next)
            self._next += 1

    def _exchange(self, number: int) -> None:
        """Send a bucket, if there is one of this number, and add up the one before it."""
        if self._world.size == 1:
            return
        self._world.count_collective()
        if number < len(self.buckets):
            self.buckets[number].send()
            self.last_sent = self._device.record_event()
        if number > 0:
            self.buckets[number - 1].add_up()

    def finish(self) -> None:
        """Wait until every process has the sums of all buckets."""
        # A bucket that lacks a gradient is never sent, nor are those after it.
        if self._next < len(self.buckets):
            raise RunFailed(
                "Some parameters of the network got no gradient, so machine.reduction = exact cannot add it up. Use "
                "machine.reduction=ddp."
            )
        # No bucket has this number: only the last one is left to be added up.
        self._exchange(self._next)
        self._next = 0
        for bucket in self.buckets:
            bucket.gather()


class _Values:
    """Few numbers per shard: loss, correct predictions, batch-norm statistics. Every process adds up all sums."""

    def __init__(self, division: _Division, world: World) -> None:
        self._division, self._world = division, world
        self._sums = division.partial_sums()
        self._gathered: torch.Tensor | None = None
        self._work: Any = None

    def push(self, values: torch.Tensor) -> None:
        """Add those of the next shard; the last one's are sent to the others, and nothing waits for it."""
        self._sums.push(values)
        if not self._sums.complete:
            return
        own, rounds = self._sums.pop(), self._division.rounds
        # Padded to [rounds, values], because an all-gather needs one size everywhere. `total` skips the padding.
        sent = torch.stack([*own, *(torch.zeros_like(values) for _ in range(rounds - len(own)))])
        self._gathered = sent[None]
        if self._world.size > 1:
            self._world.count_collective()
            self._gathered = sent.new_empty(self._world.size, *sent.shape)
            self._work = all_gather_flat(self._gathered.view(-1), sent.view(-1))

    def total(self) -> torch.Tensor:
        """The sum over all shards."""
        if self._work is not None:
            self._work.wait()
        assert self._gathered is not None
        sums = {
            node: self._gathered[rank, turn]
            for rank, nodes in enumerate(self._division.nodes)
            for turn, node in enumerate(nodes)
        }
        self._gathered, self._work = None, None
        return self._division.add_up(sums)


class _RunningStatistics:
    """The running statistics of the batch norms in training mode: frozen ones must not be rounded.

    Each shard updates those that the step began with, and the step's are the mean of what the shards made of them.
    """

    def __init__(self, network: nn.Module) -> None:
        saved = network.state_dict().keys()  # buffers that are not saved, such as default boxes, are no statistics
        self._buffers = [
            (module, buffer)
            for name, module in network.named_modules()
            for key, buffer in module.named_buffers(name, recurse=False)
            if key in saved
        ]
        self._live: list[torch.Tensor] = []
        self._start: list[torch.Tensor] = []

    def begin_step(self) -> None:
        self._live = [buffer for module, buffer in self._buffers if module.training]
        self._start = [buffer.clone() for buffer in self._live]

    def begin_shard(self) -> None:
        # A shard that began with what the shard before it left would depend on which process computed that one.
        if self._live:
            foreach_copy_(self._live, self._start)

    def values(self) -> list[torch.Tensor]:
        """What the shard made of them. Counters are the same for every shard."""
        return [buffer.reshape(-1) for buffer in self._live if buffer.is_floating_point()]

    def load(self, means: torch.Tensor) -> None:
        buffers = [buffer for buffer in self._live if buffer.is_floating_point()]
        for buffer, mean in zip(buffers, torch.split(means, [b.numel() for b in buffers]), strict=True):
            buffer.copy_(mean.view(buffer.shape))


class ExactReduction(GradientReduction):
    """Sums over virtual shards in one order, also in a run of one process. A micro-batch is a shard."""

    after_backward = True

    def __init__(self, network: nn.Module, world: World, derived: Derived, bucket_mb: int, device: Device) -> None:
        super().__init__(network)
        assert derived.virtual_shards is not None
        self._world, self._device, self._shards = world, device, derived.virtual_shards
        division = _Division(self._shards, world)
        self._parameters = _divide([p for p in network.parameters() if p.requires_grad], bucket_mb * _MIB)
        self._sending = _Sending([_Bucket(part, division) for part in self._parameters], world, device)
        numbers = {parameter: number for number, parameter in enumerate(network.parameters())}
        for part, bucket in zip(self._parameters, self._sending.buckets, strict=True):
            for index, parameter in enumerate(part):
                hook = self._hook(bucket, index, numbers[parameter])
                parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        self._values, self._statistics = _Values(division, world), _RunningStatistics(network)
        self._correct = 0
        self._began: Any = None
        self._moments: list[tuple[Any, Any, Any]] = []
        # `engine.build` refuses devices without collectives, so none needs the way through host memory.
        if world.size > 1:
            self.copy_weights_of_first(network, on_host=False)

    def _hook(self, bucket: _Bucket, index: int, number: int) -> Any:
        """Takes a parameter's gradient as soon as backward has it."""
        this = ref(self)  # a parameter that kept its reduction would keep the network, too

        def take(parameter: torch.Tensor) -> None:
            # Taken away: autograd would add the next shard to it, in an order that is not the tree's.
            gradient, parameter.grad = parameter.grad, None
            reduction = this()
            assert gradient is not None
            assert reduction is not None
            if reduction.watch is not None:
                reduction.watch(number, gradient)
            if not reduction.only_watch:
                reduction._sending.push(bucket, index, gradient)

        return take

    def begin_step(self) -> None:
        self._began = self._device.record_event()
        self._statistics.begin_step()

    def begin_micro(self) -> None:
        self._statistics.begin_shard()

    def forward_done(self, loss: torch.Tensor, correct: torch.Tensor | None) -> None:
        self._correct = 0 if correct is None else len(correct)
        parts = [loss.detach().reshape(1), *([] if correct is None else [correct]), *self._statistics.values()]
        self._values.push(torch.cat([part.float() for part in parts]))

    def average(self) -> None:
        self._sending.finish()
        for part, bucket in zip(self._parameters, self._sending.buckets, strict=True):
            for parameter, gradient in zip(part, bucket.gradients, strict=True):
                parameter.grad = gradient
        # [loss, correct, statistics] as `forward_done` joined them: correct predictions are a sum, the others means.
        total, shards = self._values.total(), self._shards
        self.loss, self.correct = total[0] / shards, total[1 : 1 + self._correct] if self._correct else None
        self._statistics.load(total[1 + self._correct :] / shards)
        if self._world.size > 1 and self._device.step_times != "windows":
            self._moments.append((self._began, self._sending.last_sent, self._device.record_event()))

    def pop_times(self) -> list[ReductionTimes]:
        moments, self._moments = self._moments, []
        elapsed_s = self._device.elapsed_s
        return [ReductionTimes(compute_s=elapsed_s(a, b), exposed_s=elapsed_s(b, c)) for a, b, c in moments]


def _divide(parameters: list[nn.Parameter], limit_bytes: int) -> list[list[nn.Parameter]]:
    """Buckets of about so many bytes and one type, in the order in which backward reaches them."""
    buckets: list[list[nn.Parameter]] = []
    size = 0
    for parameter in reversed(parameters):
        bytes_here = parameter.numel() * parameter.element_size()
        if not buckets or buckets[-1][0].dtype != parameter.dtype or size + bytes_here > limit_bytes:
            buckets.append([])
            size = 0
        buckets[-1].append(parameter)
        size += bytes_here
    return buckets
