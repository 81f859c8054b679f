"""What sections are made of, and how they plug in.

A figure is a small table of raw data, and a chart that names the columns to draw. The page also shows the table.

The chart types here are those of `assets/charts.js` and `assets/plots.js`, which read their fields by the same names.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from vernier.frozen import frozen
from vernier.plugins import load_group
from vernier.records.codec import encode, omitted

from .html import div, fill, joined, tag
from .subjects import Subject

# Data is 4, computing 0 and communication 3 in the other stacked charts, too: one thing has one color on the page.
PHASE_COLOURS = {"data": 4, "copy": 5, "forward": 0, "backward": 1, "optimizer": 2, "communication": 3, "idle": 7}
COLOURS = 12  # s0 to s11 and c0 to c11 of style.css
_RUN_KEY = Markup(
    '<button type="button" class="key" data-do="run" data-run="{1}" aria-pressed="true" title="{1}: show or hide">'
    '<svg width="22" height="8"><line x1="0" x2="22" y1="4" y2="4" class="line s{0}"></line></svg><span>{1}</span>'
    "</button>"
)
Row = Sequence[str | int | float | bool | None]
Name = str | None
"""The name of a column, or the title of an axis."""


@dataclass(frozen=True)
class Lines:
    """One line per value of `by`, dashed by `dash`, with whiskers from `low` to `high`. `zero`: the axis starts at 0.

    `smooth` and `log` offer smoothing and a logarithmic axis; `colours` are the names of all subjects: with
    `by="run"` the page adds them, so that a run has one color everywhere. `x_ranges` are the columns that a reader can
    have as the x axis, `x` at first, with what is drawn until a reader zooms: charts side by side have the same axis.
    Rows with `best` are marked.
    """

    x: str
    y: str
    by: Name = omitted()
    dash: Name = omitted()
    low: Name = omitted()
    high: Name = omitted()
    marks: bool = False
    zero: bool = False
    smooth: bool = False
    log: bool = False
    log_x: bool = False
    unit: str = ""
    x_title: Name = omitted()
    y_title: Name = omitted()
    x_ranges: dict[str, tuple[float, float]] | None = omitted()
    best: Name = omitted()
    colours: tuple[str, ...] | None = omitted()


@dataclass(frozen=True)
class Bars:
    """Horizontal bars: one group per category, one bar per value of `by`."""

    category: str
    value: str
    by: Name = omitted()
    low: Name = omitted()
    high: Name = omitted()
    max: float | None = omitted()
    unit: str = ""
    x_title: Name = omitted()


@dataclass(frozen=True)
class Stack:
    """One stacked bar per category, all of the same length. `part_colours` are numbers of the page's colours."""

    category: str
    part: str
    value: str
    unit: str
    part_colours: dict[str, int]


@dataclass(frozen=True)
class Boxes:
    """Tukey's box and every value as a dot, one row per category. `flag` colours dots, `line` is a reference value."""

    category: str
    value: str
    name: str
    flag: Name = omitted()
    line: float | None = omitted()
    x_title: Name = omitted()


@dataclass(frozen=True)
class Scatter:
    """One dot per row, with whiskers from `low` to `high`. A button hides rows where `disturbed` is not empty."""

    x: str
    y: str
    name: str
    low: Name = omitted()
    high: Name = omitted()
    flag: Name = omitted()
    disturbed: Name = omitted()
    line: float | None = omitted()
    x_title: Name = omitted()
    y_title: Name = omitted()


@dataclass(frozen=True)
class Heat:
    """A heat map. `good`: the diagonal is correct; `diverging`: from -`most` to `most`; `cell` is a width in px."""

    row: str
    column: str
    value: str
    cell: int
    good: bool = False
    diverging: bool = False
    most: float | None = omitted()
    x_title: Name = omitted()


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


@dataclass(frozen=True)
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
        return fill("figure", figure=self)

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
class Content:
    """What a section shows: a sentence in front, elements of HTML, and the figures in them. `cls` is for the style."""

    lead: str = ""
    parts: Sequence[Any]
    figures: Sequence[Figure] = ()
    cls: str | None = None

    @property
    def html(self) -> Markup:
        return joined(self.parts)


@frozen
class Section:
    """A section of the page, as it plugs in: a package offers one as an entry point of `vernier.report_sections`.

    The name of the entry point is that of the section, which is unique on the page.
    """

    title: str
    contents: str = ""
    """A shorter title for the table of contents."""
    order: int
    """Sections appear in this order."""
    of: type[Subject]
    """Which subjects it is about: a kind, or `Subject` for all."""
    brief: bool = False
    """It is also about runs that were read briefly."""
    build: Callable[[list[Any]], Content | None]
    """What it shows of one or more such subjects; None if they have nothing to show. It reads no files."""


def sections() -> dict[str, Section]:
    """Every section by name, in the order of the page."""
    loaded = load_group("vernier.report_sections", Section)
    return dict(sorted(loaded.items(), key=lambda item: (item[1].order, item[0])))


Stacked = tuple[str, Sequence[Any], Sequence[Figure | None], Sequence[Any]]
"""A run in a section that shows one after the other: its name, what comes before its charts, they, and what follows."""


def stacks(lead: str, runs: Sequence[Stacked], *, named: bool = False) -> Content | None:
    """A stack per run, numbered as its figures are. Runs are named where there are several. None without runs."""
    figures, parts = list[Figure](), list[Markup]()
    for number, (run, before, charts, after) in enumerate(runs):
        own = [replace(f, name=f"{f.name}-{number}") for f in with_data(*charts)]  # names are unique on the page
        head = tag("h3", run, style="margin-bottom:10px") if named or len(runs) > 1 else None
        parts.append(div("stack", head, *before, grid(own), *after, style="margin-bottom:26px"))
        figures += own
    return Content(lead=lead, parts=parts, figures=figures) if runs else None


def run_legend(runs: Sequence[Subject]) -> Markup | None:
    """The names of a section's runs, each with its colour on the page; a click hides one in all charts."""
    keys = []
    for s in runs if len(runs) > 1 else ():
        keys.append(_RUN_KEY.format((s.colour or 0) % COLOURS, s.name))
    return div("legend runs-legend", *keys) if keys else None


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
