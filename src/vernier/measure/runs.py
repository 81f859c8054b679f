"""Intervals over runs or processes, which are independent of each other, also where they differ by a skewed law.

Most runs of one thing are about equally fast, and some are slower: the mean of a few is then too low, and so is their
spread. Student's interval would cover 88 % for 5 runs that differ exponentially. The intervals here reach further
towards slow and less far towards fast, so that they cover 95 % for such runs and for normal ones. What only few runs do
may not have been seen at all: `runs_to_see` says how many would show it.

Functions of `Floats` take one row per set of runs. Correlated samples of one run are in `estimates`.
"""

import math
import statistics
from collections.abc import Iterable

import numpy as np

from .estimates import LEVEL, Floats, t_quantiles

_REACH = (
    (2, 2.083, 0.769),
    (3, 1.996, 0.796),
    (4, 1.845, 0.823),
    (5, 1.728, 0.839),
    (6, 1.639, 0.850),
    (7, 1.573, 0.858),
    (8, 1.524, 0.864),
    (10, 1.449, 0.874),
    (12, 1.390, 0.882),
    (15, 1.332, 0.892),
    (20, 1.268, 0.906),
    (30, 1.176, 0.933),
    (60, 1.066, 0.992),
)
"""Number of runs; how far the interval reaches towards slow and towards fast, in Student's half widths.

Chosen so that normal runs are covered in 95.55 % and exponential ones in 94.6 % (1.5 million sets each)."""
_ONE_AGAINST = (
    (2, 1.424),
    (3, 1.451),
    (4, 1.387),
    (5, 1.354),
    (6, 1.319),
    (8, 1.257),
    (10, 1.220),
    (15, 1.160),
    (20, 1.140),
    (40, 1.082),
)
"""Number of runs; how many of Student's half widths the next run stays within in 95 %, if runs differ exponentially."""


def mean_of_runs(log_s: Floats) -> tuple[Floats, Floats, Floats]:
    """The mean of each row of logarithms of times, and the ends of its 95 % interval; infinite where runs are equal."""
    mean, runs = log_s.mean(1), log_s.shape[1]
    spread = log_s.std(1, ddof=1)
    half = t_quantiles(LEVEL, runs - 1) * np.where(spread > 0, spread, np.inf) / math.sqrt(runs)
    counts, slow, fast = (np.array(column) for column in zip(*_REACH, strict=True))
    reach_slow, reach_fast = (_between(runs, counts, reach) for reach in (slow, fast))
    return mean, mean - reach_fast * half, mean + reach_slow * half


def reach_of_one(runs: int) -> float:
    """By which factor the difference of one run to the mean of `runs` others exceeds Student's, if they are skewed."""
    counts, reach = (np.array(column) for column in zip(*_ONE_AGAINST, strict=True))
    return _between(runs, counts, reach)


def _between(runs: int, counts: Floats, values: Floats) -> float:
    """The value at this number of runs; 1 for endless ones."""
    return float(np.interp(1 / runs, [0.0, *(1 / counts[::-1])], [1.0, *values[::-1]]))


def runs_to_see(share: float) -> int:
    """How many runs show a behaviour of this share of runs in 95 % of cases."""
    return math.ceil(math.log(1 - LEVEL) / math.log1p(-share))


def time_to_train(total_s: Iterable[float]) -> tuple[float, str] | None:
    """MLPerf's score in seconds of runs that reached the target, and how it was taken; None without any run.

    The olympic mean: the fastest and the slowest run are dropped. MLPerf asks for five runs in vision; of one or two
    it is the plain mean.
    """
    times = sorted(total_s)
    if not times:
        return None
    if len(times) < 3:
        return statistics.fmean(times), "one run" if len(times) == 1 else "mean of 2 runs"
    return statistics.fmean(times[1:-1]), f"olympic mean of {len(times)} runs: without the fastest and the slowest"
