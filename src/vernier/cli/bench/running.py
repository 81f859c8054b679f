"""Running a benchmark from the command line: its plan, progress, the printed tables and the exit code."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vernier.cli.launching import sigterm_as_interrupt
from vernier.cli.output import print_json, print_rows, progress_bar, rough_duration, say
from vernier.clock import now_s
from vernier.config import parse_share
from vernier.errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, ConfigError
from vernier.records.bench import BenchRequest, Plan
from vernier.records.codec import encode

from .options import Comparing, Measuring

if TYPE_CHECKING:
    from vernier.measure.bench.session import Outcome


def measure_and_print(request: BenchRequest, how: Comparing, json: bool) -> int:
    """Measure, print the result, and return the exit code: 1 when this version is slower than --against."""
    from vernier.measure.bench.session import run_bench

    with progress_bar("measuring") as bar, sigterm_as_interrupt():
        outcome = run_bench(with_plan(request, how), Path(how.out), _Clock(how, bar))
    if json:
        tree = encode(replace(outcome.result, rounds=()))
        tree.pop("rounds")
        print_json({"run": str(outcome.run.path), **tree, "stopped": outcome.stopped})
    else:
        _print_tables(outcome)
    if outcome.stopped:
        say("vernier: interrupted")
        return EXIT_INTERRUPTED
    return EXIT_FAILED if outcome.slower else EXIT_DONE


def with_plan(request: BenchRequest, how: Comparing) -> BenchRequest:
    """The request with how long and how often to measure. Raises ConfigError for values out of range."""
    from vernier.measure.bench.measuring import PRECISION, PRECISION_TO_COMPARE

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
        plan=Plan(steps=how.steps, precision=precision, max_seconds=how.max_seconds),
        repeats=how.repeats,
        seed=how.seed,
        against=how.against,
        tolerance=parse_share("--tolerance", how.tolerance),
        memory_limit_bytes=None if how.memory_limit is None else int(how.memory_limit * 2**30),
    )


class _Clock:
    """Prints how long a benchmark will take: at most, before it starts; as the first round took, after that."""

    def __init__(self, how: Measuring, bar: Callable[[int, int], None]) -> None:
        self._how, self._bar, self._began_s = how, bar, 0.0

    def __call__(self, done: int, total: int, rounds: int) -> None:
        self._bar(done, total)
        if done == 0:
            self._began_s = now_s()
            each = f"{self._how.steps} steps each"
            if self._how.steps is None:
                most_s = self._how.max_seconds
                each = f"at most {most_s:g} s each: at most {rough_duration(total * most_s)}"
            say(f"{total} process(es), {each}, besides start-up and warm-up")
        elif done == total // rounds and done < total:
            took_s = now_s() - self._began_s
            left = rough_duration(took_s * (rounds - 1))
            say(f"round 1 of {rounds} took {rough_duration(took_s)}: about {left} left")


def _print_tables(outcome: "Outcome") -> None:
    from vernier.measure.bench.table import describe_comparison, notes, tables

    result = outcome.result
    for table in tables(result.rows):
        print_rows(table, False)
    for line in [*notes(result.rows), *result.facts, *map(describe_comparison, result.compared)]:
        sys.stdout.write(f"- {line}\n")
    sys.stdout.write(f"run        {outcome.run.path}\n")
