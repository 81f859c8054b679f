import itertools
import statistics
from collections.abc import Callable

import pytest

from vernier.lab.bench import serving
from vernier.lab.bench.serving import poisson_arrivals, serve, summarize_latency


class Server:
    """A simulated clock and a server that takes a fixed time per query, and once much longer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, each_s: Callable[[int], float]) -> None:
        self.now, self._each_s, self.calls = 0.0, each_s, 0
        monkeypatch.setattr(serving, "now_s", lambda: self.now)
        monkeypatch.setattr(serving.threading.Event, "wait", lambda _, seconds: self.sleep(seconds))

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def run(self, count: int) -> None:
        self.now += self._each_s(self.calls)
        self.calls += 1


def test_arrivals_are_poisson_and_repeatable() -> None:
    planned = poisson_arrivals(100.0, 200.0, seed=1)
    gaps = [b - a for a, b in itertools.pairwise(planned)]
    assert statistics.fmean(gaps) == pytest.approx(0.01, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(0.01, rel=0.05)  # as exponential gaps have it
    assert planned == poisson_arrivals(100.0, 200.0, seed=1) != poisson_arrivals(100.0, 200.0, seed=2)


def test_a_stall_counts_for_every_query_it_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No coordinated omission: ten queries wait behind one that takes ten seconds, and their latencies say so."""
    server = Server(monkeypatch, lambda call: 10.0 if call == 0 else 0.1)
    queries = serve(server.run, [float(i) for i in range(12)])
    assert queries.latency_s[0] == pytest.approx(10.0)
    assert queries.latency_s[1] == pytest.approx(9.1)
    assert queries.latency_s[5] == pytest.approx(5.5)
    assert sum(latency > 1 for latency in queries.latency_s) >= 10
    assert queries.batches == [1] * 12


def test_queries_that_have_arrived_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, lambda call: 1.0)
    queries = serve(server.run, [0.0, 0.1, 0.2, 0.3, 5.0], max_batch=3)
    assert queries.batches == [1, 3, 1]
    assert queries.latency_s == pytest.approx([1.0, 1.9, 1.8, 1.7, 1.0])


def test_percentiles_come_from_raw_samples_and_not_beyond_them() -> None:
    latency = summarize_latency([(i * 83 % 151) / 1000 for i in range(1, 151)], of="query")
    assert latency.percentiles["p50"].value == pytest.approx(0.0755)
    assert set(latency.percentiles) == {"p50", "p90", "p95", "p99"}  # 150 samples cannot show the rarest thousandth
    assert latency.n == 150
    p99 = latency.percentiles["p99"]
    assert p99.low is not None
    assert p99.low < p99.value
