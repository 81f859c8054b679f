"""Inference under load: queries arrive at random, whether or not the last one is done.

Arrivals are planned before anything runs, and a query's latency counts from its planned arrival, so time spent waiting
behind a slow one is in the figure: nothing is omitted because the server was busy.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vernier.clock import now_s
from vernier.measure.statistics.estimates import quantile_estimate
from vernier.measure.statistics.summary_checks import summarize
from vernier.records.codec import encode

METHOD = "vernier-serving-1"
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


def poisson_arrivals(rate_per_s: float, seconds: float, seed: int) -> list[float]:
    """Planned arrivals, seconds from the start: independent, exponential gaps."""
    dice, at, planned = random.Random(seed), 0.0, list[float]()
    while (at := at + dice.expovariate(rate_per_s)) < seconds:
        planned.append(at)
    return planned


@dataclass
class Served:
    """Latencies of all queries in order of arrival, and how many were taken together each time."""

    latency_s: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    wall_s: float = 0.0


def serve(run: Callable[[int], None], planned: Sequence[float], *, max_batch: int = 1) -> Served:
    """One server, first come first served: whatever has arrived is taken together, at most `max_batch` queries at a time."""
    found, start_s, served = Served(), now_s(), 0
    while served < len(planned):
        early_s = planned[served] - (now_s() - start_s)
        if early_s > 0:
            threading.Event().wait(early_s)
        here = now_s() - start_s
        take = 1
        while take < max_batch and served + take < len(planned) and planned[served + take] <= here:
            take += 1
        run(take)
        done = now_s() - start_s
        found.latency_s += [done - at for at in planned[served : served + take]]
        found.batches.append(take)
        served += take
    found.wall_s = now_s() - start_s
    return found


def latency_figures(latency_s: Sequence[float], *, of: str) -> dict[str, Any]:
    """Summary of raw latencies in order, and percentiles with intervals; an end that so few samples cannot show is None."""
    found = {f"p{p:g}": encode(quantile_estimate(latency_s, p / 100)) for p in PERCENTILES if _shown(latency_s, p)}
    return {**encode(summarize(latency_s, unit="s", of=of)), "percentiles": found}


def _shown(values: Sequence[float], p: float) -> bool:
    """Whether at least one sample lies beyond a percentile; without one it would be a guess."""
    return len(values) * (100 - p) >= 100
