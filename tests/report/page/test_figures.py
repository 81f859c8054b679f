"""Figures and how they share the width of the page."""

from typing import Any

from vernier.report.page.figures import Bars, Figure, Lines, grid, with_data


def figure(name: str, **more: Any) -> Figure:
    fields: dict[str, Any] = {"rows": [[1, 2.0]], "chart": Lines(x="x", y="y")}
    return Figure(name=name, title=name, columns=["x", "y"], **{**fields, **more})


def test_the_data_for_the_script_is_plain_and_finite() -> None:
    data = figure("a", rows=[[1, float("inf")], [2, 1 / 3]]).data()
    assert data["rows"] == [[1, None], [2, 0.3333333]]
    assert data["chart"]["type"] == "lines"
    assert "by" not in data["chart"]


def test_a_figure_that_would_stand_alone_is_wide() -> None:
    html = str(grid([figure("a"), figure("b"), figure("c")]))
    assert html.count('<figure class="wide">') == 1
    assert html.index('class="wide"') > html.index('data-figure="b"')


def test_figures_without_data_are_dropped() -> None:
    assert [f.name for f in with_data(figure("a"), None, figure("b", rows=[]))] == ["a"]


def test_only_lines_that_offer_it_have_a_button_for_the_logarithmic_axis() -> None:
    assert 'data-do="log"' in figure("a", chart=Lines(x="x", y="y", log=True)).html()
    assert 'data-do="log"' not in figure("a").html()
    assert 'data-do="log"' not in figure("a", chart=Bars(category="x", value="y")).html()
