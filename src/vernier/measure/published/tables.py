"""The published speeds and training times of figures.json as typed rows, with their sources.

A table of the file has fields that all its rows share, the names of its columns, and its rows. Figures are those of the
source; only hours and minutes become hours, and a rate per card the rate of all cards, which its note says.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from vernier.frozen import frozen
from vernier.records.codec import decode, omitted
from vernier.store import read_object

Precision = Literal["", "fp32", "tf32", "mixed"]
T = TypeVar("T")


@frozen
class Source:
    """Where figures were published. `batch` says where the batch is from if the page does not state it."""

    citation: str
    year: int
    batch: str = "stated"


@frozen
class _Figure:
    """What every published figure has. `arithmetic` is what `mixed` stands for there."""

    model: str
    device: str
    system: str = ""
    devices: int = 1
    precision: Precision = ""
    arithmetic: Literal["fp16", "bf16"] | None = omitted()
    note: str = ""
    recipes: tuple[str, ...]
    """Names of the recipes that the figure was published for; `*` stands for anything."""
    source: Source

    def belongs_to(self, recipe: str) -> bool:
        """Whether the figure was published for this recipe."""
        return any(fnmatchcase(recipe, pattern) for pattern in self.recipes)


@frozen
class PublishedRate(_Figure):
    """Images per second over all devices, in training or inference, with the latency of a batch where it was given."""

    what: Literal["train", "infer"]
    image_px: int
    device_batch: int
    images_per_s: float
    latency_ms: float | None = omitted()
    latency_ms_p95: float | None = omitted()
    latency_ms_p99: float | None = omitted()

    @property
    def images_per_s_per_device(self) -> float:
        """The rate over the number of devices."""
        return self.images_per_s / self.devices


@frozen
class PublishedTime(_Figure):
    """Hours of a training of `epochs`, or `until` a result. `approximate`: published as "about" so many hours."""

    hours: float
    epochs: float | None = None
    until: str = ""
    global_batch: int | None = None
    approximate: bool = False


@cache
def rates() -> tuple[PublishedRate, ...]:
    """All published rates."""
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


def figures_of(recipe: str) -> tuple[list[PublishedRate], list[PublishedTime]]:
    """Rates and times that were published for a recipe, by its name."""
    own_rates = [rate for rate in rates() if rate.belongs_to(recipe)]
    return own_rates, [time for time in times() if time.belongs_to(recipe)]
