"""Intervals over runs or processes, which are independent of each other, also where they differ by a skewed law.

Most runs of one thing are about equally fast, and some are slower: the mean of a few is then too low, and so is their
spread. Student's interval would cover 88 % for 5 runs that differ exponentially. The intervals here reach further
towards slow and less far towards fast, so that they cover 95 % for such runs and for normal ones. What only few runs do
may not have been seen at all: `runs_to_see` says how many would show it.

Functions of `Floats` take one row per set of runs. Correlated samples of one run are in `estimates`.
"""

import math
import statistics
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from vernier.measure.estimates import LEVEL, Floats, t_quantiles

_REACH = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""How far intervals reach, in Student's half widths, by the number of runs."""


def mean_of_runs(log_s: Floats) -> tuple[Floats, Floats, Floats]:
    """The mean of each row of logarithms of times, and the ends of its 95 % interval; infinite where runs are equal."""
    mean, runs = log_s.mean(1), log_s.shape[1]
    spread = log_s.std(1, ddof=1)
    half = t_quantiles(LEVEL, runs - 1) * np.where(spread > 0, spread, np.inf) / math.sqrt(runs)
    reach_slow, reach_fast = (_between(runs, _REACH["mean"], side) for side in ("slow", "fast"))
    return mean, mean - reach_fast * half, mean + reach_slow * half


def reach_of_one(runs: int) -> float:
    """By which factor the difference of one run to the mean of `runs` others exceeds Student's, if they are skewed."""
    return _between(runs, _REACH["one"], "reach")


def _between(runs: int, table: Mapping[str, list[float]], column: str) -> float:
    """The value at this number of runs; 1 for endless ones."""
    inverse = 1 / np.array(table["runs"][::-1])
    return float(np.interp(1 / runs, [0.0, *inverse], [1.0, *table[column][::-1]]))


def runs_to_see(share: float) -> int:
    """How many runs show a behaviour of this share of runs in 95 % of cases."""
    return math.ceil(math.log(1 - LEVEL) / math.log1p(-share))


def time_to_train(total_s: Iterable[float], aborted: int = 0) -> tuple[float, str] | None:
    """MLPerf's score in seconds of runs that reached the target, and how it was taken; None if MLPerf gives none.

    The olympic mean: the fastest and the slowest run are dropped. A run that was aborted counts as the slowest one; a
    second one makes the result invalid. MLPerf asks for five runs in vision; of one or two it is the plain mean.
    """
    times = sorted(total_s)
    if not times or aborted > 1:
        return None
    if aborted and len(times) > 1:
        return statistics.fmean(
            times[1:]
        ), f"olympic mean of {len(times) + 1} runs: without the fastest and the aborted"
    if len(times) < 3:
        return statistics.fmean(times), "one run" if len(times) == 1 else "mean of 2 runs"
    return statistics.fmean(times[1:-1]), f"olympic mean of {len(times)} runs: without the fastest and the slowest"
