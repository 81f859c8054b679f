"""Pieces of HTML."""

from vernier.report.page.html import facts, number, seconds, table, tag


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
