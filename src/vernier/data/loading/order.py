"""Which samples make up which step: pure functions of (seed, epoch, position), the same for any number of processes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vernier.randomness import Stream, key, permuted


@dataclass(frozen=True, kw_only=True)
class TrainOrder:
    """Every epoch is a fresh permutation; the tail that does not fill a global batch is left out of that epoch.

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

    @property
    def steps_per_epoch(self) -> int:
        return self.samples // self.global_batch

    def indices(self, epoch: int, step_in_epoch: int, micro: int) -> npt.NDArray[np.int64]:
        """The samples of this process in one micro-step."""
        per_micro = self.global_batch // self.accumulation
        per_process = per_micro // self.world
        start, within = step_in_epoch * self.global_batch, micro * per_micro + self.rank * per_process
        if self.repeats == 1:
            return self.at(epoch, np.arange(start + within, start + within + per_process))
        slots, copies = np.divmod(np.arange(start, start + self.global_batch), self.repeats)
        mine = np.argsort(copies, kind="stable")[within : within + per_process]
        indices: npt.NDArray[np.int64] = self.at(epoch, slots[mine]) + copies[mine] * self.samples
        return indices

    def at(self, epoch: int, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The samples at some positions of an epoch."""
        return permuted(key(Stream.ORDER, self.seed, epoch), positions, self.samples)


@dataclass(frozen=True, kw_only=True)
class EvalOrder:
    """Every sample once, in storage order; whole batches are dealt to processes, so a batch never depends on how many there are."""

    samples: int
    batch: int
    rank: int = 0
    world: int = 1
    max_batches: int | None = None

    @property
    def batches(self) -> int:
        every = -(-self.samples // self.batch)
        return every if self.max_batches is None else min(every, self.max_batches)

    def mine(self) -> list[npt.NDArray[np.int64]]:
        """The batches of this process."""
        return [
            np.arange(b * self.batch, min((b + 1) * self.batch, self.samples))
            for b in range(self.rank, self.batches, self.world)
        ]
