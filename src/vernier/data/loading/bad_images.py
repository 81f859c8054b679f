"""Images that cannot be read: how many are tolerated, which ones they were, and which samples replace them.

Training takes another sample instead, chosen by the bad one's index alone, so that any number of workers, processes or
restarts agrees. Evaluation keeps the sample with a black image: the set keeps its size, and a miss is a miss.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np

from vernier.data.decoding.decode import BadImage
from vernier.data.sources.base import Source
from vernier.errors import ConfigError, RunFailed
from vernier.randomness import Stream, key, permuted
from vernier.references import command, use
from vernier.wording import plural

T = TypeVar("T")
# If as many in a row cannot be read, the disk is the problem and not an image.
_SUBSTITUTES = 64


@dataclass(frozen=True)
class _BadSample:
    """One image that could not be read."""

    index: int
    path: str
    reason: str


def parse_limit(text: str, samples: int) -> int:
    """How many bad images are tolerated: a number, `1%` of the samples, rounded down, or the larger of both: `1%,3`."""
    try:
        return max(_limit(part.strip(), samples) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"data.max_bad_images = {text!r}: give a number of images such as 20, a share such as 0.1%, or both (1%,3) "
            "for the larger one."
        ) from None


def _limit(part: str, samples: int) -> int:
    percent = part.endswith("%")
    number = float(part[:-1]) if percent else int(part)
    if not 0 <= number <= (100 if percent else number):  # refuses NaN, too
        raise ValueError(part)
    return int(number * samples / 100) if percent else int(number)


class BadImages:
    """The bad images of one source, reported by any worker. With several processes, each has only its own until
    `add_from_peer` brings the others'."""

    def __init__(self, source: Source, limit: str) -> None:
        self._source, self.limit = source, parse_limit(limit, len(source))
        self._by_index: dict[int, _BadSample] = {}
        self._new: list[_BadSample] = []
        self._lock = threading.Lock()

    def read_or_substitute(self, sample: int, read: Callable[[int], T]) -> tuple[int, T]:
        """The result of `read(sample)`, or of the first substitute that can be read, after the sample it is of.

        Raises RunFailed beyond the limit, or where no substitute can be read.
        """
        for candidate in chain([sample], _substitutes(sample, len(self._source))):
            try:
                return candidate, read(candidate)
            except (BadImage, OSError) as error:
                self.report(candidate, error)
        raise RunFailed(
            f"{self._source.describe(sample)} cannot be read, nor can {_SUBSTITUTES} other images tried in its place."
        )

    def report(self, sample: int, error: Exception) -> None:
        """Count an image once, however often it fails. Raises RunFailed beyond the limit."""
        self._count(_BadSample(sample, self._source.describe(sample), str(error)), self._new)

    def add_from_peer(self, bad: _BadSample) -> None:
        """Count an image that another process could not read. Raises RunFailed beyond the limit."""
        self._count(bad, [])

    def _count(self, bad: _BadSample, new: list[_BadSample]) -> None:
        # By index: an image that fails in every epoch counts once.
        with self._lock:
            if bad.index not in self._by_index:
                self._by_index[bad.index] = bad
                new.append(bad)
            count = len(self._by_index)
        if count > self.limit:
            raise RunFailed(
                f"Cannot read the image {bad.path}: {bad.reason}. That makes {plural(count, 'bad image')} of "
                f"{len(self._source):,}; the limit is {self.limit}. Repair the data ({command('data verify', 'PATH')} "
                f"lists what is wrong) or raise {use('data.max_bad_images')}."
            )

    def samples(self) -> list[_BadSample]:
        """Every bad image so far, by index."""
        with self._lock:
            return sorted(self._by_index.values(), key=lambda b: b.index)

    def pop_new(self) -> list[_BadSample]:
        """Those that this process reported since the last call."""
        with self._lock:
            new = list(self._new)
            self._new.clear()
        return new


def _substitutes(index: int, samples: int) -> Iterator[int]:
    """Samples to take instead of a bad one, in the order in which to try them."""
    order = permuted(key(Stream.SUBSTITUTE, index), np.arange(min(_SUBSTITUTES, samples)), samples)
    yield from (int(i) for i in order if i != index)
