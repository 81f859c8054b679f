"""Reads and writes CSV: that of a study's own files, and that of others with another separator or encoding.

Which column holds what, and in which unit, is left to `lab.reading.columns` and `lab.reading.units`.
"""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vernier.errors import ConfigError
from vernier.lab.records.bench import Cell

CsvRow = Mapping[str, Cell]
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_BYTE_ORDER_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", codecs.BOM_UTF8: "utf-8-sig"}
_INDEX = re.compile(r"^(Unnamed: \d+)?$")
_LARGEST = 1e300
_FORMULA = re.compile(r"'*[=+@\t\r-]")
"""The start of what a spreadsheet computes; apostrophes in front are kept by adding one more."""
_DECIMAL_COMMA = re.compile(r"^\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*$")


def decode_text(content: bytes) -> str:
    """The text of a file in UTF-8 or UTF-16, with or without a byte order mark; damaged characters are replaced."""
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            return content.decode(encoding, errors="replace")
    # Windows programs write UTF-16 without a mark, too: every second byte of plain text is then zero.
    start = content[:200]
    if start[1::2].count(0) > len(start) // 4:
        return content.decode("utf-16-le", errors="replace")
    if start[::2].count(0) > len(start) // 4:
        return content.decode("utf-16-be", errors="replace")
    return content.decode("utf-8", errors="replace")


def csv_text(columns: Sequence[str], rows: Iterable[CsvRow]) -> str:
    """The text of a CSV file; None is an empty cell. Halves of characters, which UTF-8 cannot hold, are escaped.

    A text that a spreadsheet would take for a formula gets an apostrophe, which `read_csv` removes: names of devices
    and kernels can be anybody's.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([[_harmless(row.get(c)) for c in columns] for row in rows])
    # Names from the operating system can hold lone surrogates, which would fail on writing.
    return out.getvalue().encode("utf-8", errors="backslashreplace").decode("utf-8")


def _harmless(cell: Cell) -> Cell:
    if cell is None:
        return ""
    is_formula = isinstance(cell, str) and _FORMULA.match(cell) and isinstance(_cell(cell), str)
    return f"'{cell}" if is_formula else cell


def read_csv(path: Path) -> tuple[CsvRow, ...]:
    """Rows by column name, numbers as numbers and empty cells as None. Raises ConfigError where there is no header.

    Columns without a name (pandas writes its row numbers so) are left out. A file with semicolons between its columns
    may have decimal commas.
    """
    try:
        text = decode_text(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.") from None
    # Not csv.Sniffer: it guesses from the data, where a decimal comma or a date looks like a separator.
    first_line = text.lstrip().partition("\n")[0]
    separator = max(SEPARATORS, key=first_line.count)
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
    try:
        header = next((row for row in reader if any(cell.strip() for cell in row)), None)
        if header is None:
            raise ConfigError(f"{path} is empty: a CSV file needs a line with column names.")
        names = _column_names(path, header)
        return tuple(_row(path, reader.line_num, names, cells, separator) for cells in reader if cells)
    except csv.Error as error:
        raise ConfigError(f"{path} is not a CSV file: {error}.") from None


def _column_names(path: Path, header: Sequence[str]) -> list[str | None]:
    """The name of every column; None for one that is only the number of the row."""
    names = [None if _INDEX.match(name.strip()) else name.strip() for name in header]
    repeated = [name for name, count in Counter(filter(None, names)).items() if count > 1]
    if repeated:
        raise ConfigError(
            f"{path} has more than one column called {repeated[0]!r}. Remove or rename all but one: it is not clear "
            "which of them is meant."
        )
    return names


def _row(path: Path, line: int, names: Sequence[str | None], cells: Sequence[str], separator: str) -> CsvRow:
    if len(cells) > len(names) and any(cell.strip() for cell in cells[len(names) :]):
        raise ConfigError(
            f"{path}, line {line}, has {len(cells)} cells, but there are {len(names)} column names. Name every column, "
            f"and quote cells that contain a {SEPARATORS[separator]}."
        )
    # Spreadsheets use the semicolon where the comma is the decimal mark. With commas between cells, 1,5 is two cells.
    decimal_comma = separator == ";"
    row = {name: _cell(text, decimal_comma) for name, text in zip(names, cells, strict=False) if name is not None}
    for name in names[len(cells) :]:
        if name is not None:
            row[name] = None
    return row


def _cell(text: str, decimal_comma: bool = False) -> Cell:
    if not text or text.isspace():
        return None
    if decimal_comma and _DECIMAL_COMMA.match(text):
        text = text.replace(",", ".")
    # Whole numbers first: a repeat or an index must stay 3, not become 3.0, as it is part of names.
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if not abs(number) > _LARGEST:  # a whole number of a thousand digits is no measurement, and fits in no float
            return number
    text = text.strip()
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
