"""A benchmark for people: rows as tables of short texts, notes beside them, and both as Markdown.

The rows themselves are computed in `rows`.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import fields
from itertools import chain

from vernier.lab.records.bench import (
    BenchResult,
    BenchRow,
    ConfigurationLabels,
    FailedRow,
    Latency,
    StepRow,
)
from vernier.lab.statistics.runs import runs_to_see
from vernier.measure.estimates import LEVEL, in_known_digits
from vernier.measure.published import speed_lines
from vernier.measure.student import t_limit
from vernier.quantities import duration
from vernier.records.statistics import Estimate, SampleSummary
from vernier.references import use

UNKNOWN_RATE_FACTOR = 10
"""An interval that reaches so many times the value, or down to one part in so many, means that it is not known."""
FEW_PROCESSES, WIDE = 4, 1.5
"""Fewer processes are listed instead of an interval that reaches further than this factor."""
WORTH_KNOWING, MOST_REPEATS = (0.1, 0.25, 0.5), 20
"""Half widths of intervals of a rate, and the most repeats that a note advises for the first of them in reach."""
RARE = 0.1
"""A note says how often a slowdown of this share of processes would not have been seen."""
SCALING_COLUMNS = ("img/s total", "per device", "times the base", "efficiency", "of that without exchange")
LABEL_COLUMNS = ("batch", "precision", "mode", "engine", "procs", "threads", "exchange", "scenario")
assert set(LABEL_COLUMNS) == {f.name for f in fields(ConfigurationLabels)}

Row = dict[str, str]


def varying_labels(rows: Sequence[BenchRow]) -> list[str]:
    """The labels in which rows differ."""
    return [name for name in LABEL_COLUMNS if len({getattr(r, name) for r in rows}) > 1]


def shared_labels(rows: Sequence[BenchRow]) -> dict[str, object]:
    """The labels that all rows have in common, apart from the batch, which is always a column."""
    fixed = [name for name in LABEL_COLUMNS if name not in ("batch", *varying_labels(rows))]
    return {name: value for name in fixed if (value := getattr(rows[0], name)) is not None}


def tables(rows: Sequence[BenchRow]) -> list[list[Row]]:
    """One table per scenario, two for scaling: short texts with units in the headings, without empty columns."""
    varying = list(dict.fromkeys(["batch", *varying_labels(rows)]))
    several = any(isinstance(row, StepRow) and row.devices > 1 for row in rows)
    shown = []
    for scenario in dict.fromkeys(row.scenario for row in rows):
        table = [_cells(row, varying) for row in rows if row.scenario == scenario]
        columns = list(dict.fromkeys([*varying, *(name for row in table for name in row)]))
        # Empty columns would make the table wider than most terminals.
        columns = [c for c in columns if any(row.get(c) for row in table) and (several or c != "per device")]
        # In a table of its own: both together are wider than a page.
        scaling = [c for c in columns if c in SCALING_COLUMNS] if "efficiency" in columns else []
        rest = [c for c in columns if c not in {*varying, *scaling}]
        for chosen in (scaling, rest) if scaling else (rest,):
            shown.append([{c: row.get(c, "") for c in columns if c in {*varying, *chosen}} for row in table])
    return shown


def whole_table(rows: Sequence[BenchRow]) -> list[Row]:
    """The rows of all tables in one: those of scaling, which has two, side by side."""
    merged: dict[tuple[str | None, ...], Row] = {}
    for row in chain.from_iterable(tables(rows)):
        merged.setdefault(tuple(row.get(label) for label in LABEL_COLUMNS), {}).update(row)
    return list(merged.values())


def _cells(row: BenchRow, labels: Sequence[str]) -> Row:
    cells = {name: str(value) for name in labels if (value := getattr(row, name)) is not None}
    if isinstance(row, FailedRow):
        return {**cells, "img/s total": row.status}
    int8 = row.engine_report.int8 if row.engine_report else None
    # What INT8 costs, beside its speed.
    cells |= {"INT8 against fp32": int8.figures()} if int8 else {}
    bf16 = row.engine_report.bf16 if row.engine_report else None
    cells |= {"bf16 against fp32": bf16.figures()} if bf16 else {}
    if row.latency_s is not None:
        rate = {"img/s total": row.busy or _rate_cell(row), "memory": _format_memory(row)}
        return cells | _latency_cells(row.latency_s) | rate
    return cells | _step_cells(row)


def _step_cells(row: StepRow) -> Row:
    step, flops, joules, total = row.step_s, row.flops, row.joules_per_image, row.images_per_s_total
    return {
        "img/s total": row.busy or _rate_cell(row),
        "img/CPU s": f"{row.images_per_cpu_s:.3g}" if row.images_per_cpu_s and row.noise else "",
        "per device": _as_known(row.images_per_s_per_device.value, total),
        "compute only": _as_known(row.compute_only_images_per_s_total, total),
        "data wait": f"{100 * row.data_wait_share:.1f} %",
        "bound by": row.verdict.removesuffix("-bound"),
        "step ms p5/50/95/99": "/".join(map(_format_ms, percentiles_of(step).values())),
        "CV": f"{100 * (step.cv or 0):.1f} %",
        "memory": _format_memory(row),
        "GFLOP/s": _as_known(flops.gflop_per_s_per_device, total) if flops else "",
        "J/img": "" if joules is None else f"{joules:.3g}",
        "compile s": "" if row.compile_s is None else f"{row.compile_s:.1f}",
        "times the base": "" if row.speedup is None else f"{row.speedup:.2f}",
        "efficiency": _format_percent(row.efficiency, row.efficiency_95),
        "times fp32": "" if row.times_fp32 is None else f"{row.times_fp32:.2f} {_ends(row.times_fp32_95, '.2f')}",
        "of that without exchange": _format_percent(row.of_apart, row.of_apart_95),
    }


def percentiles_of(step: SampleSummary) -> dict[str, float | None]:
    """Percentiles of the times of steps; None for one beyond which there is no sample, which would be a guess."""
    few, many = step.n < 20, step.n >= 100
    return {
        "p5": None if few else step.p5,
        "p50": step.median,
        "p95": None if few else step.p95,
        "p99": step.p99 if many else None,
    }


def _latency_cells(latency: Latency) -> Row:
    percentiles = {f"{name} ms": f"{1000 * e.value:.2f}" for name, e in latency.percentiles.items()}
    return {"latency ms mean": f"{1000 * latency.mean:.2f}", **percentiles, "n": str(latency.n)}


def _format_percent(share: float | None, ends: Sequence[float] | None) -> str:
    return "" if share is None else f"{100 * share:.1f} % {_ends([100 * end for end in ends or ()], '.0f')}"


def _ends(ends: Sequence[float] | None, digits: str) -> str:
    return f"[{', '.join(f'{end:{digits}}' for end in ends or ()) or 'no interval'}]"


def _format_ms(seconds: float | None) -> str:
    """Milliseconds in three digits."""
    if seconds is None:
        return "-"
    ms = 1000 * seconds
    return f"{ms:.0f}" if ms >= 99.95 else f"{ms:.1f}" if ms >= 9.995 else f"{ms:.2f}"


def _format_memory(row: StepRow) -> str:
    peak = row.peak_memory_bytes
    return "unknown" if peak is None else f"{peak / 2**20:,.0f} MiB"


def _rate_cell(row: StepRow) -> str:
    """The rate with its interval, or with the rates of few processes that show too little for a useful one."""
    total, each = row.images_per_s_total, row.process_images_per_s or ()
    if not 1 < len(each) < FEW_PROCESSES or total.high is None or not is_wide(total):
        return format_rate(total)
    half = (max(each) - min(each)) / 2
    shown = ", ".join(in_known_digits(rate, half) for rate in each)
    return f"{in_known_digits(total.value, half)} (processes: {shown})"


def is_wide(rate: Estimate) -> bool:
    """Whether the interval reaches too far to be of use."""
    ends = (rate.value if end is None else end for end in (rate.low, rate.high))
    return any(not 1 / WIDE <= end / rate.value <= WIDE for end in ends)


def _next_step(row: StepRow, row_s: float | None) -> str | None:
    """How many repeats would give an interval that is worth something, and how long they would take."""
    each = row.process_images_per_s or ()
    if len(each) < 2 or not is_wide(row.images_per_s_total):
        return None
    sd = statistics.stdev(map(math.log, each))
    for share in WORTH_KNOWING:
        for repeats in range(max(FEW_PROCESSES, len(each) + 1), MOST_REPEATS + 1):
            if t_limit((1 - LEVEL) / 2, repeats - 1) * sd / math.sqrt(repeats) <= math.log1p(share):
                time = f", in about {duration(row_s / len(each) * repeats)}" if row_s else ""
                return f"{use('repeats', repeats)} would give an interval of about +-{100 * share:.0f} %{time}"
    return f"its {len(each)} processes differ too much for {MOST_REPEATS} repeats to help: use a quieter machine"


def is_unknown(rate: Estimate) -> bool:
    """Whether the interval is so wide that the rate is not known."""
    ends = (rate.value if end is None else end for end in (rate.low, rate.high))
    # In both directions: an interval of few processes is symmetric in the logarithm.
    return any(not 1 / UNKNOWN_RATE_FACTOR <= end / rate.value <= UNKNOWN_RATE_FACTOR for end in ends)


def format_rate(rate: Estimate) -> str:
    """123.4 [120.1, 126.9] in the digits that the interval supports; `notes` say why there is none."""
    if rate.low is None or rate.high is None:
        return f"{rate.value:,.1f} [no interval]"
    if is_unknown(rate):
        return f"{rate.value:,.1f} [could be off by {UNKNOWN_RATE_FACTOR} times]"
    value, low, high = (
        in_known_digits(number, (rate.high - rate.low) / 2) for number in (rate.value, rate.low, rate.high)
    )
    return f"{value} [{low}, {high}]"


def _as_known(value: float, rate: Estimate) -> str:
    """A value that follows from a rate, in as many digits as that rate has."""
    if rate.low is None or rate.high is None or is_unknown(rate):
        return f"{value:,.1f}"
    # Scaled: it has the relative uncertainty of the rate.
    return in_known_digits(value, (rate.high - rate.low) / 2 * value / rate.value)


# ---------------------------------------------------------------------------------------------------------------- notes


def notes(rows: Sequence[BenchRow], row_s: float | None = None) -> list[str]:
    """What must be shown next to the figures: noise, rows that were not steady or precise, the basis of the intervals.

    `row_s`: the seconds that a row took, start-up included.
    """
    names_by_note: dict[str, list[str]] = {}
    for row in rows:
        advice = _next_step(row, row_s) if isinstance(row, StepRow) else None
        for note in [*_row_notes(row), *([advice] if advice else [])]:
            names_by_note.setdefault(note, []).append(row.configuration)
    # One line instead of one per row, which would bury the notes that differ.
    of_all = [note for note, configurations in names_by_note.items() if len(configurations) == len(rows) > 1]
    lines = [f"all rows: {note}" for note in of_all]
    lines += [
        f"{', '.join(configurations)}: {note}" for note, configurations in names_by_note.items() if note not in of_all
    ]
    steps = [row for row in rows if isinstance(row, StepRow)]
    rates = [row.images_per_s_total for row in steps]
    lines += _unseen_note(rates)
    lines += [_base_note(row) for row in steps if row.base]
    # Energy of some rows needs no explanation: the column shows which have none.
    if rates and all(row.joules_per_image is None for row in steps):
        why = dict.fromkeys(row.energy_missing or "this machine has no counter for it" for row in steps)
        lines.append(f"energy: unknown, {'; '.join(why)}")
    return lines


def _base_note(row: StepRow) -> str:
    same = "per process" if row.scaling == "weak" else "in total"
    rate = f"{_as_known(row.images_per_s_total.value, row.images_per_s_total)} img/s"
    return f"base case: {row.configuration}, {rate}; {row.scaling} scaling: the same batch {same}"


def _row_notes(row: BenchRow) -> list[str]:
    if isinstance(row, FailedRow):
        return [f"{row.status}: {row.why}"]
    lines = [f"NOISY: {'; '.join(row.noise)}"] if row.noise else []
    if row.crowded:
        lines.append(row.crowded)
    lines += row.engine_report.lines() if row.engine_report else ()
    return lines + (_step_notes(row) if isinstance(row, StepRow) else [])


def _step_notes(row: StepRow) -> list[str]:
    lines = [_interval_note(row), *speed_lines(row.published_speeds)]
    if row.busy:
        lines.insert(0, f"{_rate_cell(row)} img/s is not a measurement of this machine: {row.busy}")
    if not row.steady:
        # The shortest warm-up of its processes is the one that was too short.
        steps = min((warmup.steps for warmup in row.warmup), default=0)
        count = "one warm-up step" if steps == 1 else f"{steps} warm-up steps"
        lines.append(f"not steady when measuring began, after {count}: raise {use('max_time')} for more")
    if row.reached_precision is False:
        lines.append("the precision target was not reached within the time limit")
    if row.phases:
        split = ", ".join(f"{name} {100 * share:.0f} %" for name, share in row.phases.share.items())
        lines.append(f"of a step: {split} ({row.phases.steps} steps, synchronized at every phase)")
    elif row.latency_s is None:
        lines.append(f"of a step: not measured, no time was left for further steps; raise {use('max_time')}")
    return lines


def _interval_note(row: StepRow) -> str:
    rate = row.images_per_s_total
    if rate.low is not None:
        return f"95 % interval: {rate.basis}"
    if not rate.needs:
        return f"no 95 % interval: {rate.basis}"
    # A fifth more, as the mean step of the next run will not be exactly this one.
    seconds = rate.needs * row.step_s.mean
    return (
        f"no 95 % interval: {rate.basis}. Use {use('steps', rate.needs)}, "
        f"{use('max_time', f'{max(1, round(1.2 * seconds))}s')}, or {use('repeats', 2)} or more"
    )


def _unseen_note(rates: Sequence[Estimate]) -> list[str]:
    """What few processes cannot show, however narrow their interval."""
    processes = min((rate.n for rate in rates if rate.low is not None and rate.n > 1), default=None)
    enough = runs_to_see(RARE)
    if processes is None or processes >= enough:
        return []
    return [
        f"the intervals are about processes like these {processes}: a slowdown of one process in {1 / RARE:.0f} goes "
        f"unseen in {100 * (1 - RARE) ** processes:.0f} % of such benchmarks ({use('repeats', enough)}: 5 %)"
    ]


def describe_spent(spent_s: dict[str, float]) -> str:
    """1:18 = measuring 0:40, start-up 0:14, ..."""
    # Below half a second a phase would be shown as 0:00.
    parts = [f"{name} {duration(seconds)}" for name, seconds in spent_s.items() if name != "total" and seconds >= 0.5]
    return f"time: {duration(spent_s['total'])} = {', '.join(parts)}"


def result_notes(result: BenchResult) -> list[str]:
    """All lines below the tables: what all rows share, notes on rows, remarks, and where the time went."""
    # Instead of columns in which no two rows differ.
    shared = shared_labels(result.rows) if len(result.rows) > 1 else {}
    lines = [f"all rows: {', '.join(f'{name} {value}' for name, value in shared.items())}"] if shared else []
    row_s = result.spent_s["total"] / len(result.rows) if result.spent_s and result.rows else None
    lines += [*notes(result.rows, row_s), *result.facts]
    return [*lines, *([describe_spent(result.spent_s)] if result.spent_s else [])]


def markdown(title: str, result: BenchResult) -> str:
    """The tables as Markdown, with the notes below."""
    lines = [f"# {title}", "", *([result.what_ran, ""] if result.what_ran else [])]
    for table in tables(result.rows):
        columns = list(table[0])
        lines += [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [*(f"| {' | '.join(row.values())} |" for row in table), ""]
    return "\n".join([*lines, *(f"- {line}" for line in result_notes(result)), ""])
