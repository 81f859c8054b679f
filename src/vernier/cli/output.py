"""What commands print: JSON, tables, messages, durations and progress bars.

Results go to standard output, messages and bars to standard error. Everything but JSON passes through `printable`, so
that a name in a stranger's file cannot steer the terminal, and everything is without credentials. Live output of a
training run is in `vernier.report.live`.
"""

import json as jsonlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from vernier.addresses import redact, redact_addresses
from vernier.records.codec import encode
from vernier.wording import printable

WRAPPED_COLUMNS = 32
"""Least width of a column whose text is broken into lines."""


_quiet = False


def set_quiet(quiet: bool) -> None:
    """Whether this command leaves out progress (`--quiet`); `vernier.cli.main` begins without."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    """Whether only warnings, errors and the result are printed."""
    return _quiet


def inform(*lines: str) -> None:
    """Print what goes on, on standard error; nothing with --quiet."""
    if not _quiet:
        say(*lines)


def say(*lines: str) -> None:
    """Print a warning, an error or something else that must be known on standard error, of one line or several."""
    sys.stderr.write("".join(f"{printable(redact(line))}\n" for line in lines))


def show(*lines: str) -> None:
    """Print lines of a result on standard output."""
    sys.stdout.write("".join(f"{printable(redact(line))}\n" for line in lines))


def print_json(value: Any) -> None:
    """Print values or records as one JSON document. Infinities and NaN become null, and standard error says where."""
    not_finite: list[str] = []
    text = jsonlib.dumps(_finite(encode(value), "", not_finite), indent=2, allow_nan=False)
    sys.stdout.write(f"{redact_addresses(text)}\n")
    if not_finite:
        more = f" and {len(not_finite) - 3} more" if len(not_finite) > 3 else ""
        say(f"not a finite number, null in the JSON: {', '.join(not_finite[:3])}{more}")


def print_result(result: Any, json: bool, lines: Callable[[Any], Iterable[str]]) -> None:
    """Print a record: as JSON, or in the lines that tell it to a person."""
    print_json(result) if json else show(*lines(result))


def _finite(value: Any, path: str, not_finite: list[str]) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v, f"{path}.{k}" if path else str(k), not_finite) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v, f"{path}[{i}]", not_finite) for i, v in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        not_finite.append(path or "the value")
        return None
    return value


def print_rows(
    rows: Sequence[Any],
    json: bool,
    *,
    droppable: Sequence[str] = (),
    wrapped: str = "",
    right: Sequence[str] = (),
    instead: str = "--json",
) -> None:
    """Print rows (records or mappings) with the same columns, as JSON or as a table.

    Where the terminal is too narrow the droppable columns are left out, the first ones first, and `wrapped` is broken
    into lines. Numbers and the columns in `right` are aligned to the right. `instead` is what else shows a column that
    was left out.
    """
    if json:
        print_json(rows)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 160
    cells = encode(rows)
    texts = {column: [_cell(row[column]) for row in cells] for column in cells[0]}
    left_out = _columns_to_leave_out(texts, console.width, droppable, wrapped)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for column in texts:
        if column not in left_out:
            numeric = column in right or all(isinstance(row[column], int | float) for row in cells)
            table.add_column(_header(column, droppable), justify="right" if numeric else "left", overflow="fold")
    for index in range(len(cells)):
        table.add_row(*(texts[column][index] for column in texts if column not in left_out))
    console.print(table)
    if left_out:
        names = ", ".join(column.replace("_", " ") for column in left_out)
        say(f"not shown: {names} (wider terminal, or {instead})")


def _cell(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
    return printable(redact(text))


def _header(column: str, droppable: Sequence[str]) -> str:
    """The name of a column; in a table that must become narrow one word per line."""
    return column.replace("_", "\n") if droppable else column


def _columns_to_leave_out(
    texts: Mapping[str, Sequence[str]], width: int, droppable: Sequence[str], wrapped: str
) -> list[str]:
    """The first of the droppable columns, as many as must go for the others to fit."""
    widths = {
        column: max(len(text) for text in (*cells, *_header(column, droppable).split("\n")))
        for column, cells in texts.items()
    }
    if wrapped:
        widths[wrapped] = min(widths[wrapped], WRAPPED_COLUMNS)
    left_out: list[str] = []
    for column in (*droppable, None):
        if sum(widths.values()) + 2 * (len(widths) - 1) <= width or column is None:
            break
        del widths[column]
        left_out.append(column)
    return left_out


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on standard error if it is a terminal; the function it gives takes done and total."""
    from rich.progress import MofNCompleteColumn

    with _bar(MofNCompleteColumn()) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def bytes_bar(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar of bytes; the function it gives takes what is being done, bytes done and total bytes."""
    from rich.markup import escape
    from rich.progress import DownloadColumn

    with _bar(DownloadColumn(binary_units=True)) as bar:
        task = bar.add_task(label, total=None)
        yield lambda doing, done, total: bar.update(
            task, description=escape(printable(doing)), completed=done, total=total or None
        )


def _bar(amount: Any) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=_quiet or not console.is_terminal)
