"""Running a benchmark from the command line: its plan, the printed tables and the exit code."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vernier.cli.exports import check_exports, write_exports
from vernier.cli.launching import sigterm_as_interrupt
from vernier.cli.output import print_json, print_rows, say
from vernier.config import parse_share
from vernier.errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, ConfigError
from vernier.records.bench import BenchRequest, Plan
from vernier.records.codec import encode

from .options import Comparing

if TYPE_CHECKING:
    from vernier.measure.bench.session import Outcome


def measure_and_print(request: BenchRequest, how: Comparing, json: bool) -> int:
    """Measure, print the result, and return the exit code: 1 when this version is slower than --against."""
    from vernier.measure.bench.session import run_bench

    from .live import LiveDisplay

    exports = {"raport": how.raport, "dllogger": how.dllogger}
    check_exports(exports)
    with LiveDisplay() as display, sigterm_as_interrupt():
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
    write_exports(outcome.run.path, exports)
    return EXIT_FAILED if outcome.slower else EXIT_DONE


def with_plan(request: BenchRequest, how: Comparing) -> BenchRequest:
    """The request with how long and how often to measure. Raises ConfigError for values out of range."""
    from vernier.measure.bench.measuring import EXTRA_LEAST_S, EXTRA_SHARE, PRECISION, PRECISION_TO_COMPARE

    for name, value in (
        ("--repeats", how.repeats),
        ("--steps", how.steps),
        ("--max-seconds", how.max_seconds),
        ("--memory-limit", how.memory_limit),
    ):
        if value is not None and value <= 0:
            raise ConfigError(f"{name} {value:g} is out of range: it must be more than 0.")
    precision = PRECISION if how.against is None else PRECISION_TO_COMPARE
    if how.precision_target is not None:
        precision = parse_share("--precision-target", how.precision_target)
    return replace(
        request,
        plan=Plan(
            steps=how.steps,
            precision=precision,
            max_seconds=how.max_seconds,
            warmup_max_seconds=how.max_seconds / 2,
            extra_max_seconds=max(EXTRA_LEAST_S, EXTRA_SHARE * how.max_seconds),
            alone=how.repeats == 1 or None,
        ),
        repeats=how.repeats,
        seed=how.seed,
        against=how.against,
        tolerance=parse_share("--tolerance", how.tolerance),
        memory_limit_bytes=None if how.memory_limit is None else int(how.memory_limit * 2**30),
    )


def _print_tables(outcome: "Outcome") -> None:
    from vernier.measure.bench.table import result_notes, tables

    result = outcome.result
    sys.stdout.write(f"{result.what_ran}\n")
    for table in tables(result.rows):
        print_rows(_turned_if_too_wide(table), False)
    for line in result_notes(result):
        sys.stdout.write(f"- {line}\n")
    sys.stdout.write(f"run        {outcome.run.path}\n")


def _turned_if_too_wide(table: list[dict[str, str]]) -> list[dict[str, str]]:
    """The table with a column per arm instead of a row where its rows do not fit on the terminal."""
    if not sys.stdout.isatty():
        return table
    columns = list(table[0])
    width = sum(max(len(name), *(len(row[name]) for row in table)) + 2 for name in columns)
    if width <= shutil.get_terminal_size().columns:
        return table
    return [{"": name, **{f"row {n}": row[name] for n, row in enumerate(table, start=1)}} for name in columns]
