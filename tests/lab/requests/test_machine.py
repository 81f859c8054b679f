"""The request of `doctor`."""

from vernier.cli.parser import parse
from vernier.lab.requests.machine import Doctor


def test_doctor_takes_only_how_to_print() -> None:
    request, _ = parse(Doctor, ["--json", "--quiet"], "doctor")
    assert request == Doctor(json=True, quiet=True)
