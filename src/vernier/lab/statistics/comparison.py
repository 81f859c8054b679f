"""Compares two speeds: is B faster or slower than A? Gives the ratio of their speeds with a 95 % interval.

Each side is one run or several. With several runs the run is the unit: the interval counts how runs of the same thing
differ (the wider of Welch's and Student's on the logarithms of the runs' speeds: Welch's alone calls a difference too
often where one side has far fewer runs, Student's where it varies more). With rounds, in which both sides were
measured one after the other, it uses the differences within rounds. With one run per side only the noise within it can
be measured: there is an interval, which `basis` labels, and no verdict. Runs that are equal to the last digit do not
show how runs differ: there is no interval.

Speeds are samples per second over the whole window (`throughput.Window`), so batches of different sizes can be
compared. The `ratio_rows` functions take many comparisons at once, for the coverage benchmark.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from vernier.frozen import frozen
from vernier.measure.estimates import LEVEL, METHOD, Floats, Intervals, fewest_samples, mean_interval, t_quantiles
from vernier.measure.throughput import Window
from vernier.records.statistics import Comparison, SpeedVerdict

from .runs import reach_of_one

DEFAULT_TOLERANCE = 0.01  # a difference below it gets no verdict, however certain it is
DEFAULT_RUNS, DEFAULT_STEPS = 5, 500
DETECTED = 0.8
"""In this share of cases a difference of `Comparison.detectable` is found."""
_FEWEST_ROUNDS = 3  # two differences have one degree of freedom, for which Student's t is 12.7
_EQUAL = 1e-12
"""Logarithms of speeds that differ by less are equal but for the rounding of their sum."""


@frozen
class Trace:
    """The steady steps of one run: seconds per step, and samples per step over all devices.

    Runs of both sides with the same `round` were measured one after the other; other rounds have other names.
    `steps` is their number where several were timed as one (`throughput.step_samples`); 0: one per value of `step_s`.
    """

    step_s: tuple[float, ...]
    samples_per_step: float = 1.0
    round: str | None = None
    steps: int = 0

    def __post_init__(self) -> None:
        if not self.step_s or not all(math.isfinite(s) and s > 0 for s in self.step_s) or self.samples_per_step <= 0:
            raise ValueError("a run to compare needs steps, and each step needs a duration above 0")

    @property
    def fewest(self) -> int:
        """How many samples of `step_s` an interval needs at least."""
        return fewest_samples((self.steps or len(self.step_s)) / len(self.step_s))

    @property
    def window(self) -> Window:
        return Window(samples=self.samples_per_step * len(self.step_s), wall_s=sum(self.step_s))


class LogRatios(NamedTuple):
    """Natural logarithms of speed B / speed A with 95 % intervals, one per row; infinite ends where there is none.

    `error` and `freedom` are the standard error and its degrees of freedom.
    """

    value: Floats
    low: Floats
    high: Floats
    error: Floats
    freedom: Floats

    @classmethod
    def around(
        cls, value: Floats, error: Floats, freedom: Floats, factor: float = 1.0, level: float = LEVEL
    ) -> "LogRatios":
        """Student's intervals, `factor` times as wide; without an error there is none: it was not seen."""
        error = np.where(error > _EQUAL, error, np.inf)
        half = factor * t_quantiles(level, freedom) * error
        return cls(value, value - half, value + half, error, freedom)


def ratio_rows_of_runs(a: Floats, b: Floats) -> LogRatios:
    """Ratios from log speeds, one column per run; at least one side has two runs or more.

    A side with a single run borrows the other side's spread between runs, and so does one whose runs are all equal.
    """
    value, (runs_a, runs_b) = b.mean(1) - a.mean(1), (a.shape[1], b.shape[1])
    if min(runs_a, runs_b) == 1:
        several = a if runs_a > 1 else b
        runs = several.shape[1]
        # A prediction interval for one more run. `reach_of_one` widens it: that run may be a slow one of a skewed law.
        error, freedom = several.std(1, ddof=1) * math.sqrt(1 + 1 / runs), np.full(len(value), runs - 1.0)
        return LogRatios.around(value, error, freedom, reach_of_one(runs))
    (va, vb), (more_a, more_b) = (x.var(1, ddof=1) for x in (a, b)), (runs_a - 1, runs_b - 1)
    va, vb = np.where(va > 0, va, vb), np.where(vb > 0, vb, va)
    welch, share_a, share_b = va / runs_a + vb / runs_b, va / runs_a, vb / runs_b
    # Welch and Satterthwaite's degrees of freedom, not a whole number.
    below = share_a**2 / more_a + share_b**2 / more_b
    welch_freedom = welch**2 / np.where(below > 0, below, 1.0)
    student = (more_a * va + more_b * vb) / (more_a + more_b) * (1 / runs_a + 1 / runs_b)
    freedom = np.full(len(value), float(more_a + more_b))
    wider = t_quantiles(LEVEL, welch_freedom) * np.sqrt(welch) > t_quantiles(LEVEL, freedom) * np.sqrt(student)
    ratios = LogRatios.around(value, np.sqrt(np.where(wider, welch, student)), np.where(wider, welch_freedom, freedom))
    # How well the error is known, for `detectable`: as Welch's of equal spreads, since few runs decide which is wider.
    known = (1 / runs_a + 1 / runs_b) ** 2 / (1 / runs_a**2 / more_a + 1 / runs_b**2 / more_b)
    return ratios._replace(freedom=np.minimum(ratios.freedom, known))


def ratio_rows_of_rounds(a: Floats, b: Floats, level: float = LEVEL) -> LogRatios:
    """Ratios from log speeds in matching rounds, one column per round."""
    apart = b - a
    value, rounds = apart.mean(1), apart.shape[1]
    error, freedom = apart.std(1, ddof=1) / math.sqrt(rounds), np.full(len(value), rounds - 1.0)
    return LogRatios.around(value, error, freedom, level=level)


def ratio_rows_of_steps(a: Intervals, b: Intervals, samples_ratio: float = 1.0) -> LogRatios:
    """Ratios from the step times of one run per side; joins two intervals that need not be symmetric (MOVER)."""
    # Times, not speeds: A is on top, and the long end of B is the low end of the ratio.
    value = np.log(a.mean) - np.log(b.mean) + math.log(samples_ratio)
    (a_down, a_up), (b_down, b_up) = (
        # a lower end at or below 0 counts as unbounded
        (np.log(side.mean) - np.log(np.maximum(side.low, 1e-300)), np.log(side.high) - np.log(side.mean))
        for side in (a, b)
    )
    error = np.hypot(a.error / a.mean, b.error / b.mean)
    # One side without a valid interval is enough to have none.
    known = (a.needs <= a.n) & (b.needs <= b.n)
    down, up = (np.where(known, ends, np.inf) for ends in (np.hypot(a_down, b_up), np.hypot(a_up, b_down)))
    return LogRatios(value, value - down, value + up, error, np.minimum(a.freedom, b.freedom))


def verdicts(ratios: LogRatios, tolerance: float) -> list[SpeedVerdict]:
    """Faster or slower where the interval excludes 1 and the ratio itself is beyond the tolerance."""
    limit = math.log1p(tolerance)
    slower = (ratios.high < 0) & (ratios.value <= -limit)
    faster = (ratios.low > 0) & (ratios.value >= limit)
    return ["slower" if s else "faster" if f else "cannot tell" for s, f in zip(slower, faster, strict=True)]


def detectable(ratios: LogRatios, tolerance: float) -> Floats:
    """The smallest difference, as a share, that `verdicts` would find in DETECTED of cases with such errors.

    Johnson's and Welch's approximation of the noncentral t: the error, too, is only known as well as its freedom says.
    """
    likely = NormalDist().inv_cdf(DETECTED)
    critical = (ratios.high - ratios.low) / 2 / ratios.error
    # Half of all comparisons see an error below the true one times the first factor (the median of chi-squared, Wilson
    # and Hilferty). What is printed differs between comparisons, and a small one loses more than a large one gains: the
    # second factor is measured, so that over all comparisons what each prints is found in DETECTED of cases.
    error = ratios.error * (1 + 0.5 / ratios.freedom) / (1 - 2 / (9 * ratios.freedom)) ** 1.5
    # In standard errors. A verdict needs a significant interval and a ratio beyond the tolerance: the larger counts.
    of_errors = critical * (1 - 1 / (4 * ratios.freedom)) + likely * np.sqrt(1 + critical**2 / (2 * ratios.freedom))
    smallest: Floats = np.expm1(np.maximum(of_errors * error, likely * error + math.log1p(tolerance)))
    return smallest


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
    a, b, unpaired = _in_rounds(a, b)
    ratios, basis = _log_ratio(a, b)
    if unpaired:
        basis += f"; {unpaired} without a partner in its round left out"
    low, high = float(ratios.low[0]), float(ratios.high[0])
    judged = len(a) + len(b) > 2 or single_runs
    bounded, limit = math.isfinite(low) and math.isfinite(high), math.log1p(tolerance)
    return Comparison(
        ratio=math.exp(float(ratios.value[0])),
        low=math.exp(low) if bounded else None,
        high=math.exp(high) if bounded else None,
        verdict=verdicts(ratios, tolerance)[0] if judged and bounded else "cannot tell",
        tolerance=tolerance,
        within_tolerance=judged and bounded and -limit < low and high < limit,
        a_samples_per_s=Window.total(t.window for t in a).samples_per_s,
        b_samples_per_s=Window.total(t.window for t in b).samples_per_s,
        runs=(len(a), len(b)),
        steps=(sum(t.steps or len(t.step_s) for t in a), sum(t.steps or len(t.step_s) for t in b)),
        basis=basis,
        method=METHOD,
        detectable=float(detectable(ratios, tolerance)[0]) if judged and bounded else None,
    )


def _in_rounds(a: Sequence[Trace], b: Sequence[Trace]) -> tuple[Sequence[Trace], Sequence[Trace], int]:
    """Both sides in the order of the rounds they share, and how many runs have no partner; else as they are.

    A round that one side lacks is left out, as long as most rounds have both sides.
    """
    by_round = [{t.round: t for t in side if t.round is not None} for side in (a, b)]
    shared = [name for name in by_round[0] if name in by_round[1]]
    unique = all(len(rounds) == len(side) for rounds, side in zip(by_round, (a, b), strict=True))
    # Without their rounds, or `_log_ratio` would pair runs that were not measured one after the other.
    if not unique or len(shared) < _FEWEST_ROUNDS or 2 * len(shared) <= max(len(a), len(b)):
        return [replace(t, round=None) for t in a], [replace(t, round=None) for t in b], 0
    own, other = ([rounds[name] for name in shared] for rounds in by_round)
    return own, other, len(a) + len(b) - 2 * len(shared)


def _log_ratio(a: Sequence[Trace], b: Sequence[Trace]) -> tuple[LogRatios, str]:
    """The ratio of two sides, whose runs are paired where they have rounds, and what its interval is based on."""
    log_a, log_b = (np.log(np.array([[t.window.samples_per_s for t in side]])) for side in (a, b))
    if len(a) + len(b) > 2:
        if a[0].round is not None and b[0].round is not None:
            ratios, basis = ratio_rows_of_rounds(log_a, log_b), f"differences within {len(a)} rounds"
        else:
            ratios, basis = ratio_rows_of_runs(log_a, log_b), _basis_of_runs(len(a), len(b))
        if not np.isfinite(ratios.error[0]):
            basis = "runs that differ by nothing at all: rounded or copied figures do not show how runs differ"
        return ratios, basis
    one_a, one_b = a[0], b[0]
    value = (log_b - log_a)[0]
    if min(len(one_a.step_s), len(one_b.step_s)) < 2:
        return LogRatios.around(value, np.zeros(1), np.ones(1)), "one run each: too few steps for an interval"
    interval_a, interval_b = (mean_interval(np.array(t.step_s), t.fewest) for t in (one_a, one_b))
    basis = "one run each: the noise within the runs only, not how runs of the same thing differ"
    ratios = ratio_rows_of_steps(interval_a, interval_b, one_b.samples_per_step / one_a.samples_per_step)
    if not np.isfinite(ratios.low[0]):
        basis = f"one run each: no interval, {_too_few(one_a, interval_a) or _too_few(one_b, interval_b)}"
    return ratios, basis


def _basis_of_runs(runs_a: int, runs_b: int) -> str:
    basis = f"{runs_a} and {runs_b} runs, differences between runs counted"
    if min(runs_a, runs_b) == 1:
        basis += "; the side with one run is taken to vary as the other"
    return basis


def _too_few(trace: Trace, interval: Intervals) -> str:
    n, needs = len(trace.step_s), float(interval.needs[0])
    if needs <= n:
        return ""
    return f"{n:,} steps of about {needs:,.0f} needed" if math.isfinite(needs) else f"all {n:,} steps are equal"
