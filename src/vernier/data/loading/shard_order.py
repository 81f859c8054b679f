"""The order for storage that is slow to jump about in: shards are shuffled, then the samples of a few shards at a time.

Still a pure function of (seed, epoch, position), the same for any number of processes. It remembers one epoch's order of
shards, so its memory grows with the shards and not with the samples.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from vernier.data.loading.order import TrainOrder
from vernier.randomness import Stream, key, permuted

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ShardedTrainOrder(TrainOrder):
    """`starts` has the first sample of each shard and, last, the number of samples; `window` shards are mixed at a time."""

    starts: tuple[int, ...]
    window: int

    def at(self, epoch: int, positions: Indices) -> Indices:
        shards, ends = _shard_order(self.starts, self.seed, epoch)
        window_ends = ends[self.window - 1 :: self.window]
        if not len(window_ends) or window_ends[-1] != ends[-1]:
            window_ends = np.append(window_ends, ends[-1])
        which = np.searchsorted(window_ends, positions, side="right")
        out = np.empty(len(positions), dtype=np.int64)
        for w in np.unique(which):
            begin = int(window_ends[w - 1]) if w else 0
            here = which == w
            at = key(Stream.SHARD_WINDOW, self.seed, epoch, int(w))
            place = begin + permuted(at, positions[here] - begin, int(window_ends[w]) - begin)
            order = np.searchsorted(ends, place, side="right")
            first = np.where(order > 0, ends[order - 1], 0)
            out[here] = np.asarray(self.starts)[shards[order]] + place - first
        return out


@lru_cache(maxsize=4)
def _shard_order(starts: tuple[int, ...], seed: int, epoch: int) -> tuple[Any, Any]:
    """The shards in this epoch's order, and how many samples lie up to the end of each."""
    count = len(starts) - 1
    shards = permuted(key(Stream.SHARD_ORDER, seed, epoch), np.arange(count), count)
    return shards, np.cumsum(np.diff(np.asarray(starts))[shards])
