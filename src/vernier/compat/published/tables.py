"""The published speeds and training times of figures.json, with their sources.

A table of the file has fields that all its rows share, the names of its columns, and its rows. Figures are those of the
source; only hours and minutes become hours, and a rate per card the rate of all cards, which its note says.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from vernier.measure.published import PublishedRate, PublishedTime
from vernier.records.codec import decode
from vernier.store import read_object

T = TypeVar("T")


@cache
def rates() -> tuple[PublishedRate, ...]:
    """All published throughputs."""
    return tuple(_rows(PublishedRate, "speeds"))


@cache
def times() -> tuple[PublishedTime, ...]:
    """All published training times."""
    return tuple(_rows(PublishedTime, "times"))


def _rows(kind: type[T], name: str) -> Iterator[T]:
    content = read_object(Path(__file__).with_name("figures.json"))
    for table in content[name]:
        shared = {key: value for key, value in table.items() if key not in ("columns", "rows")}
        shared["source"] = content["sources"][table["source"]]
        for cells in table["rows"]:
            row: dict[str, Any] = shared | dict(zip(table["columns"], cells, strict=True))
            if row.get("precision") != "mixed":
                row.pop("arithmetic", None)
            yield decode(kind, row)
