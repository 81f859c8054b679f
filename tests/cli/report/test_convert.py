"""`vernier convert`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.report.logs.conftest import TIMES
from tests.report.run_dirs import write_run

Runner = Callable[..., Any]


def test_a_run_is_converted_once_and_read_again(tmp_path: Path, vernier_here: Runner) -> None:
    path = write_run(tmp_path / "runs", "example", TIMES)
    target = tmp_path / "deep" / "raport.json"
    done = vernier_here("convert", str(path), "--to", "raport", "-o", str(target), "--json")
    assert (done.code, done.json()["written"]) == (0, [str(target)])
    again = vernier_here("convert", str(path), "--to", "raport", "--out", str(target))
    assert (again.code, "exists already" in again.err) == (2, True)
    compared = vernier_here("compare", str(path), str(target), "--json").json()
    assert compared["comparison"]["ratio"] == pytest.approx(1)
    assert vernier_here("convert", str(tmp_path / "no"), "--to", "raport", "--out", "x").code == 2
    empty = write_run(tmp_path / "runs", "empty", [])
    nothing = vernier_here("convert", str(empty), "--to", "mllog", "--out", str(tmp_path / "x"))
    assert (nothing.code, "nothing to convert" in nothing.err) == (2, True)
    assert not (tmp_path / "x").exists()
    several = vernier_here("convert", str(tmp_path / "runs"), "--to", "mllog", "--out", str(tmp_path / "x"))
    assert (several.code, "holds 2 runs" in several.err) == (2, True)
