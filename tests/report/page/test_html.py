"""Pieces of HTML."""

from vernier.report.page.html import Shown, facts, measured, number, seconds, size_of, table, tag, when


def test_attributes_and_cells_are_escaped() -> None:
    assert tag("p", '<"', title='"x') == '<p title="&#34;x">&lt;&#34;</p>'
    assert "<b>" not in table("t", ["<b>"], [["<b>"]], "<b>")


def test_numbers_and_durations_are_for_people() -> None:
    assert [number(v) for v in (None, True, 12345, 12345.6, 1234.56, 0.123456)] == [
        "\u2013",
        "yes",
        "12,345",
        "12,346",
        "1,234.6",
        "0.1235",
    ]
    assert [seconds(s) for s in (0.42, 38, 725, 12000)] == ["0.42 s", "38 s", "12 min 5 s", "3 h 20 min"]


def test_facts_without_a_value_are_left_out() -> None:
    assert facts([("model", "resnet50"), ("data", ""), ("host", None)]).count("<dt>") == 1


def test_a_column_has_one_format_and_a_shown_number_keeps_its_value() -> None:
    html = table("t", ["ms", "img/s"], [[3600.54, Shown(4.424, "4.4 (3.6 to 5.4)")], [0.7241, None]])
    assert [text for text in (">3,601<", ">1<") if text not in html] == []
    assert 'data-v="4.424">4.4 (3.6 to 5.4)<' in html


def test_figures_sizes_and_times_are_for_people() -> None:
    assert measured(4.424, 3.63, 5.393) == ("4.4", "95 %: 3.6 to 5.4")
    assert measured(9787.4, None, None) == ("9,790", "")
    assert measured(100.0, 90.0, None) == ("100", "95 %: above 90")
    assert [size_of(n) for n in (12, 2048, 25274793984)] == ["12 bytes", "2 KiB", "23.5 GiB"]
    assert when("2026-11-16T14:41:50.123+00:00") == "2026-11-16 14:41 UTC"
    assert when(None) == ""
