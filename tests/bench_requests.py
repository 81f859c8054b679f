import pytest

from vernier.lab.records.bench import BenchRequest


@pytest.fixture
def bench_requests(monkeypatch: pytest.MonkeyPatch) -> list[BenchRequest]:
    """The requests that commands make; nothing is measured."""
    requests: list[BenchRequest] = []

    def run_bench(request: BenchRequest, *_: object) -> None:
        requests.append(request)
        raise KeyboardInterrupt

    monkeypatch.setattr("vernier.lab.api.benchmarks.run_bench", run_bench)
    return requests
