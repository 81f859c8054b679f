import csv
import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from vernier.lab.profile.steps import (
    StepProfiler,
    device_kernels,
    host_operations,
    kernel_calls,
    kernel_table,
    phase_times,
    profiling_overhead,
)
from vernier.measure.profiles import StepRange
from vernier.records.codec import encode
from vernier.records.profile import ProfileSummary


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ProfileSummary]:
    folder = tmp_path_factory.mktemp("traces")
    weights = torch.randn(64, 64, requires_grad=True)
    profiler = StepProfiler(StepRange(3, 4), folder, lambda: None)
    for step in range(1, 13):
        profiler.begin(step)
        with profiler.phase("forward"):
            loss = (weights @ weights).sum()
        with profiler.phase("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        profiler.end(step)
    summary = profiler.close()
    assert summary is not None
    return folder, summary


def test_exactly_the_requested_steps_are_in_the_profile(profiled: tuple[Path, ProfileSummary]) -> None:
    folder, summary = profiled
    assert summary.steps == (3, 4)
    assert json.loads((folder / "profile.rank0.json").read_text()) == encode(summary)
    with gzip.open(folder / "trace.rank0.json.gz", "rt") as f:
        events = json.load(f)["traceEvents"]
    assert sum(e.get("name") == "vernier::forward" and e.get("cat") == "user_annotation" for e in events) == 2
    with (folder / "iterations.rank0.csv").open() as f:
        rows = list(csv.DictReader(f))
    assert [r["iteration"] for r in rows] == [str(i) for i in range(1, 13)]
    assert [r["iteration"] for r in rows if r["profiled"] == "yes"] == ["3", "4"]
    assert summary.overhead is not None
    assert summary.overhead.n_profiled == 2


def test_the_kernel_table_adds_up(profiled: tuple[Path, ProfileSummary]) -> None:
    with (profiled[0] / "kernels.rank0.csv").open() as f:
        rows = {r["name"]: r for r in csv.DictReader(f)}
    product = rows["aten::mm"]
    assert int(product["calls"]) == 2 * 3  # one forward and two backward per step
    assert float(product["min_ms"]) <= float(product["mean_ms"]) <= float(product["max_ms"])
    assert float(product["total_ms"]) == pytest.approx(6 * float(product["mean_ms"]))
    assert sum(float(r["share"]) for r in rows.values()) == pytest.approx(1.0)
    assert not any(name.startswith("vernier::") for name in rows)


def test_every_call_has_its_start_and_duration(profiled: tuple[Path, ProfileSummary]) -> None:
    with (profiled[0] / "calls.rank0.csv").open() as f:
        rows = list(csv.DictReader(f))
    starts = [float(r["start_ms"]) for r in rows]
    assert starts == sorted(starts)
    assert starts[0] == 0
    products = [r for r in rows if r["name"] == "aten::mm"]
    assert len(products) == 2 * 3
    assert all(float(r["duration_ms"]) > 0 and r["device"] == "cpu" for r in products)


def test_a_call_within_a_call_of_the_same_name_counts(tmp_path: Path) -> None:
    """Torch's table merges the two `aten::div` of dividing whole numbers; the trace is the judge of times, too."""
    profiler = StepProfiler(StepRange(1, 2), tmp_path, lambda: None)
    numbers = torch.arange(1, 9)
    for step in (1, 2):
        profiler.begin(step)
        numbers.float().mean()
        torch.nn.functional.cross_entropy(torch.randn(4, 3, requires_grad=True), numbers[:4] % 3).backward()
        profiler.end(step)
    with gzip.open(tmp_path / "trace.rank0.json.gz", "rt") as f:
        operations = [e for e in json.load(f)["traceEvents"] if e.get("cat") == "cpu_op"]
    with (tmp_path / "kernels.rank0.csv").open() as f:
        rows = {r["name"]: r for r in csv.DictReader(f)}
    assert {name: int(r["calls"]) for name, r in rows.items()} == Counter(e["name"] for e in operations)
    outermost_us = 0.0
    for e in operations:
        within = [o for o in operations if o is not e and o["tid"] == e["tid"] and _holds(o, e)]
        outermost_us += 0 if within else e["dur"]
    assert sum(float(r["total_ms"]) for r in rows.values()) == pytest.approx(outermost_us / 1000, rel=1e-3)


def _holds(outer: dict[str, float], inner: dict[str, float]) -> bool:
    return outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 0.002


def test_time_of_its_own_is_without_the_operations_called() -> None:
    def operation(name: str, ts: float, dur: float, tid: int = 1) -> dict[str, object]:
        return {"cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid}

    events = [
        operation("a", 0, 10_000),
        operation("a", 1_000, 4_000),
        operation("b", 2_000, 1_000),
        operation("b", 6_000, 2_000),
        operation("b", 3_000, 9_000, tid=2),
        {"cat": "user_annotation", "name": "vernier::forward", "ts": 0, "dur": 99_000, "pid": 1, "tid": 1},
    ]
    calls = [(c.name, c.duration_ms) for c in host_operations(events)]
    assert calls == [("a", 4.0), ("a", 3.0), ("b", 1.0), ("b", 2.0), ("b", 9.0)]


def test_a_range_that_is_not_reached_has_no_profile(tmp_path: Path) -> None:
    profiler = StepProfiler(StepRange(5, 9), tmp_path, lambda: None)
    for step in range(1, 8):
        profiler.begin(step)
        profiler.end(step)
    assert profiler.close() is None


def test_the_time_that_no_phase_claims_is_idle() -> None:
    times = phase_times({"forward": [1.0, 1.0], "data": [0.5, 0.5]}, [2.0, 2.0])
    assert times.share == pytest.approx({"data": 0.25, "forward": 0.5, "idle": 0.25})


def test_overhead_is_against_steady_steps() -> None:
    overhead = profiling_overhead([2.0, 2.2], [9.0, *[1.0] * 8])
    assert overhead is not None
    assert (overhead.ratio, overhead.n_others) == (pytest.approx(2.1), 8)
    assert profiling_overhead([2.0], [9.0, 1.0]) is None


def test_simulated_accelerator_trace_gives_grids_and_blocks() -> None:
    event = {
        "cat": "kernel",
        "name": "sgemm",
        "dur": 1500.0,
        "args": {"device": 1, "grid": [8, 1, 1], "block": [128, 1, 1]},
    }
    copy = {"cat": "gpu_memcpy", "name": "Memcpy HtoD", "dur": 500.0, "args": {"device": 1}}
    rows = kernel_table(device_kernels([event, event, copy, {"cat": "cpu_op", "name": "aten::mm", "dur": 1.0}]))
    assert rows[0].name == "sgemm"
    assert (rows[0].calls, rows[0].total_ms, rows[0].grid, rows[0].block) == (2, 3.0, "8x1x1", "128x1x1")
    assert rows[0].share == pytest.approx(6 / 7)
    assert rows[1].grid is None


def test_calls_of_a_simulated_accelerator_trace_have_launch_and_registers() -> None:
    launch = {"device": 1, "stream": 7, "grid": [8, 1, 1], "block": [128, 1, 1], "registers per thread": 64}
    kernel = {"cat": "kernel", "name": "sgemm", "ts": 2500.0, "dur": 1500.0, "args": {**launch, "shared memory": 4096}}
    copy = {"cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 500.0, "dur": 1000.0, "args": {"device": 1, "stream": 7}}
    first, second = kernel_calls([kernel, copy, {"ph": "M", "name": "process_name"}])
    assert (first.name, first.start_ms, first.duration_ms, first.grid) == ("Memcpy HtoD", 0.0, 1.0, None)
    assert (second.start_ms, second.duration_ms, second.device, second.stream) == (2.0, 1.5, "device 1", "7")
    assert (second.grid, second.block, second.registers, second.shared_memory_bytes) == ("8x1x1", "128x1x1", 64, 4096)
