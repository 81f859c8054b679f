"""The unit of a column of times, from what else its rows hold."""

import pytest

from vernier.lab.reading.csv_tables import CsvRow
from vernier.lab.reading.units import infer_unit, name_without_unit, unit_in_name


@pytest.mark.parametrize(
    ("row", "unit", "why"),
    [
        ({"perf": 2454.7, "kern_min_start": 290.3, "kern_max_start": 533.3, "num_kerns": 100}, "ms", "2.5 s apart"),
        ({"perf": 2.4547e9, "kern_min_start": 290.3, "kern_max_start": 533.3, "num_kerns": 100}, "ns", "2.5 s apart"),
        ({"perf": 0.419, "mean_iter_ms": 500.0}, "s", "'mean_iter_ms' of the same rows"),
        ({"perf": 419.0, "mean_iter_dur": 1006.7, "train_time": 669.3}, "ms", "1,600 iterations"),
        ({"perf": 0.419, "mean_iter_dur": 1.0067, "train_time": 669.3}, "s", "1,600 iterations"),
        ({"perf": 242.929, "mean_iter_dur": 0.3377, "train_time": 94.6}, "ms", "390 iterations"),
        ({"perf": 242.929, "perf_s": 0.242929, "mean_iter_dur": 0.3377, "train_time": 94.6}, "ms", "'perf_s'"),
    ],
)
def test_a_unit_that_alone_fits(row: CsvRow, unit: str, why: str) -> None:
    inferred = infer_unit([row, row], "perf")
    assert inferred is not None
    assert inferred[0] == unit
    assert why in inferred[1]


@pytest.mark.parametrize(
    "row",
    [
        {"perf": 110.0},
        {"perf": 110.0, "train_time": "1:02"},
        {"perf": 110.0, "train_time": None},
        {"perf": 1.0, "train_time": 5.0},  # 5 iterations of 1 s or 5,000 of 1 ms
        {"perf": 110.0, "kern_min_start": 5.0, "kern_max_start": 5.0, "num_kerns": 1},
        {"perf": 110.0, "max_speed_img/s": 12.0},
    ],
)
def test_what_does_not_tell_it(row: CsvRow) -> None:
    assert infer_unit([row], "perf") is None


def test_units_in_names() -> None:
    names = ("time_ms", "duration (us)", "time [s]", "speed img/s", "uuid", "perf", "steps")
    assert [unit_in_name(n) for n in names] == ["ms", "us", "s", "img/s", None, None, None]
    assert [name_without_unit(n) for n in names[:5]] == ["time", "duration", "time", "speed", "uuid"]
