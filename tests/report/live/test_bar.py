"""What fits into a line."""

import pytest

from vernier.report.live.bar import fitting


@pytest.mark.parametrize(
    ("columns", "text"), [(3, ""), (5, "eta 1"), (11, "eta 1"), (13, "eta 1  loss 2"), (99, "eta 1  loss 2  x")]
)
def test_the_first_parts_are_shown_as_far_as_they_fit(columns: int, text: str) -> None:
    assert fitting(("eta 1", "loss 2", "x"), columns) == text
