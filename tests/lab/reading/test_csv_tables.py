"""CSV of others: what is read, and what is refused with a reason."""

import csv
import io
from pathlib import Path

import pytest

from vernier.errors import ConfigError
from vernier.lab.reading.csv_tables import CsvRow, csv_text, decode_text, read_csv


def _file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    rows = [{"name": "a, b", "n": 1, "x": None}, {"name": "c", "n": 2.5, "x": "y"}]
    assert list(read_csv(_file(tmp_path / "x.csv", csv_text(["name", "n", "x"], rows)))) == rows


def test_short_rows_have_no_value_and_empty_lines_are_no_rows(tmp_path: Path) -> None:
    assert read_csv(_file(tmp_path / "x.csv", "\na,b\n1\n\n2,3,\n")) == ({"a": 1, "b": None}, {"a": 2, "b": 3})


def test_decimal_commas_only_where_semicolons_separate(tmp_path: Path) -> None:
    assert read_csv(_file(tmp_path / "x.csv", "a;b\n1,5;x,y\n")) == ({"a": 1.5, "b": "x,y"},)
    assert read_csv(_file(tmp_path / "y.csv", 'a,b\n"1,5",2\n')) == ({"a": "1,5", "b": 2},)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("uuid,perf, perf\na,1,2\n", "more than one column called 'perf'. Remove or rename all but one"),
        ("uuid,perf\n1,a,110\n", "line 2, has 3 cells, but there are 2 column names"),
        ("\n \n", "is empty: a CSV file needs a line with column names"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_csv(_file(tmp_path / "x.csv", text))


def test_text_with_zeros_that_is_not_utf_16() -> None:
    assert decode_text(b"plain") == "plain"
    assert decode_text(b"a\x00b and much more text without zeros") == "a\x00b and much more text without zeros"
    assert decode_text(b"\xff") == "\ufffd"
    assert decode_text(b"") == ""


def test_names_are_no_formulas_of_a_spreadsheet_and_come_back_as_they_were(tmp_path: Path) -> None:
    names = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "'=1", "-1.5", "gpu-0", "it's"]
    rows: list[CsvRow] = [{"device": name, "seconds": -0.5} for name in names]
    text = csv_text(("device", "seconds"), rows)
    cells = [row[0] for row in csv.reader(io.StringIO(text))][1:]
    assert [cell for cell in cells if cell[:1] in "=+-@\t"] == ["-1.5"]
    (tmp_path / "a.csv").write_text(text)
    back = [row["device"] for row in read_csv(tmp_path / "a.csv")]
    assert back == [-1.5 if name == "-1.5" else name for name in names]
