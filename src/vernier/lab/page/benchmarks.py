"""Benchmarks on the page: run directories with a bench.json, or copies of that file; their cards, and their section.

The section has throughput by batch and precision, latency, scaling, phases of a step, and the
table and notes of the terminal (`lab.bench.table`).
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from markupsafe import Markup

from vernier.frozen import frozen
from vernier.lab.bench.table import (
    LABEL_COLUMNS,
    UNKNOWN_RATE_FACTOR,
    is_unknown,
    result_notes,
    varying_labels,
    whole_table,
)
from vernier.lab.logs.model import Tree
from vernier.lab.logs.own import what_an_old_benchmark_ran
from vernier.lab.logs.reading import is_bench_result
from vernier.lab.records.bench import (
    BenchResult,
    BenchRow,
    StepRow,
    read_bench,
)
from vernier.quantities import measured_duration
from vernier.records.statistics import Estimate
from vernier.report.page.figures import PHASE_COLOURS, Content, Figure, Row, Section, stacks
from vernier.report.page.html import Cell, Shown, card, tag, tile
from vernier.report.page.identity import parts_of_record
from vernier.report.page.numbers import measured
from vernier.report.page.runs import read_or_note
from vernier.report.page.subjects import Facts, Kind, Subject
from vernier.report.page.training import interval
from vernier.store import RunDir

from .drawing import draw
from .profiles import Profiled, read_profiled

UNKNOWN = f"no whisker: the interval reaches {UNKNOWN_RATE_FACTOR} times the rate, which is not known"
_PLAIN_LABELS = ("precision", "mode", "scenario")
"""Labels whose values need no name in front."""


@frozen
class Benchmark(Profiled):
    """A benchmark, from its run directory or from its bench.json alone."""

    kind: str = "bench"
    label = "benchmark"
    bench: BenchResult

    @property
    def rates(self) -> list[StepRow]:
        """The measured configurations that have a rate. Processes without gradient all-reduce do not train one
        model: their rate is a reference, not a result."""
        return [r for r in self.bench.measured if r.exchange is None]

    @property
    def images_per_s(self) -> tuple[float, float | None, float | None] | None:
        """Of the fastest configuration."""
        best = max((r.images_per_s_total for r in self.rates), key=lambda rate: rate.value, default=None)
        return (best.value, best.low, best.high) if best else None

    def facts(self) -> Facts:
        total = (self.bench.spent_s or {}).get("total")
        return [*super().facts(), ("took", measured_duration(total) if total else "")]

    def tiles(self) -> list[Markup]:
        rows = self.bench.rows
        failed = len(rows) - len(self.bench.measured)
        configurations = tile(
            "configurations", str(len(rows)), "", f"{failed} not measured" if failed else "all measured"
        )
        return [*_rate_tiles(self.rates), *_latency_tiles(self.bench), configurations]

    def noise(self) -> list[str]:
        """One line for all disturbed configurations."""
        noisy = [r for r in self.bench.measured if r.noise]
        if not noisy:
            return super().noise()
        worst = max(
            noisy, key=lambda r: len(r.noise)
        )  # one example here; the benchmarks section lists every configuration
        count = len(self.bench.rows)
        configurations = (
            ""
            if count == 1
            else f"{len(noisy)} of {count} configurations were disturbed, such as {worst.configuration}: "
        )
        return [*super().noise(), f"noisy: {configurations}{'; '.join(worst.noise)}"]


def _rate_tiles(rows: list[StepRow]) -> list[Markup]:
    if not rows:
        return []
    best = max(rows, key=lambda r: r.images_per_s_total.value)
    rate = best.images_per_s_total
    figure, between = measured(rate.value, rate.low, rate.high)
    remark = interval(between, rate.basis)
    if is_unknown(rate):  # the ends of so wide an interval would be read as if they were measured
        remark = f"not known: the interval reaches {UNKNOWN_RATE_FACTOR} times that"
    return [
        tile("throughput" if len(rows) == 1 else f"fastest, {_spoken(best.configuration)}", figure, "img/s", remark)
    ]


def _latency_tiles(bench: BenchResult) -> list[Markup]:
    # Only configurations that measured single queries have latencies.
    latencies = [(r.latency_s.percentiles.get("p50"), r.configuration) for r in bench.measured if r.latency_s]
    medians = [(median, configuration) for median, configuration in latencies if median is not None]
    if not medians:
        return []
    median, configuration = min(medians, key=lambda m: m[0].value)
    ends = (None if end is None else 1000 * end for end in (median.low, median.high))
    figure, between = measured(1000 * median.value, *ends)
    name = "median latency" if len(medians) == 1 else f"lowest median latency, {_spoken(configuration)}"
    return [tile(name, figure, "ms", between)]


def _spoken(configuration: str) -> str:
    """`batch=4 precision=bf16` as people say it: batch 4, precision bf16."""
    return ", ".join(part.replace("=", " ") for part in configuration.split())


def _read(path: Path, brief: bool) -> list[Subject]:
    if path.is_file():
        bench = read_bench(path)
        return [Benchmark(**_fields({"name": path.stem, "path": path, "status": "finished"}, bench.config, bench))]
    run, notes = RunDir(path), list[str]()
    read = read_profiled(run, brief)
    # Without the samples of the rounds if read briefly, which a table of runs does not need.
    result = read_or_note(lambda: read_bench(path, samples=not brief), notes)
    fields = {**vars(read), "notes": (*notes, *read.notes)}
    if result is None:
        return [Profiled(**fields)]
    fields |= {"kind": "bench", "bench": result}
    return [Benchmark(**(fields if brief else _fields(fields, read.settings, result)))]


def _fields(fields: Tree, settings: Tree, bench: BenchResult) -> Tree:
    """The fields of a benchmark, with its result and what ran; older versions did not record that."""
    ran = tuple(row.ran for row in bench.measured if row.ran is not None)
    old = (
        [what_an_old_benchmark_ran(bench, row, fields.get("environment")) for row in bench.measured] if not ran else []
    )
    known = ran or tuple(r for r in old if r is not None)
    more = {"ran": known, "recorded": bool(ran), "parts": parts_of_record(known)}
    return {**fields, **more, "bench": bench, "settings": _with_configurations(settings, bench)}


def _with_configurations(settings: Tree, bench: BenchResult) -> Tree:
    """The settings of a benchmark with what its configurations had for batch, precision, mode and processes."""
    if bench.asked is None or not bench.rows or not settings:
        return settings
    batches = ", ".join(f"{batch:,}" for batch in sorted({row.batch for row in bench.rows}))
    # The recipe's global batch and evaluation batch are replaced: the configurations did not use them.
    machine: Tree = {
        name: ", ".join(dict.fromkeys(str(getattr(row, name)) for row in bench.rows))
        for name in ("precision", "mode", "procs")
    }
    recipe = {name: value for name, value in settings.get("recipe", {}).items() if name != "global_batch"}
    own = {name: value for name, value in settings.get("machine", {}).items() if name != "eval_batch"}
    # Strong scaling divides one batch over the devices.
    total = " in total" if bench.asked.scaling == "strong" else " per device"
    recipe["batch"] = batches + ("" if bench.asked.what == "infer" else total)
    return {**settings, "recipe": recipe, "machine": {**own, **machine}}


# ------------------------------------------------------------------------------------------------------------- section


def benchmarks(subjects: list[Benchmark]) -> Content | None:
    runs = [(s.name, (), _figures(s.bench), [_table(s.bench, number)]) for number, s in enumerate(subjects)]
    return stacks("Throughput is images over wall time, data loading included; whiskers are 95 % intervals.", runs)


def _figures(result: BenchResult) -> list[Figure | None]:
    rows = result.measured
    # Only scaling benchmarks have an efficiency. `_scaling` takes the first row as its base: the fewest processes, with
    # gradient all-reduce.
    scaling = sorted(
        (r for r in rows if r.efficiency is not None), key=lambda r: (r.procs, r.threads or 0, bool(r.exchange))
    )
    return [
        _throughput([r for r in rows if r.efficiency is None]),
        _scaling(scaling),
        _percentiles(result),
        _phases(rows),
    ]


def _label(row: BenchRow, rows: Sequence[BenchRow], *, without: Sequence[str] = ()) -> str:
    """The labels of a configuration in which the configurations differ, as one text."""
    names = [name for name in varying_labels(rows) if name not in without]
    known = [(name, value) for name in names if (value := getattr(row, name)) is not None]
    return ", ".join(f"{value}" if name in _PLAIN_LABELS else f"{name} {value}" for name, value in known)


def _whisker(rate: Estimate) -> tuple[float | None, float | None]:
    """The ends of an interval; none where it is so wide that the rate is not known, which would dwarf all others."""
    return (None, None) if is_unknown(rate) else (rate.low, rate.high)


def _throughput(rows: list[StepRow]) -> Figure:
    curve = len({r.batch for r in rows}) > 2
    data = [
        [
            r.batch if curve else f"batch {r.batch}",
            _label(r, rows, without=("batch",)) or r.precision,
            r.images_per_s_total.value,
            *_whisker(r.images_per_s_total),
            r.rounds,
        ]
        for r in sorted(rows, key=lambda r: (r.precision, r.batch))
    ]
    unknown = UNKNOWN if any(is_unknown(r.images_per_s_total) for r in rows) else ""
    return replace(draw("bench-curve" if curve else "bench-throughput", data), caption=unknown)


def _scaling(sized: list[StepRow]) -> Figure | None:
    """Rates over the number of processes, beside the ideal; `sized` begins with the fewest processes."""
    # A configuration with other threads per process has another ideal, so it is not on this chart.
    rows = [r for r in sized if r.threads == sized[0].threads]
    if len({r.procs for r in rows}) < 2:
        return None
    base = rows[0]
    rate = base.images_per_s_total.value / base.procs  # ideal: every process as fast as in the smallest configuration
    data: list[Row] = []
    for row in sorted(rows, key=lambda r: bool(r.exchange)):
        total = row.images_per_s_total
        which = "without exchange" if row.exchange else "measured"
        data.append([row.procs, which, total.value, *_whisker(total)])
    data += [[r.procs, "ideal", rate * r.procs, None, None] for r in rows if not r.exchange]
    return draw("scaling", data, {"scaling": str(base.scaling).capitalize()})


def _percentiles(result: BenchResult) -> Figure:
    """Latency percentiles of every configuration, with intervals."""
    rows = [r for r in result.measured if r.latency_s]
    data: list[Row] = [
        [name, _label(r, rows) or r.configuration, *(None if v is None else 1000 * v for v in (e.value, e.low, e.high))]
        for r in rows
        if r.latency_s
        for name, e in r.latency_s.percentiles.items()
    ]
    return draw("percentiles", data, by="configuration" if len(rows) > 1 else None)


def _phases(rows: Sequence[StepRow]) -> Figure:
    split = [(r, r.phases.seconds) for r in rows if r.phases]
    labels = [r for r, _ in split]
    data = [[_label(r, labels) or r.configuration, name, 1000 * s] for r, times in split for name, s in times.items()]
    return draw("phases", data, part_colours=PHASE_COLOURS)


# ---------------------------------------------------------------------------------------------------------------- table


def _table(result: BenchResult, number: int) -> Markup | None:
    """The table of the terminal, sorted by its numbers, with its notes below."""
    if not (rows := whole_table(result.rows)):
        return None
    columns = list(dict.fromkeys(name for row in rows for name in row))
    # The rate first after the labels: a phone shows little more than the first columns.
    columns.sort(key=lambda name: (name not in LABEL_COLUMNS, name != "img/s total"))
    notes = tag("ul", *(tag("li", line) for line in result_notes(result)), cls="notes")
    cells = [[_cell(row.get(name, "")) for name in columns] for row in rows]
    return card(f"bench-{number}", columns, cells, "All configurations", notes)


def _cell(text: str) -> Cell:
    number = re.match(r"[\d,]+(\.\d+)?", text)
    return Shown(float(number[0].replace(",", "")), text) if number else text or None


KIND = Kind(
    recognizes=lambda path, tree: (RunDir.is_run(path) and RunDir(path).is_bench) or is_bench_result(tree),
    read=_read,
    order=20,
)
SECTION = Section(title="Benchmarks", order=60, of=Benchmark, build=benchmarks)
