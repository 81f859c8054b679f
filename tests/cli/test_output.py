"""What all commands print through."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Done
from vernier.cli.output import print_json, print_rows, rough_duration


def _strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_has_no_infinities_and_says_where_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [1.5, math.inf, {"b": math.nan}], "c": (-math.inf,), "d": "Infinity"})
    out, errors = capsys.readouterr()
    assert _strict(out) == {"a": [1.5, None, {"b": None}], "c": [None], "d": "Infinity"}
    assert errors == "not a finite number, null in the JSON: a[1], a[2].b, c[0]\n"
    print_json({"a": 1.0})
    assert capsys.readouterr().err == ""


def test_infinities_of_a_foreign_file_do_not_break_the_json(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    table = tmp_path / "fleet.csv"
    rows = [f"{d},{t},{w}" for d in range(6) for t, w in ((1.0 + d / 100, "inf"), (1.01 + d / 100, "200"))]
    table.write_text("\n".join(["device,time_s,watts", *rows, "7,inf,100", "7,nan,100", "7,1e400,-inf"]) + "\n")
    columns = "step_time=time_s,device=device,power=watts"
    done = vernier_here("study", "analyze", str(table), "--columns", columns, "--json")
    assert done.code == 0, done.err
    found = _strict(done.out)
    assert found["runs"] == 12
    assert found["notes"][0] == "fleet.csv: 3 row(s) with no value: dropped"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(3.2, "3 s"), (99, "99 s"), (150, "2 min"), (5400, "90 min"), (9000, "2.5 h"), (90000, "25.0 h")],
)
def test_durations_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert rough_duration(seconds) == said


ROWS = [{"name": "a" * 30, "global_batch": 2048, "source": "b" * 30, "about": "word " * 12}] * 2


@pytest.mark.parametrize(
    ("width", "left_out"),
    [(200, []), (100, ["source"]), (66, ["source", "global_batch"]), (30, ["source", "global_batch"])],
)
def test_columns_that_do_not_fit_a_terminal_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, left_out: list[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    print_rows(ROWS, False, droppable=("source", "global_batch"), wrapped="about")
    out, errors = capsys.readouterr()
    shown = f"not shown: {', '.join(left_out)} (a wider terminal or --json has them)\n" if left_out else ""
    assert errors == shown
    assert ("b" * 30 in out) is ("source" not in left_out)
    assert ("2,048" in out) is ("global_batch" not in left_out)


def test_a_table_without_a_terminal_is_wide(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, False)
    out, errors = capsys.readouterr()
    assert "global_batch" in out
    assert errors == ""
