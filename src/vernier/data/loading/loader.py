"""Prefetches batches: threads decode and transform into preallocated uint8 buffers; the order never depends on them.

Threads, not processes: the decoder and torch's resize release the interpreter lock, so nothing has to cross a process
boundary. The loader keeps no state: requests name samples by index, and the wait for each batch is measured. What a
batch is filled with is the readers' business (`readers`), which samples it holds `order`'s.
"""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from vernier.clock import now_s, thread_cpu_s
from vernier.cores import allowed_cores
from vernier.data.decoding.decode import Image
from vernier.data.sources.base import Indices
from vernier.devices import Device

_CHUNK = 16  # images per job: fewer cost hand-overs between threads, more leave threads idle at the end of a batch


@dataclass(frozen=True)
class Batch:
    """uint8 images [samples, channels, height, width] in channels-last memory, their targets (class numbers, or boxes),
    and how long the consumer waited for them.

    The images live in a buffer that is filled again once the next batch is requested. `copied` is to be called as soon
    as the copy of the images to the device is queued: the buffer is then free before the step that uses them is done.
    """

    images: Tensor
    targets: Any
    wait_s: float
    copied: Callable[[], None] = lambda: None


class Reader(Protocol):
    """Fills rows of a buffer with the images of some samples; where it takes another sample, it changes the index.
    Then makes the targets of the whole batch, whose parts any number of threads may have filled.

    An index past the set is another draw of index mod size.
    """

    shape: tuple[int, int, int]

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        """Height, width and channels in an epoch, never more than `shape`."""
        ...

    def fill(self, epoch: int, indices: Indices, out: Image) -> Any:
        """Fill `out`. Returns what `targets` needs to know about these images, such as their boxes after cropping."""
        ...

    def targets(self, indices: Indices, filled: list[Any]) -> Any:
        """The targets of a batch: its indices as `fill` left them, and what the calls of `fill` returned, in order."""
        ...


@runtime_checkable
class _DeviceReader(Protocol):
    """A reader that decodes on a device: it fills tensors there, a whole batch at a time."""

    torch_device: torch.device


@dataclass
class _Buffer:
    """Memory of a batch, and a moment in the device's queue after which the last batch in it has been read."""

    images: Tensor
    queue: Device | None
    on_device: bool = False
    read: Any = None

    def note_read(self) -> None:
        """What was queued so far reads the batch; nothing later does."""
        if self.queue is not None:
            # Images that live on the device are read by what computes there, others by the copy alone.
            self.read = self.queue.record_event() if self.on_device else self.queue.copied_event()

    def is_free(self) -> bool:
        return self.queue is None or self.read is None or self.queue.is_done(self.read)

    def wait(self) -> None:
        if self.queue is not None and self.read is not None:
            self.queue.wait_for(self.read)


@dataclass(frozen=True)
class _Deferred:
    """Work done by the thread that requests its result, if there are no loader threads."""

    work: Callable[[], Any]

    def result(self) -> Any:
        return self.work()


@dataclass(frozen=True)
class _Pending:
    """A batch in the making."""

    buffer: _Buffer
    images: Tensor
    indices: Indices
    jobs: Sequence[Future[Any] | _Deferred]


_FEWEST_WORKERS = 2
_GOAL_IMAGES_PER_S = 3000
"""What one H100 trains of ResNet-50 per second. For a slower device it is more threads than it needs: they wait."""


def _choose_workers(reader: Reader, samples: int, device: Device | None) -> int:
    """Threads that decode as many images per second as a fast accelerator takes; of the cores, one is left to launch.

    A CPU needs its cores for the network. The cost is CPU time, so that other programs do not change it.
    """
    if device is None or device.name == "cpu" or isinstance(reader, _DeviceReader):
        return _FEWEST_WORKERS
    out = np.empty((_CHUNK, *reader.shape_at(0)), np.uint8)
    cpu_s = 0.0
    for _ in range(2):  # the first time, code is loaded and compiled
        began_s = thread_cpu_s()
        reader.fill(0, np.arange(_CHUNK) % samples, out)
        cpu_s = (thread_cpu_s() - began_s) / _CHUNK
    return max(_FEWEST_WORKERS, min(math.ceil(_GOAL_IMAGES_PER_S * cpu_s), len(allowed_cores()) - 1))


class Loader:
    """Runs a reader ahead of the consumer by `prefetch` batches. Memory: prefetch + 2 batches, whatever the workers.

    Without workers nothing is prepared ahead: a batch is made when it is asked for, by the thread that asks.
    `device` is where batches are copied to, if not the CPU. Where it copies or reads buffers while the host goes on, a
    buffer is not filled again before that is done.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        batch: int,
        workers: int | None,
        prefetch: int,
        device: Device | None = None,
        samples: int = 1,
    ) -> None:
        """Without a number of `workers` it is chosen by a fixed rule; the first `samples` of the reader then exist."""
        self.workers = workers = _choose_workers(reader, samples, device) if workers is None else workers
        self._reader, self._prefetch = reader, prefetch if workers else 0
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="vernier-loader") if workers else None
        # prefetch + 1 batches in the making, and the one that the consumer still reads.
        shape, count = (batch, *reader.shape), self._prefetch + 2
        if isinstance(reader, _DeviceReader) and reader.torch_device.type != "cpu":
            images = [torch.empty(shape, dtype=torch.uint8, device=reader.torch_device) for _ in range(count)]
            self._buffers = [_Buffer(buffer, device, on_device=True) for buffer in images]
        else:
            images = [torch.empty(shape, dtype=torch.uint8) for _ in range(count)]
            queue = device if device is not None and device.pins_memory else None
            self._buffers = [_Buffer(queue.pinned(buffer) if queue else buffer, queue) for buffer in images]

    def batches(self, requests: Iterable[tuple[int, Indices]]) -> Generator[Batch]:
        """A batch for each (epoch, indices), in that order."""
        pending: deque[_Pending] = deque()
        source = iter(requests)
        turn = 0
        try:
            while True:
                while len(pending) <= self._prefetch:
                    buffer = self._buffers[turn % len(self._buffers)]
                    # The device may still be copying from this buffer. As long as other batches are prepared, the host
                    # goes on with those: it is ahead of the device by as many steps, and waits only after that.
                    if (pending and not buffer.is_free()) or (request := next(source, None)) is None:
                        break
                    buffer.wait()
                    pending.append(self._start(buffer, *request))
                    turn += 1
                if not pending:
                    return
                batch = pending.popleft()
                start = now_s()
                targets = self._reader.targets(batch.indices, [job.result() for job in batch.jobs])
                buffer, buffer.read = batch.buffer, None
                yield Batch(batch.images.permute(0, 3, 1, 2), targets, now_s() - start, buffer.note_read)
                # The consumer is back: everything that it queued for this batch comes before this event.
                if buffer.read is None:
                    buffer.note_read()
        finally:
            jobs = [job for batch in pending for job in batch.jobs if isinstance(job, Future)]
            wait([job for job in jobs if not job.cancel()])  # another call may use the buffers next

    def _start(self, buffer: _Buffer, epoch: int, indices: Indices) -> _Pending:
        shape = (len(indices), *self._reader.shape_at(epoch))
        images = buffer.images.view(-1)[: math.prod(shape)].view(shape)
        on_cpu = images.device.type == "cpu"
        pixels: Any = images.numpy() if on_cpu else images
        indices = np.array(indices)  # the reader may change them
        # At least two jobs per batch, so that two threads share a small one.
        chunk = max(1, min(_CHUNK, -(-len(indices) // 2)) if on_cpu else len(indices))
        parts = [(indices[at : at + chunk], pixels[at : at + chunk]) for at in range(0, len(indices), chunk)]
        return _Pending(buffer, images, indices, [self._submit(epoch, *part) for part in parts])

    def _submit(self, epoch: int, indices: Indices, pixels: Any) -> "Future[Any] | _Deferred":
        if self._pool is None:
            return _Deferred(lambda: self._reader.fill(epoch, indices, pixels))
        return self._pool.submit(self._reader.fill, epoch, indices, pixels)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
