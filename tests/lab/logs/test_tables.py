"""Files of studies that are no logs of runs are recognized by their text."""

import pytest

from vernier.lab.logs.tables import DURATIONS, is_table


@pytest.mark.parametrize(
    ("text", "expected"),
    [("step,loss\n1,2\n2,3\n", True), ("a;b\n1;2\n", True), ("one line\n", False), ("a, b\nno more\nat all\n", False)],
)
def test_a_table_has_as_many_cells_in_most_lines(text: str, expected: bool) -> None:
    assert is_table(text) is expected


def test_iteration_durations_are_described_and_not_read() -> None:
    assert DURATIONS.recognizes is not None
    assert DURATIONS.recognizes("Iteration Duration 0 0 : 0.5\n")
    assert DURATIONS.read is None
    assert "study analyze" in DURATIONS.about
