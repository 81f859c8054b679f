"""The rows of a plan: which batch, how many digits, and the range."""

from dataclasses import replace

import pytest

from vernier.errors import ConfigError
from vernier.lab.planning.plan import NETWORKS, Workload
from vernier.lab.planning.published import published_shares
from vernier.lab.planning.table import divide_batch, divisors_near, plan_rows, round_to_range, table_rows

WORK = Workload(images_per_s=1000, measured_batch=100, gradient_bytes=100_000_000, half_batch=0, spread=0)
FAST = NETWORKS["dgx-h100"]


def test_the_global_batch_stays_as_far_as_every_device_has_an_image() -> None:
    assert divide_batch([8, 64, 256, 512], 256) == {8: 256, 64: 256, 256: 256}
    with pytest.raises(ConfigError, match="512 devices would have less than one image each"):
        divide_batch([512, 1024], 256)


def test_time_and_energy() -> None:
    one, two = plan_rows(replace(WORK, watts=500), {1: 100, 2: 200}, 100, FAST, 3_600_000)
    assert (one.hours, one.kwh) == (1.0, 0.5)
    assert two.kwh == pytest.approx(2 * 0.5 * two.hours, abs=0.01)
    assert plan_rows(WORK, {1: 100}, 100, FAST, 3_600_000)[0].kwh is None


def test_the_range_is_that_of_published_tables_times_that_of_the_speed() -> None:
    work = replace(WORK, speed_span=(0.5, 2.0))
    (one,) = plan_rows(work, {1: 100}, 100, FAST, 3_600_000)
    assert one.img_per_s_range == (500, 2000)
    assert one.hours_range == (0.5, 2.0)
    assert one.limit == "compute"
    (many,) = plan_rows(work, {64: 6400}, 100, FAST, 3_600_000)
    shares = published_shares(8, 64, None)
    low, high = shares.low / shares.typical, shares.high / shares.typical
    assert many.img_per_s_range == pytest.approx(
        (0.5 * low * many.img_per_s_total, 2 * high * many.img_per_s_total), rel=1e-3
    )
    assert many.model_share == pytest.approx(shares.typical, rel=1e-3)
    assert many.limit == "other"


def test_precision_narrows_the_range() -> None:
    full, mixed = (plan_rows(replace(WORK, precision=p), {8: 800}, 800, FAST, 3.6e6)[0] for p in ("fp32", "bf16"))
    assert full.efficiency_percent > mixed.efficiency_percent
    assert full.efficiency_range[0] > mixed.efficiency_range[0]


def test_a_batch_that_does_not_divide() -> None:
    even, odd = plan_rows(WORK, {8: 2048, 12: 2048}, 2048, FAST, 3_600_000)
    assert (even.divides, odd.divides) == (True, False)
    assert divisors_near(12, 2048) == [8, 16]
    assert divisors_near(12, 12) == [12]
    assert divisors_near(7, 9) == [3, 9]


def test_a_batch_that_is_not_the_recipes_is_marked_in_every_row() -> None:
    rows = plan_rows(WORK, {1: 100, 2: 200}, 100, FAST, 3_600_000)
    assert [row.recipes_batch for row in rows] == [True, False]
    assert table_rows(rows)[1]["global batch"] == "200 (not the recipe's)"


@pytest.mark.parametrize(
    ("values", "low", "high", "shown"),
    [
        ([10337.2], 8600, 10700, ["10,300"]),
        ([19345.0, 16200, 19500], 16200, 19500, ["19,300", "16,200", "19,500"]),
        ([1.6553], 1.64, 1.98, ["1.66"]),
        ([5.71, 1.2, 41.7], 1.2, 41.7, ["5.7", "1.2", "42"]),
        ([2470.0], 2470, 2470, ["2,470"]),
    ],
)
def test_numbers_have_the_digits_that_their_range_supports(
    values: list[float], low: float, high: float, shown: list[str]
) -> None:
    assert round_to_range(values, low, high) == shown


@pytest.mark.parametrize(("images", "column"), [(7_200_000, "hours (range)"), (360_000, "minutes (range)")])
def test_times_are_in_the_unit_that_people_would_use(images: int, column: str) -> None:
    assert column in table_rows(plan_rows(WORK, {1: 100}, 100, FAST, images))[0]
