"""`vernier bench`: the tables and notes of a benchmark, or its JSON, and the exit code."""

import shutil
import sys
from dataclasses import replace

from vernier.cli.output import Terminal
from vernier.engine.processes.launch import LocalRun
from vernier.errors import EXIT_DONE, EXIT_INTERRUPTED
from vernier.lab.api.benchmarks import measure, measure_here, measure_link
from vernier.lab.bench.session import Outcome
from vernier.lab.bench.table import format_rate, result_notes, tables
from vernier.lab.requests.benchmarks import BenchArm, BenchLink, Benchmarked
from vernier.records.codec import encode
from vernier.wording import plural


def train(request: Benchmarked, terminal: Terminal) -> int:
    outcome = measure(request, terminal)
    if request.json:
        tree = encode(replace(outcome.result, rounds=()))
        # Every sample of every process: megabytes, which bench.json has.
        tree.pop("rounds")
        terminal.print_json({"run": str(outcome.run.path), **tree, "stopped": outcome.stopped})
    else:
        _print_tables(outcome, terminal)
    if outcome.stopped:
        terminal.warn("vernier: interrupted")
        return EXIT_INTERRUPTED
    return EXIT_DONE


infer = scaling = train


def link(request: BenchLink, terminal: Terminal) -> int:
    result = measure_link(request, terminal)
    if isinstance(result, LocalRun):
        return result.code
    if result is not None and request.json:
        terminal.print_json(result)
    elif result is not None:
        terminal.show(f"{result.processes} x {result.device} on {plural(result.hosts, 'host')}, {result.backend}")
        rates = [{"us": format_rate(row.us), "GB/s": f"{row.gb_s:.3g}"} for row in result.rows]
        labels = [{"bytes": f"{row.bytes:,}", "operation": row.what, "where": row.where} for row in result.rows]
        terminal.print_rows([label | rate for label, rate in zip(labels, rates, strict=True)])
    return EXIT_DONE


def arm(request: BenchArm, terminal: Terminal) -> int:
    return measure_here(request, terminal)


def _print_tables(outcome: "Outcome", terminal: Terminal) -> None:
    result = outcome.result
    terminal.show(str(result.what_ran))
    for table in tables(result.rows):
        terminal.print_rows(_turned_if_too_wide(table))
    terminal.show(*(f"- {line}" for line in result_notes(result)), f"run        {outcome.run.path}")


def _turned_if_too_wide(table: list[dict[str, str]]) -> list[dict[str, str]]:
    """The table with a column per configuration instead of a row where its rows do not fit on the terminal."""
    # What reads a pipe wants one row per configuration, and a pipe has no width.
    if not sys.stdout.isatty():
        return table
    columns = list(table[0])
    width = sum(max(len(name), *(len(row[name]) for row in table)) + 2 for name in columns)
    if width <= shutil.get_terminal_size().columns:
        return table
    return [{"": name, **{f"row {n}": row[name] for n, row in enumerate(table, start=1)}} for name in columns]
