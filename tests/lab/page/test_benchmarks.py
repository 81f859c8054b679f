"""Benchmarks on the page: recognized in run directories and as copies of bench.json, and drawn."""

import shutil
from pathlib import Path

from tests.report.bench_results import bench_run, step_row, write_bench
from tests.report.page.conftest import detector
from vernier.lab.page.benchmarks import benchmarks
from vernier.lab.records.bench import BenchResult
from vernier.report.page.collect import collect
from vernier.report.page.figures import Figure


def figures_and_html(path: Path) -> tuple[dict[str, Figure], str]:
    section = benchmarks(collect([path]))
    assert section is not None
    return {f.name: f for f in section.figures}, str(section.html)


def test_a_benchmark_shows_rates_latency_phases_and_failed_configurations(tmp_path: Path) -> None:
    figures, html = figures_and_html(bench_run(tmp_path))
    assert {"bench-throughput-0", "percentiles-0", "phases-0"} <= set(figures)
    assert [r[2] for r in figures["percentiles-0"].rows] == [10.0, 20.0]
    for words in ("out-of-memory", "too large", "other programs used 1.00 cores"):
        assert words in html


def test_scaling_is_drawn_against_ideal(tmp_path: Path) -> None:
    rows = tuple(
        step_row(8, 100.0 * n * e, configuration=f"procs={n}", procs=n, scaling="weak", efficiency=e, speedup=n * e)
        for n, e in ((1, 1.0), (2, 0.9))
    )
    figures, _ = figures_and_html(write_bench(tmp_path, BenchResult(rows=rows)))
    assert [list(r[:3]) for r in figures["scaling-0"].rows] == [
        [1, "measured", 100.0],
        [2, "measured", 180.0],
        [1, "ideal", 100.0],
        [2, "ideal", 200.0],
    ]


def test_three_batches_are_a_curve_and_two_are_bars(tmp_path: Path) -> None:
    def chart(path: Path, *batches: int) -> str:
        rows = tuple(step_row(b, 100.0 * b) for b in batches)
        figures, _ = figures_and_html(write_bench(path, BenchResult(rows=rows)))
        return str(figures["bench-throughput-0"].data()["chart"]["type"])

    assert chart(tmp_path / "a", 1, 2) == "bars"
    assert chart(tmp_path / "b", 1, 2, 4) == "lines"


def test_benchmarks_and_trainings_are_recognised(tmp_path: Path) -> None:
    run = bench_run(tmp_path / "a")
    copied = shutil.copy(run / "bench.json", tmp_path / "copied.json")
    bench, network, copy = collect([run, detector(tmp_path / "b"), copied])
    assert (bench.kind, network.kind, copy.kind) == ("bench", "training", "bench")
    assert len(network.examples) == 1
    assert copy.images_per_s == bench.images_per_s
    (tmp_path / "a" / run.name / "bench.json").write_text('{"rounds": [], "rows": 5}')
    (damaged,) = collect([run])
    assert damaged.kind == "training"
    assert "left out: " in damaged.notes[0]
