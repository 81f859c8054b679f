"""How often the intervals of step times hold and comparisons are right, on synthetic traces whose truth is known.

Traces are autocorrelated, heavy-tailed or drifting, some all at once. Run by benchmarks/coverage.py.

Passes when 95 % intervals cover 93 to 97 % for every kind of noise, comparisons of a thing with itself call a
difference in at most 6 %, and a 2 % slowdown is found in at least 95 %. Settings are the defaults: 5 runs per side of
500 steps, or as many rounds, tolerance 1 %. `bench`: 5 rounds of `vernier bench --target-width 0.5%`,
each process until the 95 % interval is within 0.5 % of the rate, within four times as many steps (a quarter of the
traces).
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from promises.cells import Cells, slack

from vernier.lab.bench import measuring as bench
from vernier.lab.statistics import comparison
from vernier.lab.statistics.quantiles import quantile_estimate
from vernier.measure import estimates as statistics
from vernier.measure.estimates import Floats

Rng = np.random.Generator
MEASURED = ("measure/estimates.py", "measure/student.py", "lab/statistics/*.py", "lab/bench/measuring.py")
COVER, FALSE_CALLS, POWER, SLOWDOWN = (0.93, 0.97), 0.06, 0.95, 0.02
RUN_TO_RUN = 0.004
UNEQUAL_STEPS = ((3, 50, 3, 400), (5, 400, 5, 50), (3, 200, 5, 100), (5, 50, 5, 50))
"""Runs and steps of each side, as of logs of unequal length."""
TARGET_WIDTH = 0.005  # of `bench`: half of an interval over the rate


def correlated(rng: Rng, shape: tuple[int, int], phi: float) -> Floats:
    """AR(1) noise of variance 1, from its stationary state on."""
    noise = rng.standard_normal(shape) * math.sqrt(1 - phi**2)
    noise[:, 0] /= math.sqrt(1 - phi**2)
    for step in range(1, shape[1]):
        noise[:, step] += phi * noise[:, step - 1]
    return noise


def _stalls(rng: Rng, shape: tuple[int, int], share: float, length: float) -> Floats:
    """Rare stalls of exponential length, in steps, added to normal noise."""
    stall = np.where(rng.random(shape) < share, rng.exponential(length, shape), 0.0)
    return 1 + 0.04 * correlated(rng, shape, 0.5) + stall - share * length


def _drift(rng: Rng, shape: tuple[int, int], rise: float, phi: float) -> Floats:
    return 1 + rise * np.linspace(-0.5, 0.5, shape[1]) + 0.03 * correlated(rng, shape, phi)


def _warming(rng: Rng, shape: tuple[int, int], rise: float, phi: float) -> Floats:
    """A device that slows down as it warms up, and settles."""
    curve = -np.exp(-np.linspace(0, 5, shape[1]))
    return 1 + rise * (curve - curve.mean()) + 0.03 * correlated(rng, shape, phi)


KINDS: dict[str, Callable[[Rng, tuple[int, int]], Floats]] = {
    "independent, CV 5 %": lambda r, s: 1 + 0.05 * r.standard_normal(s),
    "correlated 0.3, CV 5 %": lambda r, s: 1 + 0.05 * correlated(r, s, 0.3),
    "correlated 0.6, CV 5 %": lambda r, s: 1 + 0.05 * correlated(r, s, 0.6),
    "correlated 0.9, CV 5 %": lambda r, s: 1 + 0.05 * correlated(r, s, 0.9),
    "slow part and white part": lambda r, s: 1 + 0.035 * correlated(r, s, 0.7) + 0.035 * r.standard_normal(s),
    "heavy tails, Student t3": lambda r, s: 1 + 0.03 * r.standard_t(3, s),
    "lognormal, CV 53 %": lambda r, s: np.exp(0.5 * r.standard_normal(s) - 0.125),
    "lognormal, correlated 0.8": lambda r, s: np.exp(0.4 * correlated(r, s, 0.8) - 0.08),
    "stalls: 2 % of steps, 1 step": lambda r, s: _stalls(r, s, 0.02, 1.0),
    "stalls: 5 % of steps, 0.5 step": lambda r, s: _stalls(r, s, 0.05, 0.5),
    "drift of 4 %, correlated 0.5": lambda r, s: _drift(r, s, 0.04, 0.5),
    "drift of 10 %, independent": lambda r, s: _drift(r, s, 0.10, 0.0),
    "warming by 5 %, correlated 0.5": lambda r, s: _warming(r, s, 0.05, 0.5),
}  # the mean of every kind is 1
COMPARED = {
    "correlated 0.6, CV 5 %": KINDS["correlated 0.6, CV 5 %"],
    "heavy tails, Student t3": KINDS["heavy tails, Student t3"],
    "stalls: 1 % of steps, 0.5 step": lambda r, s: _stalls(r, s, 0.01, 0.5),
    "warming by 5 %, correlated 0.5": KINDS["warming by 5 %, correlated 0.5"],
}


def coverage(rng: Rng, kind: Callable[[Rng, tuple[int, int]], Floats], traces: int, steps: int) -> dict[str, float]:
    """How often an interval is given, and how often those that are given hold the mean."""
    intervals = statistics.mean_intervals(kind(rng, (traces, steps)))
    given = intervals.needs <= steps
    covered = (intervals.low <= 1) & (intervals.high >= 1)
    if not given.any():
        return {"given": 0.0, "covered": math.nan, "half_width_percent": math.nan, "wrong": 0.0}
    return {
        "given": float(given.mean()),
        "covered": float(covered[given].mean()),
        "half_width_percent": float(100 * np.median((intervals.high - intervals.low)[given]) / 2),
        "wrong": float((given & ~covered).mean()),
    }


def median_coverage(rng: Rng, traces: int, steps: int, phi: float) -> dict[str, float]:
    rows = 1 + 0.05 * correlated(rng, (traces, steps), phi)
    ends = [quantile_estimate(row, 0.5) for row in rows]
    return {"covered": float(np.mean([(e.low or 0) <= 1 <= (e.high or math.inf) for e in ends]))}


def _log_speeds(
    rng: Rng,
    kind: Callable[[Rng, tuple[int, int]], Floats],
    traces: int,
    runs: int,
    steps: int,
    slower: float,
    mean: Callable[[Floats], Floats],
) -> Floats:
    """Log speed of each run, one row per repetition of the experiment; each run has its own deviation."""
    columns = [
        -np.log(mean(kind(rng, (traces, steps))) * (1 + slower) * np.exp(RUN_TO_RUN * rng.standard_normal(traces)))
        for _ in range(runs)
    ]
    return np.column_stack(columns)


def until_precise(rows: Floats) -> Floats:
    """The mean of each row over as many of its steps as `vernier bench --target-width 0.5%` would measure."""
    mean, active, steps = rows.mean(1), np.arange(len(rows)), bench.FEWEST_STEPS
    while active.size and steps < rows.shape[1]:
        intervals = statistics.mean_intervals(rows[active, :steps])
        enough = (intervals.high - intervals.low) / 2 / intervals.mean <= TARGET_WIDTH
        mean[active[enough]] = intervals.mean[enough]
        active, steps = active[~enough], int(steps * bench.CHECK_GROWTH)
    return mean


def call_rate(
    rng: Rng, kind: Callable[[Rng, tuple[int, int]], Floats], traces: int, steps: int, design: str, slower: float
) -> float:
    """How often a comparison calls a difference: any when there is none, `slower` when there is one."""
    runs, tolerance = comparison.DEFAULT_RUNS, comparison.DEFAULT_TOLERANCE if slower else 0.0
    if design == "one run":
        a, b = (statistics.mean_intervals(kind(rng, (traces, steps)) * (1 + s)) for s in (0.0, slower))
        ratios = comparison.ratio_rows_of_steps(a, b)
    else:
        mean = until_precise if design == "bench" else lambda rows: rows.mean(1)
        a, b = (_log_speeds(rng, kind, traces, runs, steps, s, mean) for s in (0.0, slower))
        if design in ("rounds", "bench"):
            weather = 0.02 * rng.standard_normal(a.shape)  # the machine is slower in some rounds, for both
            ratios = comparison.ratio_rows_of_rounds(a + weather, b + weather)
        else:
            ratios = comparison.ratio_rows_of_runs(a, b)
    verdicts = comparison.verdicts(ratios, tolerance)
    return float(np.mean([v == "slower" if slower else v != "cannot tell" for v in verdicts]))


def simulate(cell: Cells, cases: int) -> dict[str, Any]:
    steps, quarter = comparison.DEFAULT_STEPS, max(1, cases // 4)

    def calls(slower: float) -> dict[str, Any]:
        """How often a difference is called; `bench` measures after the warm-up, and until it is precise."""
        of_runs = [("runs", k) for k in COMPARED] + [("rounds", k) for k in COMPARED]
        of_one = [] if slower else [("one run", k) for k in COMPARED]
        of_bench = [("bench", k) for k in COMPARED if not k.startswith("warming")]
        return {
            f"{design}; {kind}": cell(
                f"{design}; {kind}, {slower:.0%} slower",
                quarter if design == "bench" else cases,
                lambda rng, n, design=design, kind=kind: call_rate(
                    rng, COMPARED[kind], n, 4 * steps if design == "bench" else steps, design, slower
                ),
            )
            for design, kind in (*of_runs, *of_one, *of_bench)
        }

    return {
        "intervals": {
            name: cell(name, cases, lambda rng, n, kind=kind: coverage(rng, kind, n, steps))
            for name, kind in KINDS.items()
        },
        "median_covered": {
            f"correlated {phi}, CV 5 %": cell(
                f"median, correlated {phi}", cases, lambda rng, n, phi=phi: median_coverage(rng, n, steps, phi)
            )
            for phi in (0.0, 0.6)
        },
        "same_called_different": calls(0.0)
        | {
            (title := f"runs; correlated 0.95, {a} runs of {many} steps against {b} of {less}"): cell(
                title, cases, lambda rng, n, design=(a, many, b, less): unequal_steps(rng, n, *design)
            )
            for a, many, b, less in UNEQUAL_STEPS
        },
        "slowdown_found": calls(SLOWDOWN),
    }


def unequal_steps(rng: Rng, cases: int, runs_a: int, steps_a: int, runs_b: int, steps_b: int) -> float:
    """How often runs of the same thing are called slower or faster by more than the tolerance; before 2.6 to 5.2 %."""
    a, b = (
        _log_speeds(
            rng, lambda r, s: 1 + 0.05 * correlated(r, s, 0.95), cases, runs, steps, 0.0, lambda rows: rows.mean(1)
        )
        for runs, steps in ((runs_a, steps_a), (runs_b, steps_b))
    )
    verdicts = comparison.verdicts(comparison.ratio_rows_of_runs(a, b), comparison.DEFAULT_TOLERANCE)
    return float(np.mean([verdict != "cannot tell" for verdict in verdicts]))


def failures(result: dict[str, Any]) -> list[str]:
    wrong = [
        f"{k}: covers {v['covered']:.1%}"
        for k, v in {**result["intervals"], **result["median_covered"]}.items()
        if not COVER[0] - slack(v["n"]) <= v["covered"] <= COVER[1] + slack(v["n"])
    ]
    same, power = result["same_called_different"], result["slowdown_found"]
    wrong += [
        f"{k}: calls a difference in {v['share']:.1%}"
        for k, v in same.items()
        if v["share"] > FALSE_CALLS + slack(v["n"])
    ]
    return wrong + [
        f"{k}: finds the slowdown in {v['share']:.1%}" for k, v in power.items() if v["share"] < POWER - slack(v["n"])
    ]


def lines(result: dict[str, Any]) -> list[str]:
    """The result as text, one line per figure."""
    shown = []
    for title, cells in result.items():
        shown.append(title)
        for name, figures in cells.items():
            half = figures.get("half_width_percent")
            width, share = "" if half is None else f" (+-{half:.2f} %)", figures.get("covered", figures.get("share"))
            shown.append(f"  {100 * share:6.1f} %{width}, n = {figures['n']:,}  {name}")
    return shown
