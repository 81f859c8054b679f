"""What commands print: results as lines, tables or JSON on standard output; messages and bars on standard error.

Everything but JSON passes through `printable`, so that a name in a third-party file cannot steer the terminal, and
everything is without credentials. Live output of a training run is in `vernier.report.live`.
"""

import json as jsonlib
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from vernier.addresses import redact_addresses
from vernier.api.session import Session
from vernier.records.codec import encode
from vernier.wording import printable

WRAPPED_COLUMNS = 32
"""Least width of a column whose text is broken into lines."""


class Terminal(Session):
    """The session of a command, which also prints its result on standard output."""

    def show(self, *lines: str) -> None:
        """Print lines of a result."""
        sys.stdout.write("".join(f"{printable(self.word(line))}\n" for line in lines))

    def print_json(self, value: Any) -> None:
        """Print values or records as one JSON document. Infinities and NaN become null; standard error lists them."""
        not_finite: list[str] = []
        text = jsonlib.dumps(_finite(encode(value), "", not_finite), indent=2, allow_nan=False)
        sys.stdout.write(f"{redact_addresses(text)}\n")
        if not_finite:
            more = f" and {len(not_finite) - 3} more" if len(not_finite) > 3 else ""
            self.warn(f"not a finite number, null in the JSON: {', '.join(not_finite[:3])}{more}")

    def print_result(self, result: Any, json: bool, lines: Callable[[Any], Iterable[str]]) -> None:
        """Print a record: as JSON, or as lines for people."""
        self.print_json(result) if json else self.show(*lines(result))

    def print_rows(
        self,
        rows: Sequence[Any],
        *,
        droppable: Sequence[str] = (),
        wrapped: str = "",
        right: Sequence[str] = (),
        instead: str = "--json",
    ) -> None:
        """Print rows (records or mappings) with the same columns as a table.

        If the terminal is too narrow, the droppable columns are omitted, the first ones first, and `wrapped` is broken
        into lines. Numbers and the columns in `right` are aligned to the right. `instead` is what else shows a column
        that was omitted.
        """
        from rich import box
        from rich.console import Console
        from rich.table import Table

        console = Console(highlight=False, markup=False)
        if not console.is_terminal:
            # A file or a pipe has no width: wide enough for every table, and still readable.
            console.width = 160
        # Records and mappings alike become mappings of plain values.
        cells = encode(rows)
        texts = {column: [printable(self.word(_cell(row[column]))) for row in cells] for column in cells[0]}
        omitted = _columns_to_omit(texts, console.width, droppable, wrapped)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        for column in texts:
            if column not in omitted:
                numeric = column in right or all(isinstance(row[column], int | float) for row in cells)
                table.add_column(_header(column, droppable), justify="right" if numeric else "left", overflow="fold")
        for index in range(len(cells)):
            table.add_row(*(texts[column][index] for column in texts if column not in omitted))
        console.print(table)
        if omitted:
            names = ", ".join(column.replace("_", " ") for column in omitted)
            self.warn(f"not shown: {names} (wider terminal, or {instead})")


def _finite(value: Any, path: str, not_finite: list[str]) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v, f"{path}.{k}" if path else str(k), not_finite) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v, f"{path}[{i}]", not_finite) for i, v in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        not_finite.append(path or "the value")
        return None
    return value


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _header(column: str, droppable: Sequence[str]) -> str:
    """The name of a column; in a table that must become narrow one word per line."""
    return column.replace("_", "\n") if droppable else column


def _columns_to_omit(
    texts: Mapping[str, Sequence[str]], width: int, droppable: Sequence[str], wrapped: str
) -> list[str]:
    """The first of the droppable columns, as many as must go for the others to fit."""
    widths = {
        column: max(len(text) for text in (*cells, *_header(column, droppable).split("\n")))
        for column, cells in texts.items()
    }
    if wrapped:
        widths[wrapped] = min(widths[wrapped], WRAPPED_COLUMNS)
    omitted: list[str] = []
    for column in (*droppable, None):
        # Two spaces are between columns.
        if sum(widths.values()) + 2 * (len(widths) - 1) <= width or column is None:
            break
        del widths[column]
        omitted.append(column)
    return omitted
