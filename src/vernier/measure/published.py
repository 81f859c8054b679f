"""Published speeds and training times as typed rows, and how a measured throughput compares with them.

The figures themselves plug in: an entry point of `vernier.published_figures` names a `PublishedFigures`. Published
accuracies belong to their recipe (`config.Published`).
"""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from vernier.frozen import frozen
from vernier.plugins import load_group
from vernier.records.bench import Cell
from vernier.records.codec import omitted
from vernier.records.run import PublishedSpeed
from vernier.records.what_ran import WhatRan

Precision = Literal["", "fp32", "tf32", "mixed"]


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


@frozen
class PublishedFigures:
    """What a package knows of published speeds; each function is called when its figures are needed."""

    rates: Callable[[], Sequence[PublishedRate]]
    times: Callable[[], Sequence[PublishedTime]]
    compare: Callable[[WhatRan, float], Sequence[PublishedSpeed]]
    """How a measured throughput, of all devices together, compares with the nearest published ones; often none."""


def _plugins() -> list[PublishedFigures]:
    return list(load_group("vernier.published_figures", PublishedFigures).values())


def rates() -> tuple[PublishedRate, ...]:
    """All published throughputs."""
    return tuple(rate for each in _plugins() for rate in each.rates())


def times() -> tuple[PublishedTime, ...]:
    """All published training times."""
    return tuple(time for each in _plugins() for time in each.times())


def published_speeds(ran: WhatRan | None, images_per_s_total: float) -> tuple[PublishedSpeed, ...]:
    """How a measured throughput compares with published ones of the same device, model and precision; often none."""
    if ran is None:
        return ()
    return tuple(speed for each in _plugins() for speed in each.compare(ran, images_per_s_total))


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


def speed_lines(speeds: Sequence[PublishedSpeed] | None) -> list[str]:
    """A line per published rate for a person: what was published, and how the measured rate stands against it."""
    return [_line(speed) for speed in speeds or ()]


def _line(speed: PublishedSpeed) -> str:
    latency = ""
    if speed.latency_ms is not None:
        latency = f", latency {speed.latency_ms:g} ms (95 %: {speed.latency_ms_p95:g}, 99 %: {speed.latency_ms_p99:g})"
    differs = f"; differs: {', '.join(speed.differs)}" if speed.differs else ""
    return (
        f"{speed.times_published:.3f} times the published rate per device: {speed.images_per_s_total:,g} img/s on "
        f"{speed.devices} x {speed.device}, batch {speed.batch_per_device} per device, {speed.precision}{latency} "
        f"({speed.where}){differs}"
    )
