import pytest

from vernier.measure.statistics.estimates import share_interval


def test_wilsons_interval_is_that_of_the_books() -> None:
    """scipy.stats.binomtest(k, n).proportion_ci(method="wilson") is the judge."""
    stats = pytest.importorskip("scipy.stats")
    for hits, n in ((0, 10), (5, 10), (977, 1000), (50_000, 50_000)):
        judge = stats.binomtest(hits, n).proportion_ci(method="wilson")
        assert share_interval(hits, n) == pytest.approx((judge.low, judge.high), abs=1e-9)
