"""Benchmarks: throughput by batch and precision, latency, scaling, phases of a step, and all arms as a table.

The figures are those of bench.json; the tables of the terminal are in `measure.bench.table`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from vernier.measure.bench.table import ARM_COLUMNS, UNKNOWN_RATE_FACTOR, is_unknown, shared_labels, varying_labels
from vernier.measure.published.standing import speed_lines
from vernier.records.bench import BenchResult, BenchRow, FailedRow, Samples, ServingResult, StepResult, StepRow
from vernier.records.statistics import Estimate
from vernier.report.page.collect import Subject
from vernier.report.page.figures import (
    PHASE_COLOURS,
    Bars,
    Figure,
    Lines,
    Row,
    Section,
    Stack,
    section_by_run,
    with_data,
)
from vernier.report.page.html import Cell, Column, Shown, div, table, tag
from vernier.report.page.numbers import measured
from vernier.wording import plural

CURVE_POINTS = 200  # of the latency curve of an arm; the percentiles use every query
UNKNOWN = f"no whisker: the interval reaches {UNKNOWN_RATE_FACTOR} times the rate, which is not known"
_PLAIN_LABELS = ("precision", "mode", "scenario", "side")
"""Labels whose values need no name in front."""


def benchmarks(subjects: list[Subject]) -> Section | None:
    """The section; None where no subject is a benchmark."""
    results = [(s.name, s.bench) for s in subjects if s.bench]
    runs = [
        (name, _figures(result, number), [_table(result.rows, number), _comparisons(result)])
        for number, (name, result) in enumerate(results)
    ]
    lead = "Throughput is images over wall time, data loading included; whiskers are 95 % intervals."
    return section_by_run("benchmarks", "Benchmarks", lead, runs) if runs else None


def _figures(result: BenchResult, number: int) -> list[Figure]:
    rows = [r for r in result.rows if isinstance(r, StepRow)]
    # Only scaling benchmarks have an efficiency. `_scaling` takes the first row as its base: the fewest processes, with
    # gradient all-reduce.
    scaling = sorted(
        (r for r in rows if r.efficiency is not None), key=lambda r: (r.procs, r.threads or 0, bool(r.exchange))
    )
    return with_data(
        _throughput([r for r in rows if r.efficiency is None], number),
        _scaling(scaling, number),
        _efficiency(scaling, number) if len(scaling) > 1 else None,
        _percentiles(result, number),
        _latency(result, number),
        _phases(rows, number),
    )


def _label(row: BenchRow, rows: Sequence[BenchRow], *, without: Sequence[str] = ()) -> str:
    """The labels of an arm in which the arms differ, as one text."""
    names = [n for n in varying_labels(rows) if n not in without and getattr(row, n) is not None]
    return ", ".join(f"{getattr(row, n)}" if n in _PLAIN_LABELS else f"{n} {getattr(row, n)}" for n in names)


def _whisker(rate: Estimate) -> tuple[float | None, float | None]:
    """The ends of an interval; none where it is so wide that the rate is not known, which would dwarf all others."""
    return (None, None) if is_unknown(rate) else (rate.low, rate.high)


def _throughput(rows: list[StepRow], number: int) -> Figure:
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
        category="batch", value="img/s", by="arm", low="low", high="high", x_title="images per second, all devices"
    )
    if curve:
        chart = Lines(x="batch", y="img/s", by="arm", low="low", high="high", marks=True, zero=True, log_x=True)
    return Figure(
        name=f"bench-throughput-{number}",
        title="Throughput by batch",
        chart=chart,
        columns=["batch", "arm", "img/s", "low", "high", "processes"],
        rows=data,
        caption=UNKNOWN if any(is_unknown(r.images_per_s_total) for r in rows) else "",
    )


def _scaling(sized: list[StepRow], number: int) -> Figure | None:
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
        name=f"scaling-{number}",
        title=f"{str(base.scaling).capitalize()} scaling",
        chart=Lines(x="processes", y="img/s", by="which", dash="which", low="low", high="high", marks=True, zero=True),
        columns=["processes", "which", "img/s", "low", "high"],
        rows=data,
    )


def _describe_size(row: StepRow) -> str:
    threads = f" x {plural(row.threads, 'thread')}" if row.threads else ""
    return f"{plural(row.procs, 'process')}{threads}{', no exchange' if row.exchange else ''}"


def _efficiency(sized: list[StepRow], number: int) -> Figure:
    shares = [100 * (r.efficiency or 0.0) for r in sized]
    return Figure(
        name=f"efficiency-{number}",
        title="Efficiency against ideal",
        # The axis ends at 100 % unless an efficiency exceeds it.
        chart=Bars(category="size", value="efficiency %", max=max(100.0, *shares), unit=" %", x_title="% of ideal"),
        columns=["size", "efficiency %", "speed-up"],
        rows=[[_describe_size(r), share, r.speedup] for r, share in zip(sized, shares, strict=True)],
    )


def _percentiles(result: BenchResult, number: int) -> Figure:
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
        name=f"percentiles-{number}",
        title=title,
        chart=Bars(category="percentile", value="ms", by="arm" if arms else None, low="low", high="high", unit=" ms"),
        columns=["percentile", "arm", "ms", "low", "high"],
        rows=data,
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


def _latency(result: BenchResult, number: int) -> Figure:
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
        name=f"latency-{number}",
        title="Latency",
        chart=Lines(x="ms", y="% answered", by="arm", zero=True, unit=" %", x_title="within ms"),
        columns=["arm", "ms", "% answered"],
        rows=data,
        caption="share of all queries that were answered within a time",
    )


def _phases(rows: list[StepRow], number: int) -> Figure:
    split = [r for r in rows if r.phases]
    data: list[Row] = [
        [_label(r, split) or r.arm, phase, 1000 * seconds]
        for r in split
        if r.phases
        for phase, seconds in r.phases.seconds.items()
    ]
    return Figure(
        name=f"phases-{number}",
        title="Phases of a step",
        chart=Stack(category="arm", part="phase", value="ms per step", unit="ms", part_colours=PHASE_COLOURS),
        columns=["arm", "phase", "ms per step"],
        rows=data,
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
    names = [n for n in ARM_COLUMNS if n not in shared and getattr(row, n) is not None]
    return ", ".join(f"{getattr(row, n)}" if n in _PLAIN_LABELS else f"{n} {getattr(row, n)}" for n in names)


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
            value = getattr(value, name, None)  # rows are of three types with different fields
        shown: Cell = value if value is None or factor is None else factor * value
        return shown

    return cell


def _latency_ms(percentile: str) -> Callable[[BenchRow], Cell]:
    def cell(row: BenchRow) -> Cell:
        latency = None if isinstance(row, FailedRow) else row.latency_s
        estimate = latency.percentiles.get(percentile) if latency else None
        return 1000 * estimate.value if estimate else None

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
    (Column("latency ms p50"), _latency_ms("p50")),
    (Column("latency ms p99"), _latency_ms("p99")),
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
