"""Randomness that is a function, not a state: numbers and permutations from (seed, epoch, index) alone.

Nothing here remembers anything, so any process, worker or restart gets the same answer for the same question.
The mixing function is splitmix64's finaliser; the permutation is a Feistel network with cycle walking, which gives
the image at any position of an epoch's order in constant memory.
"""

from enum import IntEnum, unique

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 0xFFFFFFFFFFFFFFFF
_ROUNDS = 6


@unique
class Stream(IntEnum):
    """What a random number is for: the first part of every key, so that no two purposes share numbers.

    The values are part of what a seed means: changing one changes the results of every run that draws from it.
    """

    ORDER = 1
    """Order of the training samples in an epoch."""
    CROP_FLIP = 2
    """Crop window and flip of a training image."""
    STEP = 3
    """Stochastic depth in a step."""
    MIX = 4
    """MixUp and CutMix."""
    PIXELS = 5
    """RandAugment, TrivialAugment and random erasing."""
    SHARD_WINDOW = 6
    """Order of the samples in a window of shards."""
    BOX_CROP = 8
    """Crop and flip of a detector's training image."""
    BOX_COLOUR = 9
    """Colour distortion of a detector's training image."""
    SHARD_ORDER = 10
    """Order of the shards in an epoch."""
    SUBSTITUTE = 11
    """Which image stands in for an unreadable one."""
    PACK = 12
    """Order in which `vernier data prepare` writes samples into shards."""
    EVAL_PART = 20
    """Which images a shortened evaluation takes."""
    SPOT_CHECK = 21
    """Which shards are computed twice, and by whom."""
    OWN_TRANSFORM = 22
    """Transforms of users."""
    OWN_STEP = 23
    """What models and losses of users draw from PyTorch's own generator."""


def _mix(x: U64) -> U64:
    # The constants of splitmix64 (Steele, Lea, Flood 2014): every input bit flips each output bit half the time.
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    out: U64 = x ^ (x >> np.uint64(31))
    return out


def key(*parts: int) -> int:
    """A 64-bit key that differs when any of the parts, or their order, does."""
    state = 0
    for part in parts:
        # The same mixing in Python integers, which do not overflow: hence the masks.
        state = ((state ^ (part & _MASK)) + _GOLDEN) & _MASK
        state ^= state >> 30
        state = state * 0xBF58476D1CE4E5B9 & _MASK
        state ^= state >> 27
        state = state * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


def uniform(at: int, indices: npt.ArrayLike, count: int) -> npt.NDArray[np.float64]:
    """`count` numbers in [0, 1) for each index, as a [len(indices), count] array; `at` is a `key`."""
    # + 1, because zero times the golden ratio is zero: index 0 would get the bare key.
    rows = _mix((np.asarray(indices, dtype=np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN) ^ np.uint64(at))
    columns = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN))[None, :]
    bits = _mix(rows[:, None] + columns)
    # A double has 53 bits: of the 64, the best mixed are kept, so that 1.0 is never reached.
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permuted(at: int, positions: npt.ArrayLike, size: int) -> npt.NDArray[np.int64]:
    """Which item of `size` stands at each position of the shuffled order that the key `at` names."""
    # A Feistel network permutes an even number of bits; the smallest such range is below four times the size.
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << half_bits) - 1)
    shift = np.uint64(half_bits)
    keys = [np.uint64(key(at, r)) for r in range(_ROUNDS)]

    def scramble(x: U64) -> U64:
        left, right = x >> shift, x & mask
        for k in keys:
            left, right = right, left ^ (_mix(right + k) & mask)
        return (left << shift) | right

    out = scramble(np.asarray(positions, dtype=np.uint64))
    outside = out >= size
    # Cycle walking: a position outside the set is permuted again until it is inside, which keeps the order one to one.
    while outside.any():
        out[outside] = scramble(out[outside])
        outside = out >= size
    return out.astype(np.int64)
