"""Durations, sizes and percentages as people write and read them."""

import pytest

from vernier.errors import ConfigError
from vernier.quantities import (
    age,
    duration,
    file_size,
    fraction,
    measured_duration,
    memory_size,
    parse_duration,
    rough_duration,
    rough_memory,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("3h50m", 13_800),
        ("1d", 86_400),
        ("1d2h3m4s", 93_784),
        ("03:50:00", 13_800),
        ("1-12:00:00", 129_600),
        ("1.5h", 5400),
    ],
)
def test_durations_as_people_write_them(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "3h 50m", "50m3h", "03:50", "-1h", "3:99:00", "soon"])
def test_anything_else_is_refused_with_the_forms_that_work(text: str) -> None:
    with pytest.raises(ConfigError, match="3h50m"):
        parse_duration(text)


def test_no_time_at_all_is_refused_where_it_makes_no_sense() -> None:
    assert parse_duration("0s") == 0
    with pytest.raises(ConfigError, match="3h50m"):
        parse_duration("0s", positive=True)


def test_a_duration_in_words() -> None:
    assert [duration(59.6), duration(3600)] == ["1:00", "1:00:00"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(3.2, "3 s"), (99, "99 s"), (150, "2 min"), (5400, "90 min"), (9000, "2.5 h"), (90000, "25.0 h")],
)
def test_durations_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert rough_duration(seconds) == said


def test_sizes_have_the_unit_that_fits() -> None:
    sizes = (0, 512, 999.7, 12_300, 999_600, 3_440_000, 120_000_000, 1_230_000_000, 45e9, 2.5e12, 9e15)
    texts = ["0 B", "512 B", "1 kB", "12 kB", "1.0 MB", "3.4 MB", "120 MB", "1.2 GB", "45 GB", "2.5 TB", "9000 TB"]
    assert [file_size(size) for size in sizes] == texts


def test_times_and_memory_are_for_people() -> None:
    assert [measured_duration(s) for s in (0.42, 38, 725, 12000)] == ["0.42 s", "38 s", "12 min 5 s", "3 h 20 min"]
    assert [age(s) for s in (59.6, 119, 130, 7200, 86_400 * 40)] == ["60 s", "119 s", "2 min", "2 h", "40 d"]
    assert [memory_size(n) for n in (12, 2048, 25274793984)] == ["12 bytes", "2 KiB", "23.5 GiB"]
    assert [rough_memory(n * 2**30) for n in (0.0213, 1.57, 43)] == ["0.021 GiB", "1.6 GiB", "43 GiB"]


def test_a_percentage_is_a_number_below_one() -> None:
    assert [fraction(text) for text in ("1%", " 0.5% ", "25%")] == [0.01, 0.005, 0.25]
