import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lab.bench.sample_rounds import rounds, step_result
from vernier.lab.bench.rows import add_precision_speedup, add_scaling, compare_rounds, pool_rounds
from vernier.lab.bench.table import markdown, notes, tables
from vernier.lab.records.bench import (
    Arithmetic,
    BenchResult,
    BenchRow,
    ConfigurationLabels,
    FailedRow,
    Failure,
    Round,
    StepResult,
    StepRow,
    read_bench,
)
from vernier.records.codec import encode
from vernier.records.environment import CpuInfo, Environment
from vernier.records.profile import PhaseTimes

VARYING = 1 + 0.001 * np.random.default_rng(1).standard_normal(400)
"""Step times of one process that vary by 0.1 %."""
TIMES = np.array([[1.0] * 40, [1.001] * 40, [0.999] * 40])
"""Step times of three processes that differ by 0.1 %."""


def pool(name: str, labels: ConfigurationLabels, of: list[Round]) -> StepRow:
    row = pool_rounds(name, labels, of)
    assert isinstance(row, StepRow)
    return row


def scaled(rows: list[StepRow], of: list[Round], *, strong: bool = False) -> list[StepRow]:
    return [r for r in add_scaling(rows, of, "strong" if strong else "weak") if isinstance(r, StepRow)]


def test_several_processes_are_the_unit_of_the_interval() -> None:
    """Within each process nothing varies; between them 10 % does, and the interval shows it."""
    row = pool("a", ConfigurationLabels(batch=10), rounds("a", [1.0] * 40, [1.1] * 40, [0.9] * 40))
    rate = row.images_per_s_total
    assert rate.value == pytest.approx(10.0)
    assert rate.low is not None
    assert rate.high is not None
    assert rate.high / rate.low > 1.2
    assert rate.basis == "3 processes"
    single = pool("a", ConfigurationLabels(batch=10), rounds("a", [1.0, 1.2] * 20))
    assert "one process" in single.images_per_s_total.basis


def test_the_compute_only_rate_is_never_below_the_whole() -> None:
    row = pool("a", ConfigurationLabels(batch=10), rounds("a", [1.0] * 40, [4.0] * 40, wait=0.2))
    assert row.compute_only_images_per_s_total == pytest.approx(row.images_per_s_total.value / 0.8)
    assert row.verdict == "loader-bound"
    assert row.step_s.n == 80


def test_per_device_and_total_are_both_named_and_agree() -> None:
    """The rate of several devices is images over time once: not summed over ranks, not averaged."""
    row = pool("a", ConfigurationLabels(batch=5, procs=4), rounds("a", [1.0] * 40, images=20, devices=4))
    assert row.images_per_s_total.value == pytest.approx(20)
    assert row.images_per_s_per_device.value == pytest.approx(5)
    (shown,) = tables([row])[0]
    assert {"img/s total", "per device"} <= set(shown)


def test_arithmetic_and_phases_are_those_of_all_processes() -> None:
    results = []
    for step_s, forward in ((1.0, 0.2), (3.0, 0.4)):
        result = step_result([step_s] * 40)
        phases = PhaseTimes(steps=10, seconds={"data": 0.1, "forward": forward})
        flops = Arithmetic(gflop_per_image=0.5, gflop_per_s_per_device=0)
        results.append(replace(result, figures=replace(result.figures, phases=phases), flops=flops))
    row = pool(
        "a",
        ConfigurationLabels(batch=10),
        [Round(configuration="a", round=i, order=i, result=r) for i, r in enumerate(results)],
    )
    assert row.images_per_s_total.value == pytest.approx(5.0)
    assert row.flops is not None
    assert row.flops.gflop_per_s_per_device == pytest.approx(2.5)
    assert row.phases is not None
    assert row.phases.seconds == {"data": pytest.approx(0.1), "forward": pytest.approx(0.3)}
    assert row.phases.steps == 20


def test_a_configuration_that_did_not_fit_is_a_row() -> None:
    failure = Failure(status="out-of-memory", why="too big")
    every = [*rounds("batch=1", [1.0] * 40), Round(configuration="batch=2", round=0, order=1, result=failure)]
    rows = [pool_rounds(f"batch={b}", ConfigurationLabels(batch=b), every) for b in (1, 2)]
    assert isinstance(rows[1], FailedRow)
    assert rows[1].status == "out-of-memory"
    assert "out-of-memory" in markdown("t", BenchResult(rows=tuple(rows)))
    assert any("too big" in line for line in notes(rows))


def test_weak_scaling_is_against_the_fewest_processes() -> None:
    every = [r for n, t in ((1, 1.0), (4, 1.25)) for r in rounds(f"p{n}", VARYING * t, images=10 * n, devices=n)]
    rows = scaled([pool(f"p{n}", ConfigurationLabels(batch=10, procs=n), every) for n in (1, 4)], every)
    assert [r.efficiency for r in rows] == pytest.approx([1.0, 0.8])
    assert rows[1].speedup == pytest.approx(3.2)
    assert rows[1].efficiency_95 is not None
    assert rows[1].efficiency_95[0] <= 0.8 <= rows[1].efficiency_95[1]
    assert "80.0 % [80, 80]" in markdown("t", BenchResult(rows=tuple(rows)))


def test_other_precisions_are_compared_with_fp32_of_the_same_batch() -> None:
    configurations = {
        "a": (ConfigurationLabels(batch=10, precision="fp32"), 1.0),
        "b": (ConfigurationLabels(batch=10, precision="fp16"), 0.5),
        "c": (ConfigurationLabels(batch=20, precision="fp16"), 0.5),
    }
    every = [r for name, (_, t) in configurations.items() for r in rounds(name, *np.roll(TIMES, ord(name), 0) * t)]
    rows = add_precision_speedup([pool(name, labels, every) for name, (labels, _) in configurations.items()], every)
    assert [r.times_fp32 for r in rows if isinstance(r, StepRow)] == [1.0, pytest.approx(2.0), None]
    assert "2.00 [1.99, 2.01]" in markdown("t", BenchResult(rows=tuple(rows)))
    alone = add_precision_speedup([pool("a", configurations["a"][0], every)], every)
    assert [r.times_fp32 for r in alone if isinstance(r, StepRow)] == [None]


def test_scaling_counts_threads_and_compares_with_processes_that_exchange_nothing() -> None:
    layouts = {
        "2": (ConfigurationLabels(batch=10, procs=2, threads=1), 1.25, 20),
        "2a": (ConfigurationLabels(batch=10, procs=2, threads=1, exchange="none"), 1.0, 20),
        "1": (ConfigurationLabels(batch=10, procs=1, threads=1), 0.8, 10),
        "1t": (ConfigurationLabels(batch=10, procs=1, threads=2), 0.5, 10),
    }
    every = [
        r
        for name, (_, t, images) in layouts.items()
        for r in rounds(name, *np.roll(TIMES, len(name), 0) * t, images=images)
    ]
    rows = scaled([pool(name, labels, every) for name, (labels, _, _) in layouts.items()], every)
    two, apart, one, threads = rows
    assert [r.speedup for r in rows] == pytest.approx([16 / 12.5, 20 / 12.5, 1.0, 20 / 12.5])
    assert [r.efficiency for r in rows] == pytest.approx([0.64, 0.8, 1.0, 0.8])
    assert two.of_apart == pytest.approx(0.8)
    assert all(r.of_apart is None for r in (apart, one, threads))
    shown = tables(rows)[0]
    assert (shown[0]["of that without exchange"], shown[2]["of that without exchange"]) == ("80.0 % [80, 80]", "")


def test_an_efficiency_without_interval_is_marked() -> None:
    every = [r for n in (1, 2) for r in rounds(f"p{n}", [1.0], devices=n)]
    rows = scaled([pool(f"p{n}", ConfigurationLabels(batch=10, procs=n), every) for n in (1, 2)], every, strong=True)
    assert rows[1].efficiency_95 is None
    assert "[no interval]" in markdown("t", BenchResult(rows=tuple(rows)))


def test_processes_that_share_cores_are_noted() -> None:
    def on(cores: int, threads: int, result: StepResult) -> StepResult:
        cpu = CpuInfo(cores_logical=cores)
        return replace(result, environment=Environment(device_kind="cpu", cpu=cpu, compute_threads=threads))

    every = [
        Round(configuration=f"procs={p}", round=0, order=0, result=on(2, t, step_result([1.0] * 40, devices=p)))
        for p, t in ((1, 2), (2, 1), (4, 1))
    ]
    rows = scaled(
        [pool(r.configuration, ConfigurationLabels(batch=10, procs=int(r.configuration[-1])), every) for r in every],
        every,
    )
    lines = notes(rows)
    assert "procs=4: 4 processes share 2 cores: as many devices would not" in lines
    assert any(line.startswith("procs=2: 1 core per process, where procs 1 has 2") for line in lines)
    assert not any(line.startswith("procs=1: 1") for line in lines)


def test_sides_are_compared_round_by_round() -> None:
    """The machine slows down by half over the rounds; the ratio within rounds stays."""
    own = rounds("own", *([0.5 * (1 + i / 4) * (1 + 0.001 * (i % 2))] * 40 for i in range(4)))
    other = rounds("other", *([1.0 * (1 + i / 4)] * 40 for i in range(4)))
    comparison = compare_rounds([*own, *other], "own", "other")
    assert comparison.ratio == pytest.approx(2.0, rel=0.001)
    assert comparison.verdict == "faster"
    assert comparison.detectable is not None
    assert comparison.detectable < 0.02
    assert "4 rounds" in comparison.basis
    missing = [r for r in own if r.round != 2]
    paired = compare_rounds([*missing, *other], "own", "other")
    assert (paired.runs, paired.verdict) == ((3, 3), "faster")
    assert paired.basis == "differences within 3 rounds; 1 without a partner in its round left out"


@pytest.mark.parametrize("name", ["bench-train", "bench-infer", "bench-scaling"])
def test_rounds_of_version_0_1_are_pooled_to_the_same_rows_and_tables(name: str) -> None:
    folder = Path(__file__).resolve().parents[2] / "golden" / "0.1" / name
    golden = read_bench(folder)
    assert golden.asked is not None
    rows = [pool_rounds(row.configuration, _labels(row), golden.rounds) for row in golden.rows]
    if golden.asked.scaling:
        rows = add_scaling(rows, golden.rounds, golden.asked.scaling)
    assert len(rows) == len(golden.rows)
    for row, golden_row in zip(rows, golden.rows, strict=True):
        assert _without_intervals(encode(row)) == _without_intervals(encode(golden_row))
    texts = ((folder / "bench.md").read_text(), markdown("t", BenchResult(rows=tuple(rows))))
    old, new = ([INTERVAL.sub("", line) for line in text.splitlines() if line.startswith("|")] for text in texts)
    old = old[: len(new)]  # the last table of the old one was that of the server scenario
    old = [MATMUL.sub("", line) for line in old]
    # Percentiles beyond which there is no step are no longer shown.
    old, new = ([PERCENTILES.sub(" percentiles ", line) for line in lines] for lines in (old, new))
    assert [NUMBER.sub("#", line) for line in new] == [NUMBER.sub("#", line) for line in old]
    assert _numbers(new) == pytest.approx(_numbers(old), rel=0.06)  # rates have fewer digits now


INTERVAL = re.compile(r" (\[[^\]]*\]|\(processes[^)]*\))")
MATMUL = re.compile(r" \(of matmul\)| \(\d+ %\)")
PERCENTILES = re.compile(r" [-\d.,]+(/[-\d.,]+){3} ")
NUMBER = re.compile(r"\d[\d,]*\d(?:\.\d+)?|\d(?:\.\d+)?")


def _numbers(lines: list[str]) -> list[float]:
    return [float(number.replace(",", "")) for line in lines for number in NUMBER.findall(line)]


def _without_intervals(tree: Any) -> Any:
    """The figures themselves: how intervals are computed has changed since (`method`); rates of processes are new."""
    if not isinstance(tree, dict):
        return tree
    of_intervals = {"low", "high", "basis", "method", "needs", "efficiency_95", "of_apart_95", "process_images_per_s"}
    return {key: _without_intervals(value) for key, value in tree.items() if key not in of_intervals}


def _labels(row: BenchRow) -> ConfigurationLabels:
    return ConfigurationLabels(**{f.name: getattr(row, f.name) for f in fields(ConfigurationLabels)})
