"""Intervals from few steps that are correlated, and from machines that switch between two speeds.

A cell is a kind of noise and a number of steps. Where at least half of its traces get an interval, 94 to 97 % of those
must hold the mean. Otherwise most traces get none, and wrong intervals must be at most 5 % of all traces: those that
get one happen to look less correlated than they are, so that theirs holds less often (`covered` says how often). The
mean of every kind is 1.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from promises.cells import Cells, slack
from promises.intervals import correlated, coverage

from vernier.measure import estimates as statistics
from vernier.measure.estimates import Floats

Rng = np.random.Generator
MEASURED = ("measure/estimates.py", "measure/student.py")
STEPS = (10, 20, 30, 60, 100, 200, 500, 1000, 2000)
COVER, WRONG, OFTEN = (0.94, 0.97), 0.05, 0.5


def two_states(rng: Rng, shape: tuple[int, int], gap: float, noise: float) -> Floats:
    """A machine that changes between two speeds every 25 steps on average."""
    switches = rng.random(shape) < 1 / 25
    switches[:, 0] = rng.random(shape[0]) < 0.5
    states = np.cumsum(switches, axis=1) % 2
    return 1 + gap * (states - 0.5) + noise * rng.standard_normal(shape)


KINDS: dict[str, Callable[[Rng, tuple[int, int]], Floats]] = {
    "independent": lambda r, s: 1 + 0.05 * r.standard_normal(s),
    "correlated 0.5": lambda r, s: 1 + 0.05 * correlated(r, s, 0.5),
    "correlated 0.8": lambda r, s: 1 + 0.05 * correlated(r, s, 0.8),
    "correlated 0.95": lambda r, s: 1 + 0.05 * correlated(r, s, 0.95),
    "two states 10 % apart, noise 1 %": lambda r, s: two_states(r, s, 0.1, 0.01),
    "two states 3 % apart, noise 1 %": lambda r, s: two_states(r, s, 0.03, 0.01),
}
LIMITS = {
    "two states 2 % apart, noise 2 %": lambda r, s: two_states(r, s, 0.02, 0.02),
    "2 % of steps stall for 1 step": lambda r, s: (
        1 + 0.04 * correlated(r, s, 0.5) + np.where(r.random(s) < 0.02, r.exponential(1.0, s), 0.0) - 0.02
    ),
}
"""Where it falls short: measured and shown, but not part of the pass."""


def figures_of(rng: Rng, kind: Callable[[Rng, tuple[int, int]], Floats], cases: int, steps: int) -> dict[str, float]:
    if steps < statistics.FEWEST_SAMPLES:
        estimates = [statistics._mean_estimate(row) for row in kind(rng, (min(cases, 100), steps))]
        assert all(e.low is None for e in estimates)
        return {"given": 0.0, "wrong": 0.0}
    return coverage(rng, kind, cases, steps)


def simulate(cell: Cells, cases: int) -> dict[str, Any]:
    def table(kinds: dict[str, Callable[[Rng, tuple[int, int]], Floats]]) -> dict[str, dict[str, float]]:
        return {
            (title := f"{name}, {steps} steps"): cell(
                title, cases, lambda rng, n, kind=kind, steps=steps: figures_of(rng, kind, n, steps)
            )
            for name, kind in kinds.items()
            for steps in STEPS
        }

    return {"cells": table(KINDS), "limits": table(LIMITS)}


def failures(result: dict[str, Any]) -> list[str]:
    wrong = []
    for name, figures in result["cells"].items():
        more = slack(figures["n"])
        if figures["given"] >= OFTEN and not COVER[0] - more <= figures["covered"] <= COVER[1] + more:
            wrong.append(f"{name}: {figures['covered']:.1%} of intervals hold")
        if figures["given"] < OFTEN and figures["wrong"] > WRONG + more:
            wrong.append(f"{name}: {figures['wrong']:.1%} of all traces get a wrong interval")
    return wrong


def lines(result: dict[str, Any]) -> list[str]:
    """The result as text, one line per cell."""
    shown = []
    for title, cells in result.items():
        shown.append(f"{title}: interval given, of those hold the mean, wrong intervals of all traces, half width")
        for name, figures in cells.items():
            holds = (
                f"{figures['covered']:7.1%} {figures['wrong']:7.1%}  +-{figures['half_width_percent']:.2f} %"
                if figures["given"] > 0
                else f"{'-':>7} {0:7.1%}"
            )
            shown.append(f"  {figures['given']:7.1%} {holds:28} {name}")
    return shown
