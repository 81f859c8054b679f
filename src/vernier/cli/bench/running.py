"""Running a benchmark from the command line: its plan, the printed tables and the exit code."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vernier.api.benchmarks import with_plan as plan_request
from vernier.cli.launching import sigterm_as_interrupt
from vernier.cli.output import inform, is_quiet, print_json, print_rows, say, show
from vernier.errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED
from vernier.records.bench import BenchRequest
from vernier.records.codec import encode
from vernier.report.exports import check_exports, write_exports

from .options import Comparing

if TYPE_CHECKING:
    from vernier.measure.bench.session import Outcome


def measure_and_print(request: BenchRequest, how: Comparing, json: bool) -> int:
    """Measure, print the result, and return the exit code: 1 when this version is slower than --against."""
    from vernier.measure.bench.session import run_bench
    from vernier.report.live.benchmark import LiveDisplay

    exports = {"raport": how.raport, "dllogger": how.dllogger}
    check_exports(exports)
    with LiveDisplay(quiet=is_quiet()) as display, sigterm_as_interrupt():
        outcome = run_bench(with_plan(request, how), Path(how.out), display)
    if json:
        tree = encode(replace(outcome.result, rounds=()))
        tree.pop("rounds")
        print_json({"run": str(outcome.run.path), **tree, "stopped": outcome.stopped})
    else:
        _print_tables(outcome)
    if outcome.stopped:
        say("vernier: interrupted")
        return EXIT_INTERRUPTED
    for written in write_exports(outcome.run.path, exports):
        inform(f"written    {written}")
    return EXIT_FAILED if outcome.slower else EXIT_DONE


def with_plan(request: BenchRequest, how: Comparing) -> BenchRequest:
    """The request with how long and how often to measure. Raises ConfigError for values out of range."""
    return plan_request(
        request,
        repeats=how.repeats,
        steps=how.steps,
        max_seconds=how.max_seconds,
        precision_target=how.precision_target,
        seed=how.seed,
        against=how.against,
        tolerance=how.tolerance,
        memory_limit=how.memory_limit,
    )


def _print_tables(outcome: "Outcome") -> None:
    from vernier.measure.bench.table import result_notes, tables

    result = outcome.result
    show(str(result.what_ran))
    for table in tables(result.rows):
        print_rows(_turned_if_too_wide(table), False)
    show(*(f"- {line}" for line in result_notes(result)), f"run        {outcome.run.path}")


def _turned_if_too_wide(table: list[dict[str, str]]) -> list[dict[str, str]]:
    """The table with a column per arm instead of a row where its rows do not fit on the terminal."""
    if not sys.stdout.isatty():
        return table
    columns = list(table[0])
    width = sum(max(len(name), *(len(row[name]) for row in table)) + 2 for name in columns)
    if width <= shutil.get_terminal_size().columns:
        return table
    return [{"": name, **{f"row {n}": row[name] for n, row in enumerate(table, start=1)}} for name in columns]
