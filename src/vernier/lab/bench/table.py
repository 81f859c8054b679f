"""A benchmark for people: rows as tables of short texts, notes beside them, and both as Markdown.

The rows themselves are computed in `rows`; the report page has its own tables (`report.page.sections.benchmarks`).
"""

from collections.abc import Sequence
from dataclasses import fields

from vernier.clock import duration
from vernier.lab.statistics.comparison import DETECTED
from vernier.measure.estimates import in_known_digits
from vernier.measure.published import speed_lines
from vernier.measure.runs import runs_to_see
from vernier.records.bench import (
    ArmComparison,
    ArmLabels,
    BenchResult,
    BenchRow,
    FailedRow,
    Latency,
    ServingRow,
    StepRow,
)
from vernier.records.run import Int8Loss
from vernier.records.statistics import Estimate
from vernier.references import use

UNKNOWN_RATE_FACTOR = 10
"""An interval that reaches so many times the value, or down to one part in so many, means that it is not known."""
RARE = 0.1
"""A note says how often a slowdown of this share of processes would not have been seen."""
MATMUL_TOLERANCE = 0.1
"""Matrix products before and after measuring may differ by this share without a note."""
SCALING_COLUMNS = ("img/s total", "per device", "times the base", "efficiency", "of that without exchange")
ARM_COLUMNS = ("batch", "precision", "mode", "engine", "procs", "threads", "exchange", "scenario", "load", "side")
assert set(ARM_COLUMNS) == {f.name for f in fields(ArmLabels)}

Row = dict[str, str]


def varying_labels(rows: Sequence[BenchRow]) -> list[str]:
    """The labels in which rows differ."""
    return [name for name in ARM_COLUMNS if len({getattr(r, name) for r in rows}) > 1]


def shared_labels(rows: Sequence[BenchRow]) -> dict[str, object]:
    """The labels that all rows have in common, apart from the batch, which is always a column."""
    varying = varying_labels(rows)
    shared = {name: getattr(rows[0], name) for name in ARM_COLUMNS if name != "batch" and name not in varying}
    return {name: value for name, value in shared.items() if value is not None}


def note_shared_labels(rows: Sequence[BenchRow]) -> list[str]:
    """A note instead of columns in which no two rows differ."""
    shared = ", ".join(f"{name} {value}" for name, value in shared_labels(rows).items()) if len(rows) > 1 else ""
    return [f"all rows: {shared}"] if shared else []


def tables(rows: Sequence[BenchRow]) -> list[list[Row]]:
    """One table per scenario, two for scaling: short texts with units in the headings, without empty columns."""
    varying = list(dict.fromkeys(["batch", *varying_labels(rows)]))
    several = any(isinstance(row, StepRow) and row.devices > 1 for row in rows)
    shown = []
    for scenario in dict.fromkeys(row.scenario for row in rows):
        table = [_cells(row, varying) for row in rows if row.scenario == scenario]
        columns = list(dict.fromkeys([*varying, *(name for row in table for name in row)]))
        columns = [c for c in columns if any(row.get(c) for row in table) and (several or c != "per device")]
        scaling = [c for c in columns if c in SCALING_COLUMNS] if "efficiency" in columns else []
        rest = [c for c in columns if c not in {*varying, *scaling}]
        for chosen in (scaling, rest) if scaling else (rest,):
            shown.append([{c: row.get(c, "") for c in columns if c in {*varying, *chosen}} for row in table])
    return shown


def _cells(row: BenchRow, labels: Sequence[str]) -> Row:
    cells = {name: str(value) for name in labels if (value := getattr(row, name)) is not None}
    if isinstance(row, FailedRow):
        return {**cells, "img/s total": row.status}
    cells |= _int8_cells(row.engine_report.int8 if row.engine_report else None)
    if isinstance(row, ServingRow):
        serving = {
            "served/s": f"{row.served_per_s:.1f} of {row.offered_per_s:.1f}",
            "kept up": "yes" if row.kept_up else "NO",
            "mean batch": f"{row.mean_batch:.2f}",
        }
        return cells | _latency_cells(row.latency_s) | serving
    if row.latency_s is not None:
        rate = {"img/s total": format_rate(row.images_per_s_total), "memory": _format_memory(row)}
        return cells | _latency_cells(row.latency_s) | rate
    return cells | _step_cells(row)


def _step_cells(row: StepRow) -> Row:
    step, flops, joules, total = row.step_s, row.flops, row.joules_per_image, row.images_per_s_total
    arithmetic = ""
    if flops:
        arithmetic = f"{_as_known(flops.gflop_per_s_per_device, total)} ({100 * flops.share_of_matmul:.0f} %)"
    cells = {
        "img/s total": format_rate(total),
        "per device": _as_known(row.images_per_s_per_device.value, total),
        "compute only": _as_known(row.compute_only_images_per_s_total, total),
        "data wait": f"{100 * row.data_wait_share:.1f} %",
        "bound by": row.verdict.removesuffix("-bound"),
        "step ms p5/50/95/99": "/".join(map(_format_ms, (step.p5, step.median, step.p95, step.p99))),
        "CV": f"{100 * (step.cv or 0):.1f} %",
        "memory": _format_memory(row),
        "GFLOP/s (of matmul)": arithmetic,
        "J/img": "" if joules is None else f"{joules:.3g}",
    }
    if row.compile_s is not None:
        cells["compile s"] = f"{row.compile_s:.1f}"
    if row.efficiency is not None:
        cells["times the base"] = f"{row.speedup:.2f}"
        cells["efficiency"] = _format_percent(row.efficiency, row.efficiency_95)
    if row.times_fp32 is not None:
        ends = [f"{end:.2f}" for end in row.times_fp32_95 or ()]
        cells["times fp32"] = f"{row.times_fp32:.2f} [{', '.join(ends) or 'no interval'}]"
    if row.of_apart is not None:
        cells["of that without exchange"] = _format_percent(row.of_apart, row.of_apart_95)
    return cells


def _int8_cells(loss: Int8Loss | None) -> Row:
    """What INT8 costs, beside its speed."""
    return {} if loss is None or not loss.figures() else {"INT8 against fp32": loss.figures()}


def _latency_cells(latency: Latency) -> Row:
    percentiles = {f"{name} ms": f"{1000 * e.value:.2f}" for name, e in latency.percentiles.items()}
    return {"latency ms mean": f"{1000 * latency.mean:.2f}", **percentiles, "n": str(latency.n)}


def _format_percent(share: float, ends: Sequence[float] | None) -> str:
    return f"{100 * share:.1f} % [{', '.join(f'{100 * end:.0f}' for end in ends or ()) or 'no interval'}]"


def _format_ms(seconds: float | None) -> str:
    """Milliseconds in three digits."""
    if seconds is None:
        return "-"
    ms = 1000 * seconds
    return f"{ms:.0f}" if ms >= 99.95 else f"{ms:.1f}" if ms >= 9.995 else f"{ms:.2f}"


def _format_memory(row: StepRow) -> str:
    peak = row.peak_memory_bytes
    return "unknown" if peak is None else f"{peak / 2**20:,.0f} MiB"


def is_unknown(rate: Estimate) -> bool:
    """Whether the interval is so wide that the rate is not known."""
    ends = (rate.value if end is None else end for end in (rate.low, rate.high))
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
    return in_known_digits(value, (rate.high - rate.low) / 2 * value / rate.value)


# ---------------------------------------------------------------------------------------------------------------- notes


def notes(rows: Sequence[BenchRow]) -> list[str]:
    """What must stand beside the figures: noise, rows that were not steady or precise, the basis of the intervals."""
    arms_by_note: dict[str, list[str]] = {}
    for row in rows:
        for note in _row_notes(row):
            arms_by_note.setdefault(note, []).append(row.arm)
    of_all = [note for note, arms in arms_by_note.items() if len(arms) == len(rows) > 1]
    lines = [f"all rows: {note}" for note in of_all]
    lines += [f"{', '.join(arms)}: {note}" for note, arms in arms_by_note.items() if note not in of_all]
    steps = [row for row in rows if isinstance(row, StepRow)]
    rates = [row.images_per_s_total for row in steps]
    lines += _unseen_note(rates)
    if any(map(is_unknown, rates)):
        lines.append(
            f"processes of one row differ so much that its rate is not known: raise {use('repeats')}, or use a quieter "
            "machine"
        )
    lines += [_base_note(row) for row in steps if row.base]
    if rates and all(row.joules_per_image is None for row in steps):
        why = dict.fromkeys(row.energy_missing or "this machine has no counter for it" for row in steps)
        lines.append(f"energy: unknown, {'; '.join(why)}")
    return lines


def _base_note(row: StepRow) -> str:
    same = "per process" if row.scaling == "weak" else "in total"
    rate = f"{_as_known(row.images_per_s_total.value, row.images_per_s_total)} img/s"
    return f"base case: {row.arm}, {rate}; {row.scaling} scaling: the same batch {same}"


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
    if not row.steady:
        steps = min((warmup.steps for warmup in row.warmup), default=0)
        count = "one warm-up step" if steps == 1 else f"{steps} warm-up steps"
        lines.append(f"not steady when measuring began, after {count}: raise {use('max_time')} for more")
    if row.reached_precision is False:
        lines.append("the precision target was not reached within the time limit")
    matmul = row.flops.matmul if row.flops else None
    if matmul and matmul.before and matmul.after and abs(matmul.after / matmul.before - 1) > MATMUL_TOLERANCE:
        lines.append(
            f"matrix products ran at {matmul.before:.0f} GFLOP/s before measuring and at {matmul.after:.0f} after it: "
            "the machine changed, and the share of them is uncertain"
        )
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


def describe_comparison(c: ArmComparison) -> str:
    """1.023 [1.001, 1.045] times the speed of ...: faster"""
    interval = f"[{c.low:.4f}, {c.high:.4f}]" if c.low is not None else "[no interval]"
    power = "" if c.detectable is None else f"; finds {_percent(c.detectable)} in {100 * DETECTED:.0f} % of cases"
    return (
        f"{c.arm}: {c.ratio:.4f} {interval} times the speed of {c.against}: {c.verdict} "
        f"(tolerance {100 * c.tolerance:g} %, {c.basis}{power})"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 1 else "100 % or more"


def describe_spent(spent_s: dict[str, float]) -> str:
    """1:18 = measuring 0:40, start-up 0:14, ..."""
    parts = [f"{name} {duration(seconds)}" for name, seconds in spent_s.items() if name != "total" and seconds >= 0.5]
    return f"time: {duration(spent_s['total'])} = {', '.join(parts)}"


def result_notes(result: BenchResult) -> list[str]:
    """All lines below the tables: what all rows share, notes on rows, remarks, comparisons, and where the time went."""
    lines = [*note_shared_labels(result.rows), *notes(result.rows), *result.facts]
    lines += map(describe_comparison, result.compared)
    return [*lines, *([describe_spent(result.spent_s)] if result.spent_s else [])]


def markdown(title: str, result: BenchResult) -> str:
    """The tables as Markdown, with the notes below."""
    lines = [f"# {title}", "", *([result.what_ran, ""] if result.what_ran else [])]
    for table in tables(result.rows):
        columns = list(table[0])
        lines += [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [*(f"| {' | '.join(row.values())} |" for row in table), ""]
    return "\n".join([*lines, *(f"- {line}" for line in result_notes(result)), ""])
