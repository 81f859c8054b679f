"""`vernier bench`: the tables and notes of a benchmark, or its JSON, and the exit code."""

import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from vernier.cli.output import Terminal
from vernier.errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED
from vernier.lab.api.benchmarks import measure, measure_arm, measure_data
from vernier.lab.requests.benchmarks import BenchArm, BenchData, Benchmarked
from vernier.records.codec import encode

if TYPE_CHECKING:
    from vernier.lab.bench.session import Outcome


def train(request: Benchmarked, terminal: Terminal) -> int:
    """Measure and print; 1 if this version is slower than the one it is compared with."""
    outcome = measure(request, terminal)
    if request.json:
        tree = encode(replace(outcome.result, rounds=()))
        tree.pop("rounds")
        terminal.print_json({"run": str(outcome.run.path), **tree, "stopped": outcome.stopped})
    else:
        _print_tables(outcome, terminal)
    if outcome.stopped:
        terminal.warn("vernier: interrupted")
        return EXIT_INTERRUPTED
    return EXIT_FAILED if outcome.slower else EXIT_DONE


infer = scaling = train


def data(request: BenchData, terminal: Terminal) -> int:
    measured = measure_data(request, terminal)
    result = encode(measured.report)
    if request.json:
        terminal.print_json(result)
        return EXIT_DONE
    terminal.show(result["what_ran"], *measured.notes)
    terminal.print_rows(result["contenders"])
    if result["ratios"]:
        terminal.print_rows([{name: _rounded(value) for name, value in ratio.items()} for ratio in result["ratios"]])
    return EXIT_DONE


def arm(request: BenchArm, terminal: Terminal) -> int:
    return measure_arm(request, terminal)


def _rounded(value: object) -> object:
    return "unknown" if value is None else round(value, 3) if isinstance(value, float) else value


def _print_tables(outcome: "Outcome", terminal: Terminal) -> None:
    from vernier.lab.bench.table import result_notes, tables

    result = outcome.result
    terminal.show(str(result.what_ran))
    for table in tables(result.rows):
        terminal.print_rows(_turned_if_too_wide(table))
    terminal.show(*(f"- {line}" for line in result_notes(result)), f"run        {outcome.run.path}")


def _turned_if_too_wide(table: list[dict[str, str]]) -> list[dict[str, str]]:
    """The table with a column per configuration instead of a row where its rows do not fit on the terminal."""
    if not sys.stdout.isatty():
        return table
    columns = list(table[0])
    width = sum(max(len(name), *(len(row[name]) for row in table)) + 2 for name in columns)
    if width <= shutil.get_terminal_size().columns:
        return table
    return [{"": name, **{f"row {n}": row[name] for n, row in enumerate(table, start=1)}} for name in columns]
