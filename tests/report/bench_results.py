"""Results of benchmarks with known figures, and run directories with them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from vernier.lab.records.bench import (
    BenchResult,
    FailedRow,
    Figures,
    Latency,
    Round,
    Samples,
    StepResult,
    StepRow,
    WarmUp,
    WarmUpSamples,
)
from vernier.records.codec import encode
from vernier.records.profile import PhaseTimes
from vernier.records.statistics import Estimate, SampleSummary
from vernier.store import RunDir

RATE = Estimate(value=100.0, low=None, high=None, n=2, basis="2 processes")
STEP_TIME = SampleSummary(
    unit="s", of="step, all devices", n=10, mean=0.1, median=0.1, sd=0.005, min=0.09, max=0.13, p95=0.12, p99=0.13
)


def step_row(batch: int, rate: float, **more: Any) -> StepRow:
    """A measured configuration of `rate` images per second, with an interval of 10 % to each side."""
    fields: dict[str, Any] = {
        "configuration": f"batch={batch}",
        "batch": batch,
        "rounds": 2,
        "images_per_s_total": replace(RATE, value=rate, low=0.9 * rate, high=1.1 * rate),
        "images_per_s_per_device": replace(RATE, value=rate),
        "compute_only_images_per_s_total": rate,
        "data_wait_share": 0.01,
        "verdict": "compute-bound",
        "step_s": STEP_TIME,
        "phases": PhaseTimes(steps=5, seconds={"forward": 0.06, "backward": 0.04}),
        "peak_memory_bytes": 2**28,
    }
    return StepRow(**{**fields, **more})


def step_result(step_s: tuple[float, ...], images_per_step: int = 1) -> StepResult:
    """One measurement of a configuration."""
    figures = Figures(
        images_per_s_total=RATE,
        images_per_s_per_device=RATE,
        compute_only_images_per_s_total=100.0,
        data_wait_share=0.0,
        verdict="compute-bound",
        step_s=STEP_TIME,
        warmup=WarmUp(steps=1, seconds=0.1, steady=True),
    )
    raw = Samples(step_s=step_s, warmup=WarmUpSamples(step_s=(9.0,), steady=True))
    return StepResult(images_per_step=images_per_step, figures=figures, raw=raw)


def write_bench(out: Path, bench: BenchResult) -> Path:
    run = RunDir.create(out, "bench-train")
    run.write_config({"recipe": {"name": "bench-train"}})
    run.write_environment({"host": "here"})
    run.write_bench(encode(bench), "")
    run.write_status("finished", summary={})
    return run.path


def bench_run(out: Path) -> Path:
    """A benchmark: two batches, latencies, and a configuration that did not fit into memory."""
    percentiles = {name: replace(RATE, value=value) for name, value in (("p50", 0.01), ("p99", 0.02))}
    latency = Latency(**vars(STEP_TIME), percentiles=percentiles)
    rows = (
        step_row(8, 80.0),
        step_row(32, 110.0, noise=("other programs used 1.00 cores",)),
        step_row(1, 70.0, scenario="single-stream", latency_s=latency),
        FailedRow(configuration="batch=4096", batch=4096, status="out-of-memory", why="too large"),
    )
    rounds = (Round(configuration="batch=1", round=0, order=0, result=step_result((0.01, 0.02, 0.03))),)
    return write_bench(out, BenchResult(method="vernier-bench-1", rows=rows, rounds=rounds))
