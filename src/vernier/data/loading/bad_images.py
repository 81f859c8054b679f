"""Images that cannot be read: how many are tolerated, which ones they were, and what stands in for them.

Training takes another sample instead, chosen by the bad one's index alone, so that any number of workers, processes or
restarts agrees. Evaluation keeps the sample with a black image: the set stays as large as it is, and a miss is a miss.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vernier.errors import ConfigError, RunFailed
from vernier.randomness import Stream, key, permuted

DEFAULT_LIMIT = "0.1%"
_SUBSTITUTES = 64


@dataclass(frozen=True)
class BadSample:
    """One image that could not be read."""

    index: int
    path: str
    reason: str


def parse_limit(text: str, samples: int) -> int:
    """How many bad images are tolerated: `0.1%` of the samples, rounded down, or a plain number of them."""
    try:
        if text.strip().endswith("%"):
            share = float(text.strip()[:-1])
            if 0 <= share <= 100:
                return int(share * samples / 100)
        elif int(text) >= 0:
            return int(text)
    except ValueError:
        pass
    raise ConfigError(f"data.max_bad_images = {text!r}: give a number of images such as 20, or a share such as 0.1%.")


class BadImages:
    """The bad images of one source, reported by any worker; with several processes, each knows its own until it hears
    of the others'."""

    def __init__(self, limit: int, samples: int) -> None:
        self.limit, self._samples = limit, samples
        self._found: dict[int, BadSample] = {}
        self._untold: list[BadSample] = []
        self._lock = threading.Lock()

    def report(self, index: int, path: str, reason: str) -> None:
        """Count an image once, however often it is met. Raises RunFailed beyond the limit."""
        self._count(BadSample(index, path, reason), self._untold)

    def hear(self, bad: BadSample) -> None:
        """Count an image that another process has met. Raises RunFailed beyond the limit."""
        self._count(bad, [])

    def _count(self, bad: BadSample, also: list[BadSample]) -> None:
        with self._lock:
            if bad.index not in self._found:
                self._found[bad.index] = bad
                also.append(bad)
            count = len(self._found)
        if count > self.limit:
            raise RunFailed(
                f"Cannot read the image {bad.path}: {bad.reason}. That makes {count} bad image(s) of {self._samples:,}; the "
                f"limit is {self.limit}. Repair the data (vernier data verify lists what is wrong) or raise --max-bad-images."
            )

    def found(self) -> list[BadSample]:
        """Every bad image so far, by index."""
        with self._lock:
            return sorted(self._found.values(), key=lambda b: b.index)

    def untold(self) -> list[BadSample]:
        """Those that were reported here since this was last asked."""
        with self._lock:
            new = list(self._untold)
            self._untold.clear()
        return new


def substitutes(index: int, samples: int) -> Iterator[int]:
    """Samples to take instead of a bad one, in the order in which to try them."""
    order = permuted(key(Stream.SUBSTITUTE, index), np.arange(min(_SUBSTITUTES, samples)), samples)
    return (int(i) for i in order if i != index)
