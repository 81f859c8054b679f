"""What `report` takes."""

from vernier.cli.parser import parse
from vernier.requests.reports import Report


def test_a_report_takes_any_number_of_runs() -> None:
    assert parse(Report, ["a", "b", "-o", "x"], "report")[0] == Report(runs=("a", "b"), out="x")
