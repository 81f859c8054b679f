"""Counts and rough figures in words."""

from vernier.wording import plural, two_digits


def test_numbers_become_words() -> None:
    assert [plural(1, "process"), plural(2, "process"), plural(1000, "step")] == [
        "1 process",
        "2 processes",
        "1,000 steps",
    ]


def test_rough_figures_have_two_digits() -> None:
    assert [two_digits(v) for v in (0.0, 0.0213, 1.63, 43.2, 268.0, 1234.0)] == [
        "0",
        "0.021",
        "1.6",
        "43",
        "270",
        "1,200",
    ]
