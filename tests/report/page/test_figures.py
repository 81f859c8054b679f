"""Figures and how they share the width of the page; sections, also of outside packages, appear at their places."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.report.plugins import Install, install
from tests.report.run_dirs import write_run
from vernier.report.page.build import Page
from vernier.report.page.figures import Bars, Figure, Lines, grid, sections, with_data

__all__ = ["install"]
PageOf = Callable[..., Page]
CARBON = """
from vernier.report.page.figures import Bars, Content, Figure, Section, grid
from vernier.report.page.runs import Run


def carbon(runs):
    rows = [[s.name, 0.4 * s.spent_s["total"]] for s in runs]
    chart = Bars(category="run", value="g")
    figures = [Figure(name="carbon", title="Carbon", chart=chart, columns=["run", "g"], rows=rows)]
    return Content(lead="Grams of carbon.", parts=[grid(figures)], figures=figures)


SECTION = Section(title="Carbon", order=25, of=Run, build=carbon)
"""


def figure(name: str, **more: Any) -> Figure:
    fields: dict[str, Any] = {"rows": [[1, 2.0]], "chart": Lines("x", "y")}
    return Figure(name, name, columns=["x", "y"], **{**fields, **more})


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
    assert 'data-do="log"' in figure("a", chart=Lines("x", "y", log=True)).html()
    assert 'data-do="log"' not in figure("a").html()
    assert 'data-do="log"' not in figure("a", chart=Bars("x", "y")).html()


def test_the_sections_of_the_laboratory_are_found_through_their_entry_points() -> None:
    names = list(sections())
    assert names[:3] == ["glance", "runs", "training"]
    assert {"hosts", "benchmarks", "profile", "devices"} <= set(names)


def test_a_section_of_an_outside_package_appears_at_its_place(
    tmp_path: Path, install: Install, page_of: PageOf
) -> None:
    install("carbon", CARBON, report_sections="SECTION")
    page = page_of(write_run(tmp_path, "one", [0.1] * 20))
    names = [s.name for s in page.sections]
    assert names.index("carbon") == names.index("training") + 1
    assert [row[1] for row in page.figures["carbon"].rows] == pytest.approx([0.8])
    assert '<a href="#carbon">Carbon</a>' in page.html()
    assert "Grams of carbon." in page.html()


def test_a_section_that_cannot_be_loaded_is_named_on_the_page(
    tmp_path: Path, install: Install, page_of: PageOf
) -> None:
    install("broken_carbon", "import no_such_library", report_sections="SECTION")
    page = page_of(write_run(tmp_path, "one", [0.1] * 20))
    assert "training" in {s.name for s in page.sections}
    assert "Could not be loaded: broken_carbon:SECTION (No module named &#39;no_such_library&#39;)" in page.html()
