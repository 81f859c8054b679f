"""Benchmarks on the page: run directories with a bench.json, or copies of that file; their cards, and their section.

The section has throughput by batch and precision, latency, scaling, phases of a step, and all arms as a table. The
figures are those of bench.json; the tables of the terminal are in `lab.bench.table`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from vernier.frozen import frozen
from vernier.lab.bench.table import ARM_COLUMNS, UNKNOWN_RATE_FACTOR, is_unknown, shared_labels, varying_labels
from vernier.measure.published import speed_lines
from vernier.records.bench import BenchResult, BenchRow, FailedRow, Samples, ServingResult, StepResult, StepRow
from vernier.records.statistics import Estimate
from vernier.report.logs.model import Tree
from vernier.report.logs.own import what_an_old_arm_ran
from vernier.report.logs.reading import is_bench_result
from vernier.report.page.figures import (
    PHASE_COLOURS,
    Bars,
    Content,
    Figure,
    Lines,
    Row,
    Section,
    Stack,
    stacks,
)
from vernier.report.page.html import Cell, Column, Shown, div, table, tag, tile
from vernier.report.page.identity import parts_of_record
from vernier.report.page.numbers import measured, seconds
from vernier.report.page.runs import read_or_note
from vernier.report.page.subjects import Facts, Kind, Subject
from vernier.report.page.training import interval
from vernier.store import RunDir, read_bench
from vernier.wording import plural

from .profiles import Profiled, read_profiled

CURVE_POINTS = 200  # of the latency curve of an arm; the percentiles use every query
UNKNOWN = f"no whisker: the interval reaches {UNKNOWN_RATE_FACTOR} times the rate, which is not known"
_PLAIN_LABELS = ("precision", "mode", "scenario", "side")
"""Labels whose values need no name in front."""


@frozen
class Benchmark(Profiled):
    """A benchmark, from its run directory or from its bench.json alone."""

    kind: str = "bench"
    label = "benchmark"
    bench: BenchResult

    @property
    def rates(self) -> list[StepRow]:
        """The measured arms that have a rate. Processes without gradient all-reduce do not train one model: their rate
        is a reference, not a result."""
        return [r for r in self.bench.measured if isinstance(r, StepRow) and r.exchange is None]

    @property
    def images_per_s(self) -> tuple[float, float | None, float | None] | None:
        """Of the fastest arm."""
        best = max((r.images_per_s_total for r in self.rates), key=lambda rate: rate.value, default=None)
        return (best.value, best.low, best.high) if best else None

    def facts(self) -> Facts:
        total = (self.bench.spent_s or {}).get("total")
        return [*super().facts(), ("took", seconds(total) if total else "")]

    def tiles(self) -> list[Markup]:
        rows = self.bench.rows
        failed = len(rows) - len(self.bench.measured)
        arms = tile("arms", str(len(rows)), "", f"{failed} not measured" if failed else "all measured")
        return [*_rate_tiles(self.rates), *_latency_tiles(self.bench), arms]

    def noise(self) -> list[str]:
        """One line for all disturbed arms."""
        noisy = [r for r in self.bench.measured if r.noise]
        if not noisy:
            return super().noise()
        worst = max(noisy, key=lambda r: len(r.noise))  # one example here; the benchmarks section lists every arm
        count = len(self.bench.rows)
        arms = "" if count == 1 else f"{len(noisy)} of {count} arms were disturbed, such as {worst.arm}: "
        return [*super().noise(), f"noisy: {arms}{'; '.join(worst.noise)}"]


def _rate_tiles(rows: list[StepRow]) -> list[Markup]:
    if not rows:
        return []
    best = max(rows, key=lambda r: r.images_per_s_total.value)
    rate = best.images_per_s_total
    figure, between = measured(rate.value, rate.low, rate.high)
    remark = interval(between, rate.basis)
    if is_unknown(rate):  # the ends of so wide an interval would be read as if they were measured
        remark = f"not known: the interval reaches {UNKNOWN_RATE_FACTOR} times that"
    return [tile("throughput" if len(rows) == 1 else f"fastest, {_spoken(best.arm)}", figure, "img/s", remark)]


def _latency_tiles(bench: BenchResult) -> list[Markup]:
    # Only arms that measured single queries have latencies.
    latencies = [(r.latency_s.percentiles.get("p50"), r.arm) for r in bench.measured if r.latency_s]
    medians = [(median, arm) for median, arm in latencies if median is not None]
    if not medians:
        return []
    median, arm = min(medians, key=lambda m: m[0].value)
    ends = (None if end is None else 1000 * end for end in (median.low, median.high))
    figure, between = measured(1000 * median.value, *ends)
    name = "median latency" if len(medians) == 1 else f"lowest median latency, {_spoken(arm)}"
    return [tile(name, figure, "ms", between)]


def _spoken(arm: str) -> str:
    """`batch=4 scenario=server` as people say it: batch 4, scenario server."""
    return ", ".join(part.replace("=", " ") for part in arm.split())


def _read(path: Path, brief: bool) -> list[Subject]:
    if path.is_file():
        bench = read_bench(path)
        return [Benchmark(**_fields({"name": path.stem, "path": path, "status": "finished"}, bench.config, bench))]
    run, notes = RunDir(path), list[str]()
    read = read_profiled(run, brief)
    # Without the samples of the rounds if read briefly, which a table of runs does not need.
    result = read_or_note(lambda: run.read_bench(samples=not brief), notes)
    fields = {**vars(read), "notes": (*notes, *read.notes)}
    if result is None:
        return [Profiled(**fields)]
    fields |= {"kind": "bench", "bench": result}
    return [Benchmark(**(fields if brief else _fields(fields, read.settings, result)))]


def _fields(fields: Tree, settings: Tree, bench: BenchResult) -> Tree:
    """The fields of a benchmark, with its result and what ran; older versions did not record that."""
    ran = tuple(row.ran for row in bench.measured if row.ran is not None)
    old = [what_an_old_arm_ran(bench, row, fields.get("environment")) for row in bench.measured] if not ran else []
    known = ran or tuple(r for r in old if r is not None)
    more = {"ran": known, "recorded": bool(ran), "parts": parts_of_record(known)}
    return {**fields, **more, "bench": bench, "settings": _with_arms(settings, bench)}


def _with_arms(settings: Tree, bench: BenchResult) -> Tree:
    """The settings of a benchmark with what its arms had for batch, precision, mode and processes."""
    if bench.asked is None or not bench.rows or not settings:
        return settings
    batches = ", ".join(f"{batch:,}" for batch in sorted({row.batch for row in bench.rows}))
    # The recipe's global batch and evaluation batch are replaced: the arms did not use them.
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
    runs = [
        (s.name, (), _figures(s.bench), [_table(s.bench.rows, number), _comparisons(s.bench)])
        for number, s in enumerate(subjects)
    ]
    return stacks("Throughput is images over wall time, data loading included; whiskers are 95 % intervals.", runs)


def _figures(result: BenchResult) -> list[Figure | None]:
    rows = [r for r in result.rows if isinstance(r, StepRow)]
    # Only scaling benchmarks have an efficiency. `_scaling` takes the first row as its base: the fewest processes, with
    # gradient all-reduce.
    scaling = sorted(
        (r for r in rows if r.efficiency is not None), key=lambda r: (r.procs, r.threads or 0, bool(r.exchange))
    )
    return [
        _throughput([r for r in rows if r.efficiency is None]),
        _scaling(scaling),
        _efficiency(scaling) if len(scaling) > 1 else None,
        _percentiles(result),
        _latency(result),
        _phases(rows),
    ]


def _label(row: BenchRow, rows: Sequence[BenchRow], *, without: Sequence[str] = ()) -> str:
    """The labels of an arm in which the arms differ, as one text."""
    return _labels(row, [name for name in varying_labels(rows) if name not in without])


def _labels(row: BenchRow, names: Sequence[str]) -> str:
    known = [(name, value) for name in names if (value := getattr(row, name)) is not None]
    return ", ".join(f"{value}" if name in _PLAIN_LABELS else f"{name} {value}" for name, value in known)


def _whisker(rate: Estimate) -> tuple[float | None, float | None]:
    """The ends of an interval; none where it is so wide that the rate is not known, which would dwarf all others."""
    return (None, None) if is_unknown(rate) else (rate.low, rate.high)


def _throughput(rows: list[StepRow]) -> Figure:
    curve = len({r.batch for r in rows}) > 2  # a line through two points would suggest a trend
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
    chart: Lines | Bars = Bars(
        "batch", "img/s", by="arm", low="low", high="high", x_title="images per second, all devices"
    )
    if curve:
        chart = Lines("batch", "img/s", by="arm", low="low", high="high", marks=True, zero=True, log_x=True)
    return Figure(
        "bench-throughput",
        "Throughput by batch",
        chart,
        ["batch", "arm", "img/s", "low", "high", "processes"],
        data,
        caption=UNKNOWN if any(is_unknown(r.images_per_s_total) for r in rows) else "",
    )


def _scaling(sized: list[StepRow]) -> Figure | None:
    """Rates over the number of processes, beside the ideal; `sized` begins with the fewest processes."""
    # An arm with other threads per process has another ideal, so it is not on this chart.
    rows = [r for r in sized if r.threads == sized[0].threads]
    if len({r.procs for r in rows}) < 2:
        return None
    base = rows[0]
    rate = base.images_per_s_total.value / base.procs  # ideal: every process as fast as in the smallest arm
    data: list[Row] = []
    for row in sorted(rows, key=lambda r: bool(r.exchange)):
        total = row.images_per_s_total
        which = "without exchange" if row.exchange else "measured"
        data.append([row.procs, which, total.value, *_whisker(total)])
    data += [[r.procs, "ideal", rate * r.procs, None, None] for r in rows if not r.exchange]
    return Figure(
        "scaling",
        f"{str(base.scaling).capitalize()} scaling",
        Lines("processes", "img/s", by="which", dash="which", low="low", high="high", marks=True, zero=True),
        ["processes", "which", "img/s", "low", "high"],
        data,
    )


def _describe_size(row: StepRow) -> str:
    threads = f" x {plural(row.threads, 'thread')}" if row.threads else ""
    return f"{plural(row.procs, 'process')}{threads}{', no exchange' if row.exchange else ''}"


def _efficiency(sized: list[StepRow]) -> Figure:
    shares = [100 * (r.efficiency or 0.0) for r in sized]
    return Figure(
        "efficiency",
        "Efficiency against ideal",
        # The axis ends at 100 % unless an efficiency exceeds it.
        Bars("size", "efficiency %", max=max(100.0, *shares), unit=" %", x_title="% of ideal"),
        ["size", "efficiency %", "speed-up"],
        [[_describe_size(r), share, r.speedup] for r, share in zip(sized, shares, strict=True)],
    )


def _percentiles(result: BenchResult) -> Figure:
    """Latency percentiles of every arm, with intervals; of batches where no single queries were measured."""
    rows = [r for r in result.measured if r.latency_s]
    data: list[Row] = [
        [name, _label(r, rows) or r.arm, *(None if v is None else 1000 * v for v in (e.value, e.low, e.high))]
        for r in rows
        if r.latency_s
        for name, e in r.latency_s.percentiles.items()
    ]
    title, what = "Latency percentiles", "queries"
    # The time of a training step is no latency.
    if not data and result.asked is not None and result.asked.what == "infer":
        title, what = "Time of a batch, percentiles", "batches"
        data = _batch_percentiles([r for r in result.measured if isinstance(r, StepRow)])
    arms = len({row[1] for row in data}) > 1
    return Figure(
        "percentiles",
        title,
        Bars("percentile", "ms", by="arm" if arms else None, low="low", high="high", unit=" ms"),
        ["percentile", "arm", "ms", "low", "high"],
        data,
        caption=f"p99: 99 % of the {what} took no longer",
    )


def _batch_percentiles(rows: list[StepRow]) -> list[Row]:
    times = [(r, {"p50": r.step_s.median, "p95": r.step_s.p95, "p99": r.step_s.p99}) for r in rows if r.step_s]
    return [
        [name, _label(r, rows) or r.arm, 1000 * seconds, None, None]
        for r, percentiles in times
        for name, seconds in percentiles.items()
        if seconds is not None
    ]


def _latency(result: BenchResult) -> Figure:
    """The share of queries answered within a time; every query counts, there are no bins."""
    rows = result.measured
    labels = {r.arm: _label(r, rows) or r.arm for r in rows if r.latency_s}
    latency_s: dict[str, list[float]] = {arm: [] for arm in labels}  # in the order, and colours, of the percentiles
    for one in result.rounds:
        if one.arm in labels and isinstance(one.result, ServingResult | StepResult):
            raw = one.result.raw
            # Step times of single queries, or a server's latencies.
            latency_s[one.arm].extend(raw.step_s if isinstance(raw, Samples) else raw.latency_s)
    data: list[Row] = []
    for arm, values in latency_s.items():
        count = len(values)
        # The slowest query is always among the points: the tail is what the curve is read for.
        points = {*range(0, count - 1, max(1, count // CURVE_POINTS)), count - 1}
        ordered = sorted(values)
        # `if values`: without any, the point is -1.
        data += [[labels[arm], 1000 * ordered[i], 100 * (i + 1) / count] for i in sorted(points) if values]
    return Figure(
        "latency",
        "Latency",
        Lines("ms", "% answered", by="arm", zero=True, unit=" %", x_title="within ms"),
        ["arm", "ms", "% answered"],
        data,
        caption="share of all queries that were answered within a time",
    )


def _phases(rows: list[StepRow]) -> Figure:
    split = [r for r in rows if r.phases]
    data: list[Row] = [
        [_label(r, split) or r.arm, phase, 1000 * seconds]
        for r in split
        if r.phases
        for phase, seconds in r.phases.seconds.items()
    ]
    return Figure(
        "phases",
        "Phases of a step",
        Stack("arm", "phase", "ms per step", "ms", PHASE_COLOURS),
        ["arm", "phase", "ms per step"],
        data,
        caption="measured in further steps, synchronised at every phase",
    )


# ---------------------------------------------------------------------------------------------------------------- table


def _table(rows: Sequence[BenchRow], number: int) -> Markup:
    shared = shared_labels(rows) if len(rows) > 1 else {}
    hidden = {"status"} if not any(isinstance(r, FailedRow) for r in rows) else set()
    if all(not isinstance(r, StepRow) or r.devices == 1 for r in rows):  # the rate per device would repeat the total
        hidden.add("per device")
    columns: list[Column] = [Column("arm", wrap=True)]
    values: list[list[Cell]] = [[_arm(r, shared) for r in rows]]
    for column, value_of in _COLUMNS:
        cells = [value_of(r) for r in rows]
        if column.name not in hidden and any(cell is not None for cell in cells):
            columns.append(column)
            values.append(cells)
    notes = [f"All arms: {', '.join(f'{k} {value}' for k, value in shared.items())}."] if shared else []
    notes += [f"{r.arm}: {r.why}" for r in rows if isinstance(r, FailedRow)]
    notes += [f"{r.arm}: {line}" for r in rows if isinstance(r, StepRow) for line in speed_lines(r.published_speeds)]
    notes += [f"{r.arm}: noisy, {'; '.join(r.noise)}" for r in rows if not isinstance(r, FailedRow) and r.noise]
    steps = [r for r in rows if isinstance(r, StepRow)]
    # One note for all arms with the same basis, which most share.
    for basis in dict.fromkeys(r.images_per_s_total.basis for r in steps):
        arms = [_arm(r, shared) for r in steps if r.images_per_s_total.basis == basis]
        known = all(r.images_per_s_total.low is not None for r in steps if r.images_per_s_total.basis == basis)
        of = "all arms" if len(arms) == len(rows) else "; ".join(arms)
        notes.append(f"{'95' if known else 'No 95'} % interval of {of}: {basis}.")
    shown = table(f"bench-{number}", columns, list(zip(*values, strict=True)), "All arms")
    return div("card", shown, tag("ul", *(tag("li", n) for n in notes), cls="notes") if notes else None)


def _arm(row: BenchRow, shared: Mapping[str, object]) -> str:
    """All labels of an arm that not all arms share, in one column: so that the rate is next to it on a phone."""
    return _labels(row, [name for name in ARM_COLUMNS if name not in shared])


def _rate(row: BenchRow) -> Cell:
    """Images per second with its interval, in the digits that this supports."""
    if not isinstance(row, StepRow):
        return None
    rate = row.images_per_s_total
    value, between = measured(rate.value, rate.low, rate.high)
    interval = "not known" if is_unknown(rate) else between.removeprefix("95 %: ") or "no interval"
    return Shown(rate.value, f"{value} ({interval})")


def _value(path: str, factor: float | None = None) -> Callable[[BenchRow], Cell]:
    """A cell with the value at a path of attributes, times a factor; empty for arms that do not have it."""

    def cell(row: BenchRow) -> Cell:
        value: Any = row
        for name in path.split("."):
            # Rows are of three types with different fields; percentiles are a dictionary.
            value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        shown: Cell = value if value is None or factor is None else factor * value
        return shown

    return cell


def _memory_mib(row: BenchRow) -> Cell:
    return None if isinstance(row, FailedRow) or not row.peak_memory_bytes else row.peak_memory_bytes / 2**20


# The rate comes first, next to the arm: a phone shows little more than these two columns.
_COLUMNS: list[tuple[Column, Callable[[BenchRow], Cell]]] = [
    (Column("img/s (95 %)"), _rate),
    (Column("served/s"), _value("served_per_s")),
    (Column("status"), _value("status")),
    (Column("per device"), _value("images_per_s_per_device.value")),
    (Column("data wait", meter=True), _value("data_wait_share")),
    (Column("verdict"), _value("verdict")),
    (Column("step ms p50"), _value("step_s.median", 1000)),
    (Column("p95"), _value("step_s.p95", 1000)),
    (Column("p99"), _value("step_s.p99", 1000)),
    (Column("latency ms p50"), _value("latency_s.percentiles.p50.value", 1000)),
    (Column("latency ms p99"), _value("latency_s.percentiles.p99.value", 1000)),
    (Column("memory MiB", 0), _memory_mib),
    (Column("GFLOP/s", 1), _value("flops.gflop_per_s_per_device")),
    (Column("J/img", 3), _value("joules_per_image")),
    (Column("efficiency", meter=True), _value("efficiency")),
    (Column("speed-up", 2), _value("speedup")),
    (Column("of that without exchange", meter=True), _value("of_apart")),
]


def _comparisons(result: BenchResult) -> Markup | None:
    rows: list[list[Cell]] = [[c.arm, c.against, c.ratio, c.low, c.high, c.verdict, c.basis] for c in result.compared]
    arms = [Column(name, wrap=True) for name in ("arm", "against")]
    ratio = [Column(name, 4) for name in ("times as fast", "low", "high")]
    columns = [*arms, *ratio, Column("verdict"), Column("from", wrap=True)]
    return div("card", table("bench-compared", columns, rows, "Compared")) if rows else None


KIND = Kind(
    recognizes=lambda path, tree: (RunDir.is_run(path) and RunDir(path).is_bench) or is_bench_result(tree),
    read=_read,
    order=20,
)
SECTION = Section(title="Benchmarks", order=60, of=Benchmark, build=benchmarks)
