"""Reports and conversions as functions of Python."""

from pathlib import Path

import pytest

import vernier as v
from tests.lab.logs.conftest import TIMES
from tests.report.run_dirs import write_run


def test_a_report_is_written_and_its_path_returned(tmp_path: Path) -> None:
    run = write_run(tmp_path, "run", TIMES)
    assert v.report(run, out=tmp_path / "page.html") == tmp_path / "page.html"
    assert "<html" in (tmp_path / "page.html").read_text()


def test_a_log_is_converted_once(tmp_path: Path) -> None:
    run, out = write_run(tmp_path, "run", TIMES), tmp_path / "raport.json"
    converted = v.convert(run, to="raport", out=out)
    assert (converted.format, converted.written) == ("raport", (out,))
    with pytest.raises(v.ConfigError, match="exists already"):
        v.convert(run, to="raport", out=out)
