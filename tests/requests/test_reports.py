"""What `compare`, `report` and `convert` take."""

import pytest

from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.requests.reports import Convert, Report


def test_a_report_takes_any_number_of_runs() -> None:
    assert parse(Report, ["a", "b", "-o", "x"], "report")[0] == Report(runs=("a", "b"), out="x")
    with pytest.raises(ConfigError) as refused:
        Report(runs=("a",), port=99999)
    assert refused.value.given == {"port": 99999}


def test_a_format_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="raport") as refused:
        Convert(run="a", to="rapport", out="x")  # type: ignore[arg-type]
    assert refused.value.given == {"to": "rapport"}
