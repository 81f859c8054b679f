"""Student's t; `tests.lab.statistics.test_distributions` compares it with tables and scipy."""

import pytest

from vernier.measure.student import t_limit, t_tail


@pytest.mark.parametrize(("freedom", "limit"), [(1, 12.706), (5, 2.571), (30, 2.042), (1e6, 1.960)])
def test_limits_of_printed_tables(freedom: float, limit: float) -> None:
    assert round(t_limit(0.025, freedom), 3) == limit
    assert t_tail(limit, freedom) == pytest.approx(0.025, rel=1e-3)
