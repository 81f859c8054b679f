"""Reports and conversions as functions of Python."""

from pathlib import Path

import pytest

import vernier as v
from tests.report.logs.conftest import TIMES
from tests.report.run_dirs import write_run
from vernier.api.reports import check_live, write_report
from vernier.requests.reports import Report


def test_a_report_is_written_and_its_path_returned(tmp_path: Path) -> None:
    run = write_run(tmp_path, "run", TIMES)
    assert v.report(run, out=tmp_path / "page.html") == tmp_path / "page.html"
    assert "<html" in (tmp_path / "page.html").read_text()


def test_options_of_the_live_report_are_refused_without_it(tmp_path: Path) -> None:
    with pytest.raises(v.ConfigError) as refused:
        write_report(Report(runs=(str(tmp_path),), port=8000))
    assert (refused.value.given, refused.value.works) == ({"port": 8000}, [("watch", True)])
    with pytest.raises(v.ConfigError) as refused:
        check_live(Report(runs=(str(tmp_path),), watch=True, out="x.html"))
    assert refused.value.given == {"watch": True, "out": "x.html"}


def test_a_log_is_converted_once(tmp_path: Path) -> None:
    run, out = write_run(tmp_path, "run", TIMES), tmp_path / "raport.json"
    converted = v.convert(run, to="raport", out=out)
    assert (converted.format, converted.written) == ("raport", (out,))
    with pytest.raises(v.ConfigError, match="exists already"):
        v.convert(run, to="raport", out=out)
