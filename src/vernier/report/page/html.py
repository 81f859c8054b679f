"""Elements of HTML. Text is escaped unless it is `Markup` already, so that names of files and classes stay text."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup, escape

from vernier.templates import open_templates
from vernier.wording import plural

from .numbers import decimals, number

_TEMPLATES = open_templates(__file__, html=True, plural=plural)


@dataclass(frozen=True)
class Shown:
    """A number with a text of its own, such as an interval; tables sort and save the number."""

    value: float
    text: str


Cell = str | int | float | bool | None | Markup | Shown


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """An element. `cls` is its class, `data_x` the attribute data-x; None and False leave an attribute out."""
    named = ((k.removesuffix("_").replace("cls", "class").replace("_", "-"), v) for k, v in attributes.items())
    present = ((k, v) for k, v in named if v is not None and v is not False)
    # Each value goes through Markup.format, which escapes it: text of a run cannot leave its attribute.
    parts = [Markup(" {}").format(k) if v is True else Markup(' {}="{}"').format(k, v) for k, v in present]
    opening = Markup("<{}{}>").format(name, Markup("").join(parts))
    return opening + joined(children) + Markup("</{}>").format(name)


def fill(template: str, **values: Any) -> Markup:
    """A template of the folder `templates`, filled in."""
    # Its own text is ours, and Jinja escapes the values.
    return Markup(_TEMPLATES.get_template(f"{template}.html").render(values))  # noqa: S704


def note(*children: Any) -> Markup | None:
    """A paragraph in small print; none if it would be empty."""
    return tag("p", *children, cls="note") if any(children) else None


def div(cls: str, *children: Any, **attributes: Any) -> Markup:
    """A div of a class."""
    return tag("div", *children, cls=cls, **attributes)


def joined(children: Iterable[Any]) -> Markup:
    """The children one after the other, without those that are None."""
    return Markup("").join(escape(c) for c in children if c is not None)


@dataclass(frozen=True)
class Column:
    """A table's column: `digits` after the point for its numbers; `meter` draws shares (0 to 1) as bars.

    Without `digits`, all its numbers have as many as give the largest three significant ones.
    """

    name: str
    digits: int | None = None
    meter: bool = False
    wrap: bool = False


def table(name: str, columns: Sequence[Column | str], rows: Sequence[Sequence[Cell]], title: str = "") -> Markup:
    """A table that can be sorted and saved as CSV. `name` must be unique on the page."""
    heads = [c if isinstance(c, Column) else Column(c) for c in columns]
    heads = [_with_digits(c, [r[i] for r in rows]) for i, c in enumerate(heads)]
    # Decided per column, not per cell: a column of numbers with a text in it would sort as neither.
    numeric = [
        bool(rows) and all(isinstance(r[i], int | float | Shown | None) for r in rows) for i in range(len(heads))
    ]
    head = tag(
        "tr",
        *(
            tag("th", tag("button", c.name, type="button"), scope="col", cls="number" if n else None, data_v=c.name)
            for c, n in zip(heads, numeric, strict=True)
        ),
    )
    body = [tag("tr", *(_cell(v, c, n) for v, c, n in zip(row, heads, numeric, strict=True))) for row in rows]
    # Fewer rows are counted at a glance.
    count = tag("span", f" {len(rows):,} rows", cls="note") if len(rows) > 12 else None
    grid = tag("table", tag("thead", head), tag("tbody", *body), cls="sortable", id=name)
    return tag("div", *framed(grid, name, title or name, tag("h3", title, count), title="download"))


def card(name: str, columns: Sequence[Column | str], rows: Sequence[Sequence[Cell]], title: str, *below: Any) -> Markup:
    """A table in a card, with what stands below it."""
    return div("card", table(name, columns, rows, title), *below)


def framed(grid: Markup, name: str, label: str, heading: Markup, cls: str = "scroll", **button: str) -> list[Markup]:
    """A table in a frame that scrolls, below its heading and a button that saves it."""
    more = Markup('<span class="more note" aria-hidden="true"></span>')
    save = tag("button", "CSV", type="button", data_do="csv", data_table=name, **button)
    region = Markup('<div class="{}" tabindex="0" role="region" aria-label="{}">{}</div>')
    return [div("table-tools", heading, more, save), region.format(cls, label, grid)]


def _with_digits(column: Column, cells: Sequence[Cell]) -> Column:
    floats = [c for c in cells if isinstance(c, float) and math.isfinite(c)]
    return replace(column, digits=decimals(floats)) if floats and column.digits is None else column


def _cell(value: Cell, column: Column, numeric: bool) -> Markup:
    if isinstance(value, Markup):
        return tag("td", value)
    if isinstance(value, Shown):
        # The exact value beside the text, so that sorting and the CSV do not depend on its rounding.
        return tag("td", value.text, cls="number" if numeric else None, data_v=repr(value.value))
    # bool is a kind of int in Python, and is shown as yes or no.
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    text = escape(number(value, column.digits))
    if column.meter and plain:
        assert isinstance(value, int | float)
        meter = Markup('<span class="meter" aria-hidden="true"><i style="width:{:.1f}%"></i></span>{:.1f} %')
        text = meter.format(100 * min(1.0, max(0.0, value)), 100 * value)
    kind = "number" if numeric else "wrap" if column.wrap else None
    return tag("td", text, cls=kind, data_v=repr(value) if plain else None)


def chip(text: str, kind: str = "") -> Markup:
    return tag("span", text, cls=f"chip {kind}".strip())


def tile(name: str, big: str, unit: str = "", sub: Any = "") -> Markup:
    """A tile with one large number, its unit and a remark."""
    small = Markup('<span class="unit"> {}</span>').format(unit) if unit else ""
    remark = Markup('<div class="sub">{}</div>').format(sub) if sub else ""
    tile = Markup('<div class="tile"><dt>{}</dt><dd><div class="big">{}{}</div>{}</dd></div>')
    return tile.format(name, big, small, remark)


def folded(texts: Sequence[str], most: int, cls: str, first_cls: str | None = None) -> Markup | None:
    """A list of texts; those after the first `most` are folded away, not dropped."""
    if not texts:
        return None
    items = [tag("li", text, cls=first_cls if i == 0 else None) for i, text in enumerate(texts)]
    shown, rest = tag("ul", *items[:most], cls=cls), items[most:]
    return shown + tag("details", tag("summary", f"{len(rest)} more"), tag("ul", *rest, cls=cls)) if rest else shown
