"""Batches ahead of time: threads decode and transform into preallocated uint8 buffers; order never depends on them.

Threads, not processes: the decoder and torch's resize release the interpreter lock, so nothing has to cross a process
boundary. The loader keeps no state: what to load is given by index, and the wait for each batch is measured.
"""

import math
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from vernier.clock import now_s
from vernier.config import Augment, Data, train_px
from vernier.data.augment.crop_flip import EvalTransform, TrainTransform, augment_rows, pad_crop_flip_many
from vernier.data.augment.policies import PixelAugment
from vernier.data.decoding.decode import BadImage, Image
from vernier.data.loading.bad_images import BadImages, parse_limit, substitutes
from vernier.data.loading.targets import ClassTargets
from vernier.data.sources import ArraySource, Source
from vernier.data.sources.base import EncodedSource
from vernier.errors import ConfigError, RunFailed
from vernier.randomness import Stream, key, uniform

_CHUNK = 16

Indices = npt.NDArray[np.int64]
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Batch:
    """uint8 images [samples, channels, height, width] in channels-last memory, what is to be learned of them (class
    numbers, or boxes), and how long they were waited for.

    The images live in a buffer that is filled again once the next batch is asked for.
    """

    images: torch.Tensor
    targets: Any
    wait_s: float


class Reader(Protocol):
    """Fills rows of a buffer with the images of given samples; where it took another sample, it changes the index.
    Then makes the targets of the whole batch, whose parts any number of threads may have filled.

    An index past the set is another draw of index mod size.
    """

    shape: tuple[int, int, int]

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        """Height, width and channels in an epoch, never more than `shape`."""
        ...

    def fill(self, epoch: int, indices: Indices, out: Pixels) -> Any:
        """Gives what `targets` has to know about these images, such as where their boxes have moved to."""
        ...

    def targets(self, indices: Indices, filled: list[Any]) -> Any:
        """The targets of a batch: its indices as `fill` left them, and what the calls of `fill` gave, in order."""
        ...


@runtime_checkable
class DeviceReader(Protocol):
    """A reader whose images come to be on a device: it fills tensors there, a whole batch at a time."""

    place: torch.device


def class_numbers(source: Source, indices: Indices) -> torch.Tensor:
    """A classifier's targets."""
    return torch.from_numpy(np.asarray(source.labels[indices % len(source)], dtype=np.int64))


class TrainReader:
    """Augmented training images."""

    def __init__(self, source: Source, data: Data, augment: Augment, seed: int) -> None:
        if augment.crop in ("ssd", "ssd-tf") or augment.jitter != "none":
            raise ConfigError(
                f"augment.crop = {augment.crop}, augment.jitter = {augment.jitter}: ssd crops and jitter are for detectors. "
                "For a classifier use augment.crop=random-resized and augment.jitter=none."
            )
        self._source, self._data, self._augment, self._seed = source, data, augment, seed
        self.bad = BadImages(parse_limit(data.max_bad_images, len(source)), len(source))
        self._transform = TrainTransform(data, augment)
        self._pixels = PixelAugment(data, augment)
        self.shape = (data.image_px, data.image_px, source.channels)
        small = isinstance(source, ArraySource) and source.images.shape[1:3] == (data.image_px, data.image_px)
        self._all_at_once = small and augment.crop != "random-resized" and augment.start_px is None
        self._together = augment.crop == "random-resized" and not isinstance(source, EncodedSource)
        self._open = source.lazy_image if augment.crop == "random-resized" else source.image

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        px = train_px(self._data, self._augment, epoch)
        return px, px, self._source.channels

    def fill(self, epoch: int, indices: Indices, out: Pixels) -> None:
        if self._source.copy_ready_images(indices, out) is not None:
            return
        self._crop_and_flip(epoch, indices, out)
        if self._pixels.draws:
            draws = uniform(key(Stream.PIXELS, self._seed, epoch), indices, self._pixels.draws)
            for place in range(len(indices)):
                self._pixels(out[place], draws[place])

    def targets(self, indices: Indices, filled: list[Any]) -> torch.Tensor:
        return class_numbers(self._source, indices)

    def _crop_and_flip(self, epoch: int, indices: Indices, out: Pixels) -> None:
        rows = augment_rows(self._seed, epoch, indices)
        if self._all_at_once:
            assert isinstance(self._source, ArraySource)
            pad_crop_flip_many(self._source.images[indices % len(self._source)], rows, self._augment, out)
            return
        cuts = []
        for place, row in enumerate(rows):
            cut = self._cut(indices, place, row, out.shape[1])
            if self._together:
                cuts.append(cut)
            else:
                self._transform.finish(cut, row, out[place])
        if cuts:
            self._transform.finish_many(cuts, rows, out)

    def _cut(self, indices: Indices, place: int, row: npt.NDArray[np.float64], size: int) -> Image:
        """The pixels that an image is made of; those of another one where it is bad, whose index then takes its place."""
        index = int(indices[place]) % len(self._source)
        try:
            return self._transform.cut(self._open(index), row, size)
        except (BadImage, OSError) as error:
            self.bad.report(index, self._source.describe(index), str(error))
        for other in substitutes(index, len(self._source)):
            try:
                cut = self._transform.cut(self._open(other), row, size)
            except (BadImage, OSError) as also_bad:
                self.bad.report(other, self._source.describe(other), str(also_bad))
                continue
            indices[place] = other
            return cut
        raise RunFailed(f"No image that can be read was found to stand in for {self._source.describe(index)}.")


class EvalReader:
    """Evaluation images; the epoch plays no part."""

    def __init__(self, source: Source, data: Data) -> None:
        if data.eval_short_side_px < data.eval_px:
            raise ConfigError(
                f"data.eval_short_side_px = {data.eval_short_side_px} is smaller than data.eval_px = {data.eval_px}: "
                "there would be nothing to crop from. Raise the first or lower the second."
            )
        self._source = source
        self.bad = BadImages(parse_limit(data.max_bad_images, len(source)), len(source))
        self._transform = EvalTransform(data)
        self.shape = (data.eval_px, data.eval_px, source.channels)

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        return self.shape

    def fill(self, epoch: int, indices: Indices, out: Pixels) -> None:
        if self._source.copy_ready_images(indices, out) is not None:
            return
        for place, index in enumerate(indices.tolist()):
            try:
                self._transform(self._source.image(index), out[place])
            except (BadImage, OSError) as error:
                self.bad.report(index, self._source.describe(index), str(error))
                out[place] = 0

    def targets(self, indices: Indices, filled: list[Any]) -> ClassTargets:
        return ClassTargets(class_numbers(self._source, indices), torch.from_numpy(indices))


class Loader:
    """Runs a reader ahead of the consumer, `prefetch` batches deep. Memory: (prefetch + 2) batches, whatever the workers.

    `pin`: in memory that a device reads by itself, behind the consumer's back; a buffer is not filled again before it has.
    """

    def __init__(self, reader: Reader, *, batch: int, workers: int, prefetch: int, pin: bool = False) -> None:
        self._reader, self._prefetch = reader, prefetch
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="vernier-loader")
        place = reader.place if isinstance(reader, DeviceReader) else torch.device("cpu")
        on_cpu = place.type == "cpu"
        self._behind = pin or not on_cpu
        self._buffers = [
            torch.empty((batch, *reader.shape), dtype=torch.uint8, device=place, pin_memory=pin and on_cpu)
            for _ in range(prefetch + 2)
        ]
        self._read: dict[int, Any] = {}

    def batches(self, requests: Iterable[tuple[int, Indices]]) -> Generator[Batch]:
        """A batch for each (epoch, indices), in that order."""
        waiting: deque[tuple[torch.Tensor, Indices, list[Future[Any]]]] = deque()
        source = iter(requests)
        turn = 0
        try:
            while True:
                while len(waiting) <= self._prefetch and (request := next(source, None)) is not None:
                    buffer = self._buffers[turn % len(self._buffers)]
                    if (read := self._read.pop(buffer.data_ptr(), None)) is not None:
                        read.synchronize()
                    waiting.append(self._start(buffer, *request))
                    turn += 1
                if not waiting:
                    return
                buffer, indices, jobs = waiting.popleft()
                start = now_s()
                targets = self._reader.targets(indices, [job.result() for job in jobs])
                yield Batch(buffer.permute(0, 3, 1, 2), targets, now_s() - start)
                if self._behind:
                    self._read[buffer.data_ptr()] = torch.accelerator.current_stream().record_event()
        finally:
            unfinished = [job for _, _, jobs in waiting for job in jobs if not job.cancel()]
            wait(unfinished)  # the buffers are about to serve somebody else

    def _start(
        self, buffer: torch.Tensor, epoch: int, indices: Indices
    ) -> tuple[torch.Tensor, Indices, list[Future[Any]]]:
        shape = (len(indices), *self._reader.shape_at(epoch))
        target = buffer.view(-1)[: math.prod(shape)].view(shape)
        on_cpu = target.device.type == "cpu"
        pixels: Any = target.numpy() if on_cpu else target
        indices = np.array(indices)  # the reader may change them
        chunk = max(1, min(_CHUNK, -(-len(indices) // 2)) if on_cpu else len(indices))
        jobs = [
            self._pool.submit(self._reader.fill, epoch, indices[at : at + chunk], pixels[at : at + chunk])
            for at in range(0, len(indices), chunk)
        ]
        return target, indices, jobs

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
