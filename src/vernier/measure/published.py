"""How a measured throughput compares with published ones, and the published ones as tables.

The figures plug in: an entry point of `vernier.published_figures` names a `PublishedFigures`. Published accuracies
belong to their recipe (`config.Published`).
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from vernier.frozen import frozen
from vernier.plugins import load_group
from vernier.records.run import PublishedSpeed
from vernier.records.what_ran import WhatRan


@frozen
class PublishedRow:
    """A published figure: as a record, for JSON, and as one text or number per column, for people."""

    kind: Literal["speeds", "times"]
    record: Any
    cells: dict[str, str | float]


@frozen
class PublishedFigures:
    """What a package knows of published speeds; each function is called when its figures are needed."""

    rows: Callable[[str | None], Sequence[PublishedRow]]
    """Throughputs, then training times, of a recipe by its name; None: all of them."""
    compare: Callable[[WhatRan, float], Sequence[PublishedSpeed]]
    """How a measured throughput, of all devices together, compares with the nearest published ones; often none."""


def published_rows(recipe: str | None) -> list[PublishedRow]:
    """Throughputs and training times of every package, of one recipe or all of them."""
    return [row for each in _plugins() for row in each.rows(recipe)]


def _plugins() -> list[PublishedFigures]:
    return list(load_group("vernier.published_figures", PublishedFigures).values())


def published_speeds(ran: WhatRan | None, images_per_s_total: float) -> tuple[PublishedSpeed, ...]:
    """How a measured throughput compares with published ones of the same device, model and precision; often none."""
    # An old run did not record what ran, so that no figure can be matched.
    if ran is None:
        return ()
    return tuple(speed for each in _plugins() for speed in each.compare(ran, images_per_s_total))


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
