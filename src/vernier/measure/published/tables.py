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
from vernier.records.bench import Cell
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


def rate_cells(rate: PublishedRate) -> dict[str, Cell]:
    """A published throughput as people read it: one text or number per column."""
    latencies = (rate.latency_ms, rate.latency_ms_p95, rate.latency_ms_p99)
    return {
        "what": rate.what,
        "model": rate.model,
        **_device_cells(rate),
        "batch_per_device": rate.device_batch,
        "img/s": rate.images_per_s,
        "per_device": round(rate.images_per_s_per_device, 1),
        "latency_ms mean/p95/p99": "/".join(f"{latency:g}" for latency in latencies if latency is not None),
        **_source_cells(rate),
    }


def time_cells(time: PublishedTime) -> dict[str, Cell]:
    """A published training time as people read it."""
    epochs = "not stated" if time.epochs is None else f"{time.epochs:g}"
    return {
        "model": time.model,
        "epochs": f"until {time.until}" if time.until else epochs,
        **_device_cells(time),
        "global_batch": time.global_batch or "",
        "hours": f"{'about ' if time.approximate else ''}{time.hours:.3g}",
        **_source_cells(time),
    }


def _device_cells(published: _Figure) -> dict[str, Cell]:
    precision = published.arithmetic or published.precision or "not stated"
    return {"device": published.device, "devices": published.devices, "precision": precision}


def _source_cells(published: _Figure) -> dict[str, Cell]:
    return {"system": published.system, "note": published.note, "source": published.source.citation}
