"""Tails and quantiles against published tables, and against scipy where it is installed."""

import math

import pytest

from vernier.lab.statistics.distributions import chi2_limit, chi2_tail, f_limit, f_tail
from vernier.measure.student import t_limit, t_tail


@pytest.mark.parametrize(
    ("value", "table"),
    [
        (t_limit(0.025, 1), 12.706),
        (t_limit(0.025, 10), 2.228),
        (t_limit(0.005, 30), 2.750),
        (chi2_limit(0.05, 3), 7.815),
        (chi2_limit(0.975, 10), 3.247),
        (f_limit(0.05, 4, 10), 3.478),
        (f_limit(0.025, 10, 4), 8.844),
    ],
)
def test_published_tables(value: float, table: float) -> None:
    assert value == pytest.approx(table, abs=0.0006)


def test_small_tails_are_small_and_ordered() -> None:
    tails = [t_tail(t, 300) for t in (9, 10, 12, 20, 40)]
    assert tails == sorted(tails, reverse=True)
    assert 0 < tails[-1] < 1e-100
    assert t_tail(-3, 5) == pytest.approx(1 - t_tail(3, 5))
    assert (t_tail(math.inf, 3), t_tail(-math.inf, 3), t_tail(0, 3)) == (0, 1, 0.5)


def test_a_limit_has_its_tail() -> None:
    for freedom in (1, 2.5, 40, 3999):
        for p in (0.4, 0.025, 1e-6, 1e-12):
            assert t_tail(t_limit(p, freedom), freedom) == pytest.approx(p, rel=1e-6)
            assert chi2_tail(chi2_limit(p, freedom), freedom) == pytest.approx(p, rel=1e-6)
            assert f_tail(f_limit(p, freedom, 7), freedom, 7) == pytest.approx(p, rel=1e-6)


def test_scipy_agrees() -> None:
    stats = pytest.importorskip("scipy.stats")
    for freedom in (1.0, 3.3, 57.5, 3999.0):
        for p in (0.9, 0.3, 0.025, 1e-4, 1e-10):
            assert chi2_limit(p, freedom) == pytest.approx(stats.chi2.isf(p, freedom), rel=1e-6)
            assert f_limit(p, freedom, 12.5) == pytest.approx(stats.f.isf(p, freedom, 12.5), rel=1e-6)
            if p < 0.5:
                assert t_limit(p, freedom) == pytest.approx(stats.t.isf(p, freedom), rel=1e-6)
