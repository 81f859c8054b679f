"""What writing shards and raw files have in common: the order of samples, threads, and notes about interrupted runs.

Everything is written under a hidden name and renamed when it is whole. Until all splits are written, a hidden note says
what is whole already, so that an interrupted run resumes after it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from vernier.data.sources.base import EncodedSource, Source
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.randomness import Stream, key, permuted

Progress = Callable[[int, int], None]
Origin = dict[str, str | int]
"""The source and the settings that a file was written with."""
T = TypeVar("T")
_AHEAD = 16


@frozen
class PackedSplit:
    """What was written for one split. `vernier data prepare --json` prints it."""

    split: str
    samples: int = 0
    bytes: int = 0
    source_bytes: int = 0
    shards: int = 0
    files: int = 0
    """TFRecord only."""
    converted: int = 0
    """TFRecord only: images that were no RGB JPEG and were encoded again, at quality 100."""
    restart_indexed: int = 0
    kept_as_they_are: int = 0
    continued_after: int = 0
    """Samples that an interrupted run had written."""
    left_out: tuple[str, ...] = ()
    """Unreadable images, with the reason."""
    notes: tuple[str, ...] = ()


def map_in_order(work: Callable[[int], T], items: Iterable[int], workers: int) -> Iterator[T]:
    """`map` with threads: results in order, a bounded number of them ahead."""
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[T]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(work, item))
                if len(pending) >= _AHEAD * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for job in pending:
                job.cancel()


def read_encoded(source: EncodedSource, index: int) -> bytes:
    """An encoded image, unchanged. Raises RunFailed with its name where it cannot be read."""
    try:
        return source.read(index)
    except OSError as error:
        raise RunFailed(f"Cannot read {source.describe(index)}: {error.strerror}. Repair or remove it.") from None


def pack_order(source: Source, split: str) -> list[int]:
    """Training samples are stored shuffled, so that a shard has all classes; other splits in the order of the
    source."""
    count = len(source)
    if split != "train":
        return list(range(count))
    order: list[int] = permuted(key(Stream.PACK, count), np.arange(count), count).tolist()
    return order


def make_room(out: Path, name: str) -> None:
    """Make the folder. Raises ConfigError where that fails or `name` is there already."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"Cannot create the folder {out}: {error.strerror}.") from None
    if (out / name).exists():
        raise ConfigError(f"{out / name} exists already. Remove it or choose another folder.")


def forget_progress(out: Path) -> None:
    """Remove the notes, and what killed runs left, once all splits are whole: the next run refuses to overwrite
    them."""
    for pattern in (".*.progress", ".*.tmp-*", ".*.writing"):
        for path in out.glob(pattern):
            path.unlink()
