"""Intervals over few processes, comparisons of few runs, and the power that comparisons print.

Processes and runs differ normally, by a skewed law (exponential: a few are slow) or as one in ten that is 10 % slow.
Passes when intervals of 2 to 30 normal or exponential processes cover 94 to 96 %; when runs of the same thing are
called different in at most 5.5 % for equal and unequal numbers of runs; and when a difference of the size that a
comparison prints is found in 75 to 84 % (80 % is promised).
Cases cost little here: ten times as many are simulated.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from vernier.lab.statistics import comparison, runs
from vernier.measure.estimates import Floats

Rng = np.random.Generator
COVER, FALSE_CALLS, POWER = (0.94, 0.96), 0.055, (0.75, 0.84)
SPREAD, RARE, RARE_SLOWDOWN = 0.02, 0.1, 0.1
PROCESSES = (2, 3, 4, 5, 7, 10, 15, 20, 30)
DESIGNS = ((2, 2), (3, 3), (5, 5), (10, 10), (2, 3), (2, 5), (2, 10), (3, 5), (3, 10), (3, 20), (5, 10), (5, 20))
ONE_AGAINST = ((1, 2), (1, 3), (1, 4), (1, 5), (1, 10), (1, 20))

LAWS: dict[str, Callable[[Rng, tuple[int, int]], Floats]] = {
    "normal": lambda r, s: SPREAD * r.standard_normal(s),
    "exponential": lambda r, s: SPREAD * (r.exponential(1.0, s) - 1),
}
MORE_LAWS: dict[str, Callable[[Rng, tuple[int, int]], Floats]] = {
    **LAWS,
    "lognormal": lambda r, s: SPREAD * (np.exp(0.5 * r.standard_normal(s)) - np.exp(0.125)),
}


def rare(rng: Rng, shape: tuple[int, int]) -> Floats:
    """One in ten is 10 % slow; all differ by 0.4 % besides."""
    return (
        np.where(rng.random(shape) < RARE, RARE_SLOWDOWN, 0.0)
        - RARE * RARE_SLOWDOWN
        + 0.004 * rng.standard_normal(shape)
    )


def covered(rng: Rng, law: Callable[[Rng, tuple[int, int]], Floats], cases: int, processes: int) -> dict[str, float]:
    """How often the interval of so many processes holds the mean of their logarithms, which is 0."""
    _, low, high = runs.mean_of_runs(law(rng, (cases, processes)))
    return {
        "covered": float(((low <= 0) & (high >= 0)).mean()),
        "half_width_percent": float(50 * np.median(high - low)),
    }


def covered_where_seen(rng: Rng, cases: int, processes: int) -> dict[str, float]:
    """Where one process in ten is slow: how often none is, and the coverage with and without those benchmarks."""
    rows = rare(rng, (cases, processes))
    _, low, high = runs.mean_of_runs(rows)
    holds, seen = (low <= 0) & (high >= 0), rows.max(1) > RARE_SLOWDOWN / 2
    return {
        "covered": float(holds.mean()),
        "unseen": float((~seen).mean()),
        "covered_where_seen": float(holds[seen].mean()),
    }


def false_calls(
    rng: Rng, law: Callable[[Rng, tuple[int, int]], Floats], cases: int, design: tuple[int, int], wider: float = 1.0
) -> float:
    """How often runs of the same thing are called different; those of B vary `wider` times as much."""
    a, b = (-law(rng, (cases, count)) for count in design)
    ratios = comparison.ratio_rows_of_runs(a, wider * b)
    return float(np.mean([verdict != "cannot tell" for verdict in comparison.verdicts(ratios, 0.0)]))


def rare_of(share: float, slower: float) -> Callable[[Rng, tuple[int, int]], Floats]:
    """This share of runs is slow by so much; all differ by 0.4 % besides."""
    return lambda r, s: np.where(r.random(s) < share, slower, 0.0) - share * slower + 0.004 * r.standard_normal(s)


def two_modes(rng: Rng, shape: tuple[int, int]) -> Floats:
    """Half of the processes are 10 % slow."""
    return 0.1 * ((rng.random(shape) < 0.5) - 0.5) + 0.004 * rng.standard_normal(shape)


def lasting(rng: Rng, shape: tuple[int, int]) -> Floats:
    """A load that lasts for several processes: correlated by 0.7."""
    rows = rng.standard_normal(shape)
    for k in range(1, shape[1]):
        rows[:, k] = 0.7 * rows[:, k - 1] + math.sqrt(1 - 0.49) * rows[:, k]
    return SPREAD * rows


def one_slow(rng: Rng, cases: int, design: tuple[int, int]) -> float:
    """How often runs of the same thing are called different if one of B was disturbed by 10 %."""
    a, b = (0.005 * rng.standard_normal((cases, count)) for count in design)
    b[:, 0] -= RARE_SLOWDOWN
    return float(np.mean([v != "cannot tell" for v in comparison.verdicts(comparison.ratio_rows_of_runs(a, b), 0.0)]))


def walk(rng: Rng, cases: int, turns: bool) -> float:
    """How often ten runs of the same thing are called different on a machine that wanders by 3 % meanwhile."""
    weather = 0.03 / math.sqrt(10) * np.cumsum(rng.standard_normal((cases, 10)), 1)
    runs_of = weather + 0.005 * rng.standard_normal((cases, 10))
    if turns:
        ratios = comparison.ratio_rows_of_rounds(runs_of[:, ::2], runs_of[:, 1::2])
    else:
        ratios = comparison.ratio_rows_of_runs(runs_of[:, :5], runs_of[:, 5:])
    return float(np.mean([v != "cannot tell" for v in comparison.verdicts(ratios, 0.01)]))


def power(rng: Rng, cases: int, design: tuple[int, int], rounds: bool) -> dict[str, float]:
    """How often a slowdown is found that is as large as the median of the differences that comparisons print."""
    law, tolerance = LAWS["normal"], comparison.DEFAULT_TOLERANCE
    of = comparison.ratio_rows_of_rounds if rounds else comparison.ratio_rows_of_runs
    a, b = (law(rng, (cases, count)) for count in design)
    difference = float(np.median(comparison.detectable(of(a, b), tolerance)))
    calls = comparison.verdicts(of(a, b - np.log1p(difference)), tolerance)
    return {"difference_percent": 100 * difference, "detected": float(np.mean([call == "slower" for call in calls]))}


def simulate(cases: int, seed: int) -> dict[str, Any]:
    rng, many = np.random.default_rng(seed), 10 * cases
    designs = [(law, design) for law in MORE_LAWS for design in (*DESIGNS, *ONE_AGAINST)]
    return {
        "processes": {f"{n} {law} processes": covered(rng, LAWS[law], many, n) for law in LAWS for n in PROCESSES},
        "rare": {f"{n} processes, one in ten slow": covered_where_seen(rng, many, n) for n in (*PROCESSES, 60)},
        "same_called_different": {
            f"{a} against {b} {law} runs": false_calls(rng, MORE_LAWS[law], many, (a, b)) for law, (a, b) in designs
        },
        "same_called_different, B varies 3 times as much": {
            f"{a} against {b} normal runs": false_calls(rng, LAWS["normal"], many, (a, b), 3.0) for a, b in DESIGNS
        },
        "found": {
            f"{a} against {b} {'rounds' if rounds else 'runs'}": power(rng, many, (a, b), rounds)
            for a, b, rounds in ((3, 3, False), (5, 5, False), (10, 10, False), (3, 10, False), (5, 5, True))
        },
        "same_called_different, one run in ten slow": {
            f"{a} against {b} runs": false_calls(rng, rare, many, (a, b)) for a, b in (*DESIGNS, *ONE_AGAINST)
        },
        # Of the review of 2026-11-18, shown: no interval knows of load that lasts, or of modes that it did not see.
        "shown: B varies 5 times as much (before 5.3 to 5.5; 10 against 2: 7.5 %)": {
            f"{a} against {b}": false_calls(rng, LAWS["normal"], many, (a, b), 5.0)
            for a, b in ((3, 3), (5, 5), (10, 3), (10, 2))
        },
        "shown: one run of B 10 % slow (before 0.1 to 0.2 %)": {
            f"{a} against {b}": one_slow(rng, many, (a, b)) for a, b in ((3, 3), (5, 5), (10, 10))
        },
        "shown: one run in five 10 % slow (before 0.8 to 3.2; 1 against 3, 5, 10: 11.1, 7.0, 4.4 %)": {
            f"{a} against {b}": false_calls(rng, rare_of(0.2, 0.1), many, (a, b))
            for a, b in ((3, 3), (5, 5), (3, 10), (1, 3), (1, 5), (1, 10))
        },
        "shown: a machine that wanders by 3 % over ten runs (before 39.5 % in blocks, 0.4 % in turn)": {
            "AAAAABBBBB": walk(rng, many, turns=False),
            "ABABABABAB": walk(rng, many, turns=True),
        },
        "shown: intervals of 2, 3, 5 and 10 processes": {
            f"{name}, {n}": covered(rng, law, many, n)["covered"]
            for name, law in (
                ("half of them 10 % slow (before 81 / 80 / 94 / 95)", two_modes),
                ("one in five 30 % slow (before 80 / 60 / 66 / 88)", rare_of(0.2, 0.3)),
                ("correlated .7 (before 90 / 81 / 71 / 64)", lasting),
            )
            for n in (2, 3, 5, 10)
        },
    }


def failures(result: dict[str, Any]) -> list[str]:
    wrong = [
        f"{name}: covers {figures['covered']:.1%}"
        for name, figures in result["processes"].items()
        if not COVER[0] <= figures["covered"] <= COVER[1]
    ]
    wrong += [
        f"{name}: called different in {share:.1%}"
        for name, share in result["same_called_different"].items()
        if share > FALSE_CALLS
    ]
    return wrong + [
        f"{name}: {figures['difference_percent']:.1f} % is found in {figures['detected']:.1%}"
        for name, figures in result["found"].items()
        if not POWER[0] <= figures["detected"] <= POWER[1]
    ]


def lines(result: dict[str, Any]) -> list[str]:
    """The result as text, one line per figure."""
    shown = []
    for title, cells in result.items():
        shown.append(title)
        for name, figures in cells.items():
            values = figures if isinstance(figures, dict) else {"share": figures}
            text = ", ".join(
                f"{key.removesuffix('_percent')} {value:.2f} %" if key.endswith("_percent") else f"{key} {value:.1%}"
                for key, value in values.items()
            )
            shown.append(f"  {name}: {text}")
    return shown
