"""Published speeds and training times of the systems that recipes come from, and the comparison with a measured rate.

published.json has images per second and latencies by device, batch, precision and number of devices, and hours to
train. A table of the file has fields that all its rows share, the names of its columns, and its rows. Figures are those
of the source; only hours and minutes become hours, and a rate per card the rate of all cards, which its note says.

A comparison needs the published device, by the name that its driver gives it, the network as published and its image
size. Rates are compared per device. What else differs is said with it: batch, number of devices, arithmetic, data.
"""

import math
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from vernier.frozen import frozen
from vernier.measure.agreement import published_precision
from vernier.measure.published import PublishedFigures, PublishedRow
from vernier.records.codec import decode, omitted
from vernier.records.run import PublishedSpeed
from vernier.records.what_ran import WhatRan
from vernier.store import read_object

T = TypeVar("T")
Cell = str | float
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


@cache
def rates() -> tuple[PublishedRate, ...]:
    """All published throughputs."""
    return tuple(_rows(PublishedRate, "speeds"))


@cache
def times() -> tuple[PublishedTime, ...]:
    """All published training times."""
    return tuple(_rows(PublishedTime, "times"))


def _rows(kind: type[T], name: str) -> Iterator[T]:
    content = read_object(Path(__file__).with_suffix(".json"))
    for table in content[name]:
        shared = {key: value for key, value in table.items() if key not in ("columns", "rows")}
        shared["source"] = content["sources"][table["source"]]
        for cells in table["rows"]:
            row: dict[str, Any] = shared | dict(zip(table["columns"], cells, strict=True))
            # It says what `mixed` stands for in a table that has rows of both kinds.
            if row.get("precision") != "mixed":
                row.pop("arithmetic", None)
            yield decode(kind, row)


# --------------------------------------------------------------------------------------------------------------- tables


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


def _time_cells(time: PublishedTime) -> dict[str, Cell]:
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


def listed(recipe: str | None) -> list[PublishedRow]:
    """Throughputs and training times that were published for a recipe; None: all of them."""
    speeds = [PublishedRow(kind="speeds", record=rate, cells=rate_cells(rate)) for rate in rates()]
    hours = [PublishedRow(kind="times", record=time, cells=_time_cells(time)) for time in times()]
    return [row for row in [*speeds, *hours] if recipe is None or row.record.belongs_to(recipe)]


# ----------------------------------------------------------------------------------------------------------- comparison


_DRIVER_NAMES = {
    "V100 16 GB": r"V100-SXM\d?-16GB",
    "V100 32 GB": r"V100-SXM\d?-32GB",
    "A100 80 GB": r"A100-SXM\d?-80GB",
    "T4": r"\bT4\b",
    # Before "Gaudi 2" is safe: the lookahead refuses a number behind the name.
    "Gaudi": r"\bHL-20\d\b|\bGAUDI\b(?! ?\d)",
    "Gaudi 2": r"\bHL-225\b|\bGAUDI ?2\b",
}
"""Published devices, and how their drivers call them. Other forms of a chip, such as PCIe cards, are other devices."""


def published_device(name: str) -> str | None:
    """The published device that a driver calls so; None for any other, and for a part of one (MIG)."""
    # A part of a device has part of its rate.
    if "MIG" in name:
        return None
    return next((device for device, form in _DRIVER_NAMES.items() if re.search(form, name, re.IGNORECASE)), None)


def compare(ran: WhatRan, images_per_s_total: float) -> tuple[PublishedSpeed, ...]:
    """How a measured rate compares with each source's nearest published rate, newest source first; often none."""
    # Smoke runs measure nothing, and progressive resizing has no one image size.
    if ran.smoke or ran.start_px is not None or (device := published_device(ran.device)) is None:
        return ()
    nearest: dict[tuple[str, str], PublishedRate] = {}
    for rate in rates():
        if _is_comparable(rate, ran, device):
            # A source can have several tables for one device, such as Keras with SGD and with LARS.
            key = rate.source.citation, rate.note
            if key not in nearest or _distance(rate, ran) < _distance(nearest[key], ran):
                nearest[key] = rate
    newest_first = sorted(nearest.values(), key=lambda rate: -rate.source.year)
    return tuple(_compare(rate, ran, images_per_s_total) for rate in newest_first)


def _is_comparable(rate: PublishedRate, ran: WhatRan, device: str) -> bool:
    same = (rate.what, rate.model, rate.image_px, rate.device) == (ran.kind, ran.network, ran.image_px, device)
    return same and rate.precision == published_precision(ran.precision)


def _distance(rate: PublishedRate, ran: WhatRan) -> tuple[float, float]:
    # Ratios: from 8 devices, 16 are as near as 4. The number of devices comes before the batch.
    return abs(math.log(rate.devices / ran.devices)), abs(math.log(rate.device_batch / ran.batch_per_device))


def _compare(rate: PublishedRate, ran: WhatRan, images_per_s_total: float) -> PublishedSpeed:
    # What differs, as publication -> run; arithmetic is None where a row states its precision.
    pairs = (
        ("devices ", rate.devices, ran.devices),
        ("batch per device ", rate.device_batch, ran.batch_per_device),
        ("", rate.arithmetic or ran.precision, ran.precision),
    )
    differs = [f"{name}{published} -> {own}" for name, published, own in pairs if published != own]
    if ran.data in ("synthetic", "static"):
        differs.append(f"images of the publication -> {ran.data}")
    return PublishedSpeed(
        images_per_s_total=rate.images_per_s,
        devices=rate.devices,
        device=rate.device,
        batch_per_device=rate.device_batch,
        precision=rate.arithmetic or rate.precision,
        latency_ms=rate.latency_ms,
        latency_ms_p95=rate.latency_ms_p95,
        latency_ms_p99=rate.latency_ms_p99,
        where=", ".join(filter(None, (rate.system, rate.note, rate.source.citation, _batch_origin(rate)))),
        times_published=images_per_s_total / ran.devices / rate.images_per_s_per_device,
        differs=tuple(differs),
    )


def _batch_origin(rate: PublishedRate) -> str:
    """Tables of inference have a row per batch; those of training often do not say theirs."""
    return "" if rate.what == "infer" or rate.source.batch == "stated" else f"batch {rate.source.batch}"


FIGURES = PublishedFigures(rows=listed, compare=compare)
