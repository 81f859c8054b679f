"""Inference under load: queries arrive at random, whether or not the last one is done.

Arrivals are planned before anything runs, and a query's latency counts from its planned arrival, so the time spent
waiting behind a slow one is in the figure (no coordinated omission).
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vernier.clock import now_s
from vernier.lab.records.bench import Latency
from vernier.lab.statistics.quantiles import quantile_estimate
from vernier.measure.estimates import summarize

METHOD = "vernier-serving-1"
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


def poisson_arrivals(rate_per_s: float, seconds: float, seed: int) -> list[float]:
    """Planned arrivals, in seconds from the start, with independent exponential gaps."""
    generator, at, planned = random.Random(seed), 0.0, list[float]()
    while (at := at + generator.expovariate(rate_per_s)) < seconds:
        planned.append(at)
    return planned


@dataclass
class ServedQueries:
    """Latencies of all queries in order of arrival, and the size of every batch."""

    latency_s: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    wall_s: float = 0.0


def serve(run: Callable[[int], None], planned: Sequence[float], *, max_batch: int = 1) -> ServedQueries:
    """One server, first come first served: queries that have arrived run together, at most `max_batch` at a time."""
    queries, start_s, served = ServedQueries(), now_s(), 0
    while served < len(planned):
        early_s = planned[served] - (now_s() - start_s)
        if early_s > 0:
            threading.Event().wait(early_s)
        elapsed_s = now_s() - start_s
        batch = 1
        while batch < max_batch and served + batch < len(planned) and planned[served + batch] <= elapsed_s:
            batch += 1
        run(batch)
        done_s = now_s() - start_s
        queries.latency_s += [done_s - at for at in planned[served : served + batch]]
        queries.batches.append(batch)
        served += batch
    queries.wall_s = now_s() - start_s
    return queries


def summarize_latency(latency_s: Sequence[float], *, of: str) -> Latency:
    """Summary of raw latencies in order, and percentiles with intervals; None for an end that too few samples show."""
    # without at least one sample beyond it a percentile would be a guess
    supported = [p for p in PERCENTILES if len(latency_s) * (100 - p) >= 100]
    percentiles = {f"p{p:g}": quantile_estimate(latency_s, p / 100) for p in supported}
    return Latency(**vars(summarize(latency_s, unit="s", of=of)), percentiles=percentiles)
