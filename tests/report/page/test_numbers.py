"""Numbers as the page shows them."""

from vernier.report.page.numbers import measured, number, when


def test_numbers_are_for_people() -> None:
    assert [number(v) for v in (None, True, 12345, 12345.6, 1234.56, 0.123456)] == [
        "\u2013",
        "yes",
        "12,345",
        "12,346",
        "1,234.6",
        "0.1235",
    ]


def test_figures_and_times_are_for_people() -> None:
    assert measured(4.424, 3.63, 5.393) == ("4.4", "95 %: 3.6 to 5.4")
    assert measured(9787.4, None, None) == ("9,790", "")
    assert measured(100.0, 90.0, None) == ("100", "95 %: above 90")
    assert when("2026-11-16T14:41:50.123+00:00") == "2026-11-16 14:41 UTC"
    assert when(None) == ""
