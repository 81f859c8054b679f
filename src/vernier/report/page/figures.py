"""Figures: a small table of raw data and which of its columns is drawn how. The page draws from the same table that it shows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from markupsafe import Markup

from vernier.report.page.html import tag

PHASE_COLOURS = {"data": 4, "copy": 5, "forward": 0, "backward": 1, "optimizer": 2, "communication": 3, "idle": 7}
Row = Sequence[str | int | float | bool | None]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart. `chart` holds its `type` (lines, bars, stack, boxes, scatter, heat) and the columns it uses, by role."""

    name: str
    title: str
    chart: dict[str, Any]
    columns: Sequence[str]
    rows: Sequence[Row]
    caption: str = ""
    wide: bool = False

    def html(self) -> Markup:
        """The place where the script draws it, with its tools and its data."""
        log = self.chart["type"] == "lines" and self.chart.get("log")
        tools = tag(
            "div",
            tag(
                "button",
                "log",
                type="button",
                data_do="log",
                data_figure=self.name,
                aria_pressed="false",
                title="logarithmic axis",
            )
            if log
            else None,
            tag("button", "SVG", type="button", data_do="svg", data_figure=self.name, title="save the picture"),
            tag("button", "CSV", type="button", data_do="csv", data_figure=self.name, title="save the data"),
            cls="figure-tools",
        )
        caption = tag(
            "figcaption", tag("h3", self.title), tools, tag("p", self.caption, cls="caption") if self.caption else None
        )
        data = tag(
            "details",
            tag("summary", f"data, {len(self.rows):,} rows"),
            tag("div", cls="data-table"),
            cls="data",
            data_figure=self.name,
        )
        return tag(
            "figure", caption, tag("div", cls="plot", data_figure=self.name), data, cls="wide" if self.wide else None
        )

    def data(self) -> dict[str, Any]:
        """For the script: plain values, floats to seven digits."""
        rows = [[_rounded(v) for v in row] for row in self.rows]
        return {"title": self.title, "chart": self.chart, "columns": list(self.columns), "rows": rows}


def _rounded(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    if value != value or value in (float("inf"), float("-inf")):
        return None
    return float(f"{value:.7g}")


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page, made of HTML and the figures in it."""

    name: str
    title: str
    html: Markup
    figures: list[Figure] = field(default_factory=list)


def grid(figures: Iterable[Figure]) -> Markup:
    """Figures two by two where there is room; one that would stand alone takes the whole width."""
    placed: list[Figure] = []
    alone = False
    for figure in [*figures, None]:
        if (figure is None or figure.wide) and alone and placed:
            placed[-1] = replace(placed[-1], wide=True)
        alone = figure is not None and not figure.wide and not alone
        placed += [figure] if figure is not None else []
    return tag("div", *(f.html() for f in placed), cls="grid")
