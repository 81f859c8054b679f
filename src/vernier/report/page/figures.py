"""Figures: a small table of raw data, and a chart that names the columns to draw. The page also shows the table.

The chart types here are those of `assets/charts.js` and `assets/plots.js`, which read their fields by the same names.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any

from markupsafe import Markup

from vernier.frozen import frozen
from vernier.records.codec import encode, omitted
from vernier.wording import plural

from .html import div, section, tag

# Data is 4, computing 0 and communication 3 in the other stacked charts, too: one thing has one color on the page.
PHASE_COLOURS = {"data": 4, "copy": 5, "forward": 0, "backward": 1, "optimizer": 2, "communication": 3, "idle": 7}
COLOURS = 12  # s0 to s11 and c0 to c11 of style.css
SAVE_BUTTONS = {
    "copy": ("copy", "copy the picture, for slides"),
    "png": ("PNG", "save the picture, for slides"),
    "svg": ("SVG", "save the drawing"),
    "csv": ("CSV", "save the data"),
}
Row = Sequence[str | int | float | bool | None]


@frozen
class Lines:
    """One line per value of `by`, dashed by `dash`, with whiskers from `low` to `high`. `zero`: the axis starts at 0.

    `smooth` and `log` offer smoothing and a logarithmic axis; `colours` are the values of `by` on the whole page, whose
    names stand once in the section. `x_ranges` are the columns that a reader can have as the x axis, `x` at first, with
    what is drawn until a reader zooms: charts side by side have the same axis. Rows with `best` are marked.
    """

    x: str
    y: str
    by: str | None = omitted()
    dash: str | None = omitted()
    low: str | None = omitted()
    high: str | None = omitted()
    marks: bool = False
    zero: bool = False
    smooth: bool = False
    log: bool = False
    log_x: bool = False
    unit: str = ""
    x_title: str | None = omitted()
    y_title: str | None = omitted()
    x_ranges: dict[str, tuple[float, float]] | None = omitted()
    best: str | None = omitted()
    colours: tuple[str, ...] | None = omitted()


@frozen
class Bars:
    """Horizontal bars: one group per category, one bar per value of `by`."""

    category: str
    value: str
    by: str | None = omitted()
    low: str | None = omitted()
    high: str | None = omitted()
    max: float | None = omitted()
    unit: str = ""
    x_title: str | None = omitted()


@frozen
class Stack:
    """One stacked bar per category, all of the same length. `part_colours` are numbers of the page's colours."""

    category: str
    part: str
    value: str
    unit: str
    part_colours: dict[str, int]


@frozen
class Boxes:
    """Tukey's box and every value as a dot, one row per category. `flag` colours dots, `line` is a reference value."""

    category: str
    value: str
    name: str
    flag: str | None = omitted()
    line: float | None = omitted()
    x_title: str | None = omitted()


@frozen
class Scatter:
    """One dot per row, with whiskers from `low` to `high`. A button hides rows where `disturbed` is not empty."""

    x: str
    y: str
    name: str
    low: str | None = omitted()
    high: str | None = omitted()
    flag: str | None = omitted()
    disturbed: str | None = omitted()
    line: float | None = omitted()
    x_title: str | None = omitted()
    y_title: str | None = omitted()


@frozen
class Heat:
    """A heat map. `good`: the diagonal is correct; `diverging`: from -`most` to `most`; `cell` is a width in px."""

    row: str
    column: str
    value: str
    cell: int
    good: bool = False
    diverging: bool = False
    most: float | None = omitted()
    x_title: str | None = omitted()


@frozen
class Runs:
    """A table of runs to search, sort and group: see `assets/runs.js`.

    `groups` are columns to group by, `digits` those after the point by column; `hidden` columns are searched and saved.
    `briefly`: some runs are on the page with nothing but their row.
    """

    groups: tuple[str, ...]
    digits: dict[str, int]
    hidden: tuple[str, ...]
    briefly: bool


@frozen
class Figure:
    """A chart with its data. `name` is unique on the page; `wide` figures take the whole width."""

    name: str
    title: str
    chart: Lines | Bars | Stack | Boxes | Scatter | Heat | Runs
    columns: Sequence[str]
    rows: Sequence[Row]
    caption: str = ""
    wide: bool = False

    def html(self) -> Markup:
        """The frame in which the script draws it, with its tools and its data."""
        # Buttons have no onclick, which the content security policy forbids: page.js acts on data-do.
        switches = {
            "log": ("log", "logarithmic axis", isinstance(self.chart, Lines) and self.chart.log),
            "disturbed": (
                "hide disturbed",
                "leave out runs that were disturbed",
                isinstance(self.chart, Scatter) and self.chart.disturbed is not None,
            ),
        }
        tools = div(
            "figure-tools",
            *(
                tag("button", text, type="button", data_do=do, data_figure=self.name, aria_pressed="false", title=title)
                for do, (text, title, offered) in switches.items()
                if offered
            ),
            *(
                tag("button", text, type="button", data_do=do, data_figure=self.name, title=title)
                for do, (text, title) in SAVE_BUTTONS.items()
            ),
        )
        heading = tag("figcaption", tag("h3", self.title), tools)
        caption = tag("p", self.caption, cls="caption") if self.caption else None
        data = tag(
            "details",
            tag("summary", f"data, {plural(len(self.rows), 'row')}"),
            div("data-table"),  # filled when a reader opens it, from the same rows as the chart
            cls="data",
            data_figure=self.name,
        )
        plot = div("plot", data_figure=self.name)
        return tag("figure", heading, plot, caption, data, cls="wide" if self.wide else None)

    def data(self) -> dict[str, Any]:
        """For the script: plain values, floats to seven digits; texts that occur often by their number in `texts`."""
        rows = [[_round(v) for v in row] for row in self.rows]  # a copy: texts are replaced in place below
        chart = {"type": type(self.chart).__name__.lower(), **encode(self.chart)}  # plots.js selects the function by it
        texts: dict[str, list[str]] = {}
        for i, name in enumerate(self.columns):
            # Names of runs repeat in every row: a number per row and one list of texts make the page smaller. page.js
            # puts the texts back. With fewer repetitions the list would save little.
            distinct = dict.fromkeys(row[i] for row in rows)
            if 4 * len(distinct) < len(rows) and all(isinstance(text, str) for text in distinct):
                numbers = {text: number for number, text in enumerate(distinct)}
                texts[name] = list(numbers)
                for row in rows:
                    row[i] = numbers[row[i]]
        return {"title": self.title, "chart": chart, "columns": list(self.columns), "texts": texts, "rows": rows}


def _round(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.7g}") if math.isfinite(value) else None  # JSON has no NaN and no infinity: a gap in the line


@frozen
class Section:
    """A part of the page, made of HTML and the figures in it."""

    name: str
    title: str
    html: Markup
    figures: list[Figure] = field(default_factory=list)


def make_section(name: str, title: str, lead: str, *parts: Any, figures: Sequence[Figure] = ()) -> Section:
    """A section with the same title on the page and in its contents."""
    return Section(name=name, title=title, html=section(name, title, lead, *parts), figures=list(figures))


def section_by_run(name: str, title: str, lead: str, runs: Sequence[tuple[str, list[Figure], list[Any]]]) -> Section:
    """A section with a stack per run: its charts, then its other parts. Runs are named where there are several."""
    stacks = [
        div(
            "stack",
            tag("h3", run, style="margin-bottom:10px") if len(runs) > 1 else None,
            grid(charts),
            *parts,
            style="margin-bottom:26px",
        )
        for run, charts, parts in runs
    ]
    return make_section(name, title, lead, *stacks, figures=[f for _, charts, _ in runs for f in charts])


def run_legend(names: Sequence[str], all_names: Sequence[str]) -> Markup | None:
    """The names of a section's runs, each with its colour on the page; a click hides one in all charts."""
    if len(names) < 2:
        return None
    # The index among all subjects of the page, so that a run has the same color in every section.
    return div("legend runs-legend", *(_run_key(name, all_names.index(name)) for name in names))


def _run_key(name: str, colour: int) -> Markup:
    mark = tag("svg", tag("line", x1=0, x2=22, y1=4, y2=4, cls=f"line s{colour % COLOURS}"), width=22, height=8)
    attributes = {"data_do": "run", "data_run": name, "aria_pressed": "true", "title": f"{name}: show or hide"}
    return tag("button", mark, tag("span", name), type="button", cls="key", **attributes)


def with_data(*figures: Figure | None) -> list[Figure]:
    """The figures that have something to draw."""
    return [f for f in figures if f and f.rows]


def grid(figures: Iterable[Figure]) -> Markup:
    """Figures two by two where there is room; one that would stand alone takes the whole width."""
    cells: list[Figure] = []
    alone = False  # whether the last figure is the left one of a pair that is still open
    for figure in [*figures, None]:  # None closes the last pair
        if (figure is None or figure.wide) and alone and cells:
            cells[-1] = replace(cells[-1], wide=True)
        alone = figure is not None and not figure.wide and not alone
        cells += [figure] if figure is not None else []
    return div("grid", *(f.html() for f in cells))
