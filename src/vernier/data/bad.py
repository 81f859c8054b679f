"""Images that cannot be read: how many are tolerated, which ones they were, and what stands in for them.

Training takes another sample instead, chosen by the bad one's index alone, so that any number of workers, processes or
restarts agrees. Evaluation keeps the sample with a black image: the set stays as large as it is, and a miss is a miss.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vernier.data.chance import key, permuted
from vernier.errors import ConfigError, RunFailed

DEFAULT_LIMIT = "0.1%"
_STREAM_SUBSTITUTE = 3
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
    """The bad images of one source, reported by any worker."""

    def __init__(self, limit: int, samples: int) -> None:
        self.limit, self._samples = limit, samples
        self._found: dict[int, BadSample] = {}
        self._told = 0
        self._lock = threading.Lock()

    def report(self, index: int, path: str, reason: str) -> None:
        """Count an image once, however often it is met. Raises RunFailed beyond the limit."""
        with self._lock:
            self._found.setdefault(index, BadSample(index, path, reason))
            count = len(self._found)
        if count > self.limit:
            raise RunFailed(
                f"Cannot read the image {path}: {reason}. That makes {count} bad image(s) of {self._samples:,}; the limit is "
                f"{self.limit}. Repair the data (vernier data verify lists what is wrong) or raise --max-bad-images."
            )

    def found(self) -> list[BadSample]:
        """Every bad image so far, by index."""
        with self._lock:
            return sorted(self._found.values(), key=lambda b: b.index)

    def untold(self) -> list[BadSample]:
        """Those found since this was last asked."""
        with self._lock:
            new = list(self._found.values())[self._told :]
            self._told = len(self._found)
        return new


def substitutes(index: int, samples: int) -> Iterator[int]:
    """Samples to take instead of a bad one, in the order in which to try them."""
    order = permuted(key(_STREAM_SUBSTITUTE, index), np.arange(min(_SUBSTITUTES, samples)), samples)
    return (int(i) for i in order if i != index)
