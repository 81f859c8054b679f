"""Whether B is faster or slower than A, with an interval of the ratio of their speeds.

A side is one run or several. With several runs the run is the unit: what differs from run to run of the same thing counts,
and Welch's t on the logarithms of the runs' mean times gives the interval. With rounds in which both sides were measured
one after the other, the differences within rounds are used instead. With one run a side only the noise within it is known, and
the result says so.

Speeds are samples a second over the whole window, so batches of different sizes can be compared. `rows` functions take many
comparisons at once: the coverage benchmark runs the same code.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vernier.measure.statistics.estimates import (
    FEWEST_CORRELATED,
    LEVEL,
    METHOD,
    Floats,
    Intervals,
    mean_estimate,
    mean_intervals,
    t_quantiles,
)

DEFAULT_TOLERANCE = 0.01
DEFAULT_RUNS, DEFAULT_STEPS = 5, 500

Verdict = Literal["faster", "slower", "cannot tell"]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The steady steps of one run: seconds of each, and samples each brought through (all devices). `round` pairs runs."""

    step_s: tuple[float, ...]
    samples_per_step: float = 1.0
    round: int | None = None

    def __post_init__(self) -> None:
        if not self.step_s or not all(math.isfinite(s) and s > 0 for s in self.step_s) or self.samples_per_step <= 0:
            raise ValueError("a run to compare needs steps, each of which took time")

    @property
    def samples_per_s(self) -> float:
        return self.samples_per_step * len(self.step_s) / sum(self.step_s)


@dataclass(frozen=True)
class LogRatios:
    """Natural logarithms of speed B / speed A, with 95 % intervals, one a row."""

    value: Floats
    low: Floats
    high: Floats


def ratio_rows_of_runs(a: Floats, b: Floats) -> LogRatios:
    """From log speeds, one column a run, two runs or more on at least one side (Welch).

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
    """From log speeds in matching rounds, one column a round."""
    apart = b - a
    value, rounds = apart.mean(1), apart.shape[1]
    half = t_quantiles(LEVEL, rounds - 1) * apart.std(1, ddof=1) / math.sqrt(rounds)
    return LogRatios(value, value - half, value + half)


def ratio_rows_of_steps(a: Intervals, b: Intervals, samples_ratio: float = 1.0) -> LogRatios:
    """From the step times of one run a side; the two intervals, which need not be symmetric, are joined (MOVER)."""
    value = np.log(a.mean) - np.log(b.mean)
    a_down, a_up = np.log(a.mean) - _log(a.low), np.log(a.high) - np.log(a.mean)
    b_down, b_up = np.log(b.mean) - _log(b.low), np.log(b.high) - np.log(b.mean)
    shift = math.log(samples_ratio)
    return LogRatios(value + shift, value + shift - np.hypot(a_down, b_up), value + shift + np.hypot(a_up, b_down))


def _log(values: Floats) -> Floats:
    """Logarithms of lower ends; an end at or below nothing is as good as unbounded."""
    found: Floats = np.log(np.maximum(values, 1e-300))
    return found


def verdicts(found: LogRatios, tolerance: float) -> list[Verdict]:
    """Faster or slower: the interval excludes equality, and the ratio itself is beyond the tolerance."""
    limit = math.log1p(tolerance)
    slower = (found.high < 0) & (found.value <= -limit)
    faster = (found.low > 0) & (found.value >= limit)
    return ["slower" if s else "faster" if f else "cannot tell" for s, f in zip(slower, faster, strict=True)]


# ------------------------------------------------------------------------------------------------------ one comparison


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Speed of B over speed of A. `within_tolerance`: any difference is surely smaller than the tolerance."""

    ratio: float
    low: float | None
    high: float | None
    verdict: Verdict
    tolerance: float
    within_tolerance: bool
    a_samples_per_s: float
    b_samples_per_s: float
    runs: tuple[int, int]
    steps: tuple[int, int]
    basis: str
    method: str = METHOD

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def compare(a: Sequence[Trace], b: Sequence[Trace], tolerance: float = DEFAULT_TOLERANCE) -> Comparison:
    """B against A."""
    if not a or not b:
        raise ValueError("both sides need at least one run")
    if not 0 <= tolerance < 1:
        raise ValueError(f"a tolerance is a share between 0 and 1, not {tolerance}")
    found, basis = _log_ratio(a, b)
    low, high = float(found.low[0]), float(found.high[0])
    known, limit = math.isfinite(low) and math.isfinite(high), math.log1p(tolerance)
    return Comparison(
        ratio=math.exp(float(found.value[0])), low=math.exp(low) if known else None, high=math.exp(high) if known else None,
        verdict=verdicts(found, tolerance)[0], tolerance=tolerance, within_tolerance=known and -limit < low and high < limit,
        a_samples_per_s=_speed(a), b_samples_per_s=_speed(b), runs=(len(a), len(b)),
        steps=(sum(len(t.step_s) for t in a), sum(len(t.step_s) for t in b)), basis=basis,
    )  # fmt: skip


def _speed(side: Sequence[Trace]) -> float:
    """All samples of a side over all its time."""
    samples = sum(t.samples_per_step * len(t.step_s) for t in side)
    return samples / sum(sum(t.step_s) for t in side)


def _log_speeds(side: Sequence[Trace]) -> Floats:
    speeds: Floats = np.log(np.array([[t.samples_per_s for t in side]]))
    return speeds


def _log_ratio(a: Sequence[Trace], b: Sequence[Trace]) -> tuple[LogRatios, str]:
    rounds = sorted({t.round for t in a} & {t.round for t in b} - {None}, key=lambda r: r or 0)
    if len(rounds) >= 3 and len(rounds) == len(a) == len(b):
        sides = [sorted(side, key=lambda t: t.round or 0) for side in (a, b)]
        return ratio_rows_of_rounds(*(_log_speeds(s) for s in sides)), f"differences within {len(rounds)} rounds"
    if len(a) + len(b) > 2:
        basis = f"{len(a)} and {len(b)} runs, differences between runs counted"
        if min(len(a), len(b)) == 1:
            basis += "; the side with one run is taken to vary as the other"
        return ratio_rows_of_runs(_log_speeds(a), _log_speeds(b)), basis
    return _one_run_each(a[0], b[0])


def _one_run_each(a: Trace, b: Trace) -> tuple[LogRatios, str]:
    basis = "one run each: noise within the runs only; repeat to learn what differs from run to run"
    if min(len(a.step_s), len(b.step_s)) < 2:
        value = np.log(np.array([b.samples_per_s / a.samples_per_s]))
        return LogRatios(value, value - math.inf, value + math.inf), "too few steps for an interval"
    return ratio_rows_of_steps(_interval(a), _interval(b), b.samples_per_step / a.samples_per_step), basis


def _interval(trace: Trace) -> Intervals:
    row = np.array([trace.step_s])
    if row.size >= FEWEST_CORRELATED:
        return mean_intervals(row)
    few = mean_estimate(row[0])
    columns = (few.value, few.low, few.high, few.error, few.freedom, 1.0)
    return Intervals(*(np.array([v], np.float64) for v in columns))
