"""The rows of a plan: which batch, how many digits, and the range."""

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import load_benchmark
from vernier.config import Model
from vernier.errors import ConfigError
from vernier.lab.planning.plan import NETWORKS, Workload
from vernier.lab.planning.table import (
    LEAST_BATCH,
    divide_batch,
    divisors_near,
    plan_rows,
    published_shares,
    round_to_range,
    table_rows,
)
from vernier.models.cost import cost_of

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


# ----------------------------------------------------------------------------------------------------- published tables


TABLES = load_benchmark("plan_accuracy")


def _row(system: str, model: str, precision: str, devices: int) -> Any:
    (row,) = [
        r
        for r in TABLES.published_speeds()
        if r.system.startswith(system)
        and r.model.startswith(model)
        and (r.precision, r.devices) == (precision, devices)
    ]
    return row


@pytest.mark.parametrize(
    "case",
    [(1, 8, "tf32"), (1, 8, "bf16"), (1, 8, "fp16"), (1, 8, None), (2, 16, "bf16"), (64, 512, None), (1, 1, None)],
)
def test_the_shares_are_those_of_the_published_tables(case: tuple[int, int, str | None]) -> None:
    known, computed = published_shares(*case), TABLES.published_shares(*case)
    for name in ("low", "typical", "high"):
        assert getattr(known, name) == pytest.approx(getattr(computed, name), abs=1e-6)


def test_the_smallest_batch_is_that_of_the_published_tables() -> None:
    assert min(row.device_batch for row in TABLES.published_speeds()) == LEAST_BATCH


def test_bases_are_those_of_the_same_table() -> None:
    eight = _row("DGX-1V, NVIDIA", "resnet50", "mixed", 8)
    assert (eight.base_images_per_s, eight.images_per_s, eight.device_batch) == (747.3, 5815.8, 256)
    assert _row("DGX-2V, NVIDIA", "resnet50", "fp32", 16).base_images_per_s == 363.1  # of the DGX-1 of that document
    assert _row("HLS-1, Habana, SynapseAI", "resnet50, Gaudi, TensorFlow Keras, SGD", "mixed", 32).hosts == 4
    assert _row("DGX-2, MXNet", "ResNet-50", "fp32", 16).hosts == 1


def test_the_model_alone_is_right_in_full_precision_and_too_high_in_mixed_precision() -> None:
    full, mixed = (_row("DGX A100, NVIDIA DeepLearningExamples 2021", "resnet50", p, 8) for p in ("tf32", "mixed"))
    assert TABLES.predict_published(full) / full.images_per_s == pytest.approx(1.014, abs=0.005)
    assert TABLES.predict_published(mixed) / mixed.images_per_s == pytest.approx(1.163, abs=0.005)


def test_the_range_covers_nine_in_ten_of_the_systems_that_were_left_out() -> None:
    rows, speeds = TABLES.check_rows(), TABLES.published_speeds()
    assert len(rows) == len(speeds) > 100
    assert sum(row.in_range for row in rows) / len(rows) >= TABLES.LEVEL
    for several in (False, True):
        group = [row for row, speed in zip(rows, speeds, strict=True) if (speed.hosts > 1) == several]
        assert sum(row.in_range for row in group) / len(group) >= TABLES.LEVEL


def test_the_mixed_precision_of_2021_is_in_the_range_of_other_systems() -> None:
    rows = [r for r in TABLES.check_rows() if "NVIDIA DeepLearningExamples 2021" in r.system and "mixed" in r.what]
    assert len(rows) == 9
    assert all(row.in_range for row in rows)
    assert max(row.error_percent for row in rows) < 12.5  # the model alone: +12 to +20 %


def test_a_system_has_no_part_in_its_own_prediction() -> None:
    everything = TABLES.published_shares(2, 16, None)
    without = TABLES.published_shares(2, 16, None, "DGX-1, TensorFlow 2")
    assert without.typical > everything.typical
    assert TABLES.published_shares(2, 16, None, "no such system") == everything


def test_shares_by_precision_and_hosts() -> None:
    full, mixed, several = (
        published_shares(1, 8, "tf32"),
        published_shares(1, 8, "bf16"),
        published_shares(4, 32, "tf32"),
    )
    assert full.typical > mixed.typical > several.typical
    assert full.high / full.low < mixed.high / mixed.low < several.high / several.low
    assert published_shares(1, 8, "fp16") == mixed
    assert published_shares(1, 1, None).low == published_shares(1, 1, None).high == 1
    assert all(s.low < s.typical < s.high < 1.06 for s in (full, mixed, several, published_shares(1, 8, None)))


def test_each_system_counts_once() -> None:
    """Student's interval over systems, computed here by hand for several hosts."""
    by_system: dict[str, list[float]] = {}
    for row in TABLES.published_speeds():
        if row.hosts > 1:
            by_system.setdefault(row.system, []).append(math.log(row.images_per_s / TABLES.predict_published(row)))
    means = [sum(values) / len(values) for values in by_system.values()]
    assert TABLES.published_shares(8, 64, None).typical == pytest.approx(math.exp(sum(means) / len(means)))


def test_errors_by_system() -> None:
    systems = TABLES.errors_by_system()
    assert sum(s.rows for s in systems) == len(TABLES.check_rows())
    assert sum(s.in_range for s in systems) == sum(r.in_range for r in TABLES.check_rows())
    assert [s.highest_percent for s in systems] == sorted(s.highest_percent for s in systems)


# --------------------------------------------------------------------------------------------------------- conversions


def test_only_speeds_of_one_device_are_converted_into_each_other() -> None:
    rows, speeds = TABLES.conversion_rows(), TABLES.known_speeds()
    counts = [sum(s.device == device for s in speeds) for device in {s.device for s in speeds}]
    assert len(rows) == sum(n * (n - 1) for n in counts)
    there = next(r for r in rows if (r.converted_from, r.to) == ("resnet50 at 224 px", "resnext101-32x4d at 224 px"))
    back = next(r for r in rows if (r.converted_from, r.to) == (there.to, there.converted_from))
    assert (1 + there.error_percent / 100) * (1 + back.error_percent / 100) == pytest.approx(1, abs=0.01)


def test_the_operations_are_those_of_the_catalogue() -> None:
    for speed in TABLES.known_speeds():
        name, *changed = speed.network.split(", ")
        if not changed and not name.startswith("ssd"):
            assert cost_of(Model(name=name), px=speed.image_px).gmac == pytest.approx(speed.gmac, rel=1e-3), (
                speed.network
            )
