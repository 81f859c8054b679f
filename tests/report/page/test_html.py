"""Pieces of HTML."""

from vernier.report.page.html import Shown, table, tag


def test_attributes_and_cells_are_escaped() -> None:
    assert tag("p", '<"', title='"x') == '<p title="&#34;x">&lt;&#34;</p>'
    assert "<b>" not in table("t", ["<b>"], [["<b>"]], "<b>")


def test_a_column_has_one_format_and_a_shown_number_keeps_its_value() -> None:
    html = table("t", ["ms", "img/s"], [[3600.54, Shown(4.424, "4.4 (3.6 to 5.4)")], [0.7241, None]])
    assert [text for text in (">3,601<", ">1<") if text not in html] == []
    assert 'data-v="4.424">4.4 (3.6 to 5.4)<' in html
