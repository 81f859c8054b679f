"""Which samples make up which step: pure functions of (seed, epoch, position), the same for any number of processes."""

from functools import lru_cache
from typing import Any

import numpy as np

from vernier.data.sources.base import Indices
from vernier.frozen import frozen
from vernier.randomness import Stream, key, permuted


@frozen
class TrainOrder:
    """Every epoch is a fresh permutation; the tail that does not fill a global batch is left out of that epoch.

    A step beyond that (`data.last_batch` = fill) has the tail and, after it, the first samples of the epoch once more:
    copies with the index sample + samples, which are augmented in their own way.

    With `repeats`, an epoch of the same length goes through the first part of the permutation only, each sample that
    often; copy c of a sample has the index sample + c * samples. Copies are spread over a batch, hence over processes.
    """

    samples: int
    seed: int
    global_batch: int
    accumulation: int = 1
    repeats: int = 1
    rank: int = 0
    world: int = 1
    neighbouring: bool = False
    """The micro-steps of a process are neighbouring parts of the batch; otherwise those of all processes are."""

    @property
    def steps_per_epoch(self) -> int:
        return self.samples // self.global_batch

    def indices(self, epoch: int, step_in_epoch: int, micro: int) -> Indices:
        """The samples of this process in one micro-step."""
        per_micro = self.global_batch // self.accumulation
        per_process = per_micro // self.world
        part = self.rank * self.accumulation + micro if self.neighbouring else micro * self.world + self.rank
        start, within = step_in_epoch * self.global_batch, part * per_process
        if self.repeats == 1:
            # Positions beyond the set are copies of its first samples (`data.last_batch` = fill).
            again, positions = np.divmod(np.arange(start + within, start + within + per_process), self.samples)
            ordered: Indices = self.at(epoch, positions) + again * self.samples
            return ordered
        slots, copies = np.divmod(np.arange(start, start + self.global_batch), self.repeats)
        # Sorted by copy: the copies of a sample are far apart in the batch, hence on different processes.
        own = np.argsort(copies, kind="stable")[within : within + per_process]
        indices: Indices = self.at(epoch, slots[own]) + copies[own] * self.samples
        return indices

    def at(self, epoch: int, positions: Indices) -> Indices:
        """The samples at some positions of an epoch."""
        return permuted(key(Stream.ORDER, self.seed, epoch), positions, self.samples)


@frozen
class ShardedTrainOrder(TrainOrder):
    """For storage where random access is slow: shards are shuffled, then the samples of `window` shards at a time.

    `starts` has the first sample of each shard and, last, the number of samples. The order of one epoch's shards is
    kept in memory, which therefore grows with the shards and not with the samples.
    """

    starts: tuple[int, ...]
    window: int

    def at(self, epoch: int, positions: Indices) -> Indices:
        shards, ends = _shard_order(self.starts, self.seed, epoch)
        window_ends = ends[self.window - 1 :: self.window]
        # The last window has fewer shards unless the window divides their number.
        if not len(window_ends) or window_ends[-1] != ends[-1]:
            window_ends = np.append(window_ends, ends[-1])
        windows = np.searchsorted(window_ends, positions, side="right")
        out = np.empty(len(positions), dtype=np.int64)
        for w in np.unique(windows):
            begin = int(window_ends[w - 1]) if w else 0
            inside = windows == w
            # A stream per window, so that a position is found without drawing those of the windows before it.
            stream = key(Stream.SHARD_WINDOW, self.seed, epoch, int(w))
            shuffled = begin + permuted(stream, positions[inside] - begin, int(window_ends[w]) - begin)
            order = np.searchsorted(ends, shuffled, side="right")
            first = np.where(order > 0, ends[order - 1], 0)
            out[inside] = np.asarray(self.starts)[shards[order]] + shuffled - first
        return out


# A few epochs: prefetching asks for the next one while this one is trained.
@lru_cache(maxsize=4)
def _shard_order(starts: tuple[int, ...], seed: int, epoch: int) -> tuple[Any, Any]:
    """The shards in this epoch's order, and the number of samples up to the end of each."""
    count = len(starts) - 1
    shards = permuted(key(Stream.SHARD_ORDER, seed, epoch), np.arange(count), count)
    return shards, np.cumsum(np.diff(np.asarray(starts))[shards])


def fair_sample(kinds: Indices, count: int) -> Indices:
    """At most `count` samples, in storage order: of every kind a random part, in proportion to its size.

    A function of the kinds alone, so that runs with other seeds or processes are evaluated on the same images.
    """
    shuffled = permuted(key(Stream.EVAL_PART), np.arange(len(kinds)), len(kinds))
    shuffled = shuffled[np.argsort(kinds[shuffled], kind="stable")]  # kind by kind, random within each
    _, starts, sizes = np.unique(kinds[shuffled], return_index=True, return_counts=True)
    within = np.arange(len(kinds)) - np.repeat(starts, sizes)
    # The middle of an image's share of its kind: if not every kind can have an image, larger kinds come first.
    share = (within + 0.5) / np.repeat(sizes, sizes)
    chance = permuted(key(Stream.EVAL_PART, 1), np.arange(len(kinds)), len(kinds))
    return np.sort(shuffled[np.lexsort((chance, share))[:count]])


@frozen
class EvalOrder:
    """Every sample once, in storage order. Processes share out whole batches, so no batch depends on their number."""

    samples: Indices
    batch: int
    rank: int = 0
    world: int = 1

    @property
    def batches(self) -> int:
        return -(-len(self.samples) // self.batch)

    def own_batches(self) -> list[Indices]:
        """The batches of this process."""
        return [self.samples[b * self.batch :][: self.batch] for b in range(self.rank, self.batches, self.world)]
