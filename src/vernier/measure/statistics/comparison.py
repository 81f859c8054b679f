"""Compares two speeds: is B faster or slower than A? Gives the ratio of their speeds with a 95 % interval.

Each side is one run or several. With several runs the run is the unit: the interval counts how runs of the same thing
differ (Welch's t on the logarithms of the runs' speeds). With rounds, in which both sides were measured one after the
other, it uses the differences within rounds. With one run per side only the noise within it can be measured: there is
an interval, which `basis` labels, and no verdict.

Speeds are samples per second over the whole window (`throughput.Window`), so batches of different sizes can be
compared. The `ratio_rows` functions take many comparisons at once, for the coverage benchmark.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vernier.frozen import frozen
from vernier.records.statistics import Comparison, SpeedVerdict

from .estimates import LEVEL, METHOD, Floats, Intervals, mean_interval, t_quantiles
from .throughput import Window

DEFAULT_TOLERANCE = 0.01
DEFAULT_RUNS, DEFAULT_STEPS = 5, 500


@frozen
class Trace:
    """The steady steps of one run: seconds per step, and samples per step over all devices. `round` pairs runs.

    `steps` is their number where several were timed as one (`throughput.step_samples`); 0: one per value of `step_s`.
    """

    step_s: tuple[float, ...]
    samples_per_step: float = 1.0
    round: int | None = None
    steps: int = 0

    def __post_init__(self) -> None:
        if not self.step_s or not all(math.isfinite(s) and s > 0 for s in self.step_s) or self.samples_per_step <= 0:
            raise ValueError("a run to compare needs steps, and each step needs a duration above 0")

    @property
    def window(self) -> Window:
        return Window(samples=self.samples_per_step * len(self.step_s), wall_s=sum(self.step_s))


class LogRatios(NamedTuple):
    """Natural logarithms of speed B / speed A with 95 % intervals, one per row."""

    value: Floats
    low: Floats
    high: Floats


def ratio_rows_of_runs(a: Floats, b: Floats) -> LogRatios:
    """Ratios from log speeds, one column per run; at least one side has two runs or more (Welch's t).

    A side with a single run borrows the other side's spread between runs.
    """
    value = b.mean(1) - a.mean(1)
    parts = [(x.var(1, ddof=1), x.shape[1]) for x in (a, b) if x.shape[1] > 1]
    if len(parts) == 2:
        (va, ka), (vb, kb) = parts
        squared = va / ka + vb / kb
        below = (va / ka) ** 2 / (ka - 1) + (vb / kb) ** 2 / (kb - 1)
        freedom = squared**2 / np.where(below > 0, below, 1.0)
    else:
        variance, k = parts[0]
        squared, freedom = variance * (1 + 1 / k), np.full(len(value), k - 1.0)
    half = t_quantiles(LEVEL, freedom) * np.sqrt(squared)
    return LogRatios(value, value - half, value + half)


def ratio_rows_of_rounds(a: Floats, b: Floats) -> LogRatios:
    """Ratios from log speeds in matching rounds, one column per round."""
    apart = b - a
    value, rounds = apart.mean(1), apart.shape[1]
    half = t_quantiles(LEVEL, rounds - 1) * apart.std(1, ddof=1) / math.sqrt(rounds)
    return LogRatios(value, value - half, value + half)


def ratio_rows_of_steps(a: Intervals, b: Intervals, samples_ratio: float = 1.0) -> LogRatios:
    """Ratios from the step times of one run per side; joins two intervals that need not be symmetric (MOVER)."""
    value = np.log(a.mean) - np.log(b.mean) + math.log(samples_ratio)
    (a_down, a_up), (b_down, b_up) = (
        # a lower end at or below 0 counts as unbounded
        (np.log(side.mean) - np.log(np.maximum(side.low, 1e-300)), np.log(side.high) - np.log(side.mean))
        for side in (a, b)
    )
    return LogRatios(value, value - np.hypot(a_down, b_up), value + np.hypot(a_up, b_down))


def verdicts(ratios: LogRatios, tolerance: float) -> list[SpeedVerdict]:
    """Faster or slower where the interval excludes 1 and the ratio itself is beyond the tolerance."""
    limit = math.log1p(tolerance)
    slower = (ratios.high < 0) & (ratios.value <= -limit)
    faster = (ratios.low > 0) & (ratios.value >= limit)
    return ["slower" if s else "faster" if f else "cannot tell" for s, f in zip(slower, faster, strict=True)]


# ------------------------------------------------------------------------------------------------------- one comparison


def compare(
    a: Sequence[Trace], b: Sequence[Trace], tolerance: float = DEFAULT_TOLERANCE, *, single_runs: bool = False
) -> Comparison:
    """Compare B with A. Raises ValueError for an empty side or a tolerance outside 0 to 1.

    One run per side can tell nothing, as runs of the same thing differ; `single_runs` judges them all the same, by the
    noise within them.
    """
    if not a or not b:
        raise ValueError("both sides need at least one run")
    if not 0 <= tolerance < 1:
        raise ValueError(f"a tolerance is a share between 0 and 1, not {tolerance}")
    ratios, basis = _log_ratio(a, b)
    low, high = float(ratios.low[0]), float(ratios.high[0])
    judged = len(a) + len(b) > 2 or single_runs
    bounded, limit = math.isfinite(low) and math.isfinite(high), math.log1p(tolerance)
    return Comparison(
        ratio=math.exp(float(ratios.value[0])),
        low=math.exp(low) if bounded else None,
        high=math.exp(high) if bounded else None,
        verdict=verdicts(ratios, tolerance)[0] if judged else "cannot tell",
        tolerance=tolerance,
        within_tolerance=judged and bounded and -limit < low and high < limit,
        a_samples_per_s=Window.total(t.window for t in a).samples_per_s,
        b_samples_per_s=Window.total(t.window for t in b).samples_per_s,
        runs=(len(a), len(b)),
        steps=(sum(t.steps or len(t.step_s) for t in a), sum(t.steps or len(t.step_s) for t in b)),
        basis=basis,
        method=METHOD,
    )


def _log_ratio(a: Sequence[Trace], b: Sequence[Trace]) -> tuple[LogRatios, str]:
    rounds = {t.round for t in a} & {t.round for t in b} - {None}
    matching = len(rounds) >= 3 and len(rounds) == len(a) == len(b)
    sides = [sorted(side, key=lambda t: t.round or 0) if matching else side for side in (a, b)]
    log_speeds = [np.log(np.array([[t.window.samples_per_s for t in side]])) for side in sides]
    if matching:
        return ratio_rows_of_rounds(*log_speeds), f"differences within {len(rounds)} rounds"
    if len(a) + len(b) > 2:
        basis = f"{len(a)} and {len(b)} runs, differences between runs counted"
        if min(len(a), len(b)) == 1:
            basis += "; the side with one run is taken to vary as the other"
        return ratio_rows_of_runs(*log_speeds), basis
    one_a, one_b = a[0], b[0]
    if min(len(one_a.step_s), len(one_b.step_s)) < 2:
        value = np.log(np.array([one_b.window.samples_per_s / one_a.window.samples_per_s]))
        return LogRatios(value, value - math.inf, value + math.inf), "too few steps for an interval"
    interval_a, interval_b = (mean_interval(np.array(t.step_s)) for t in (one_a, one_b))
    basis = "one run each: the noise within the runs only, not how runs of the same thing differ"
    return ratio_rows_of_steps(interval_a, interval_b, one_b.samples_per_step / one_a.samples_per_step), basis
