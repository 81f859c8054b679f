"""Charts and tables of sections as a file `designs.toml` describes them: titles, columns, axes, captions.

A section gives the rows, and whatever depends on them.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from vernier.frozen import frozen
from vernier.records.codec import decode

from . import figures
from .figures import Figure
from .html import Column


@frozen
class _Chart:
    """A chart: the name of its class, and the fields of that. Its own name is its key, if it has no other."""

    title: str
    columns: tuple[str, ...]
    kind: Literal["Lines", "Bars", "Stack", "Boxes", "Scatter", "Heat"]
    fields: Any
    caption: str = ""
    wide: bool = False
    name: str | None = None


@dataclass(frozen=True)
class TableColumn(Column):
    """A column of a table that knows its cells. `value` is a path of attributes of the records, times `factor`."""

    value: str = ""
    factor: float | None = None

    def cell(self, record: Any) -> Any:
        """The value; None for records that do not have it."""
        for name in self.value.split("."):
            # Records of a table can be of different types; percentiles are a dictionary.
            record = record.get(name) if isinstance(record, dict) else getattr(record, name, None)
        return record if record is None or self.factor is None else self.factor * record


@frozen
class Designs:
    """The content of a `designs.toml`."""

    charts: dict[str, _Chart]
    tables: dict[str, tuple[TableColumn, ...]]

    def draw(
        self, key: str, rows: Sequence[Sequence[Any]], words: dict[str, str] | None = None, /, **fields: Any
    ) -> Figure:
        """A chart. `words` are for the braces in its texts, `fields` replace those of the chart."""
        # Words first, fields of the section afterwards: a text from a file is never searched for braces.
        design = _filled(vars(self.charts[key]), words or {})
        chart = getattr(figures, design.pop("kind"))(**design.pop("fields") | fields)
        return Figure(**design | {"name": design["name"] or key, "chart": chart, "rows": rows})


@cache
def read_designs(folder: Path) -> Designs:
    """The designs in the file of a folder, which its modules share."""
    return decode(Designs, tomllib.loads((folder / "designs.toml").read_text("utf-8")))


def _filled(value: Any, words: dict[str, str]) -> Any:
    """The value with words in the braces of all its texts."""
    if isinstance(value, dict):
        return {name: _filled(item, words) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_filled(item, words) for item in value)
    return value.format_map(words) if isinstance(value, str) else value
