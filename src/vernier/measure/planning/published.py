"""Published scaling tables (scaling_tables.json) and what `plan` predicts for them, for `vernier plan --check`."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from vernier.frozen import frozen
from vernier.records.codec import decode, named
from vernier.store import read_object

from .plan import NETWORKS, Workload, predict


@frozen
class PublishedSpeed:
    """Images per second of `devices` devices, and of a smaller number, the base, from which they are predicted."""

    what: str
    network: str
    gradient_bytes: int
    device_batch: int
    base_images_per_s: float
    devices: int
    images_per_s: float
    source: str
    base: int = 1
    base_batch: int | None = None
    """Batch per device of the base where it is not `device_batch`."""


PUBLISHED = [
    decode(PublishedSpeed, row) for row in read_object(Path(__file__).with_name("scaling_tables.json"))["rows"]
]


def predict_published(row: PublishedSpeed) -> tuple[float, float]:
    """Predicted images per second, and their error in percent of the published ones. Nothing is fitted to the row."""
    each, batch, network = row.base_images_per_s / row.base, row.base_batch or row.device_batch, NETWORKS[row.network]
    work = Workload(images_per_s=each, measured_batch=batch, gradient_bytes=row.gradient_bytes)
    if row.base > 1:  # the base includes its own communication
        work = replace(work, images_per_s=each / predict(work, row.base, row.base * batch, network).efficiency)
    total = predict(work, row.devices, row.devices * row.device_batch, network).images_per_s_total
    return total, 100 * (total / row.images_per_s - 1)


_FEWEST = 8
"""Below this size there are too few tables to tell an error from."""


@cache
def published_span(devices: int) -> tuple[float, float]:
    """Lowest and highest published speed over the predicted one, in all tables up to the next published size."""
    if devices == 1:
        return 1.0, 1.0
    reach = min(
        (row.devices for row in PUBLISHED if row.devices >= max(devices, _FEWEST)),
        default=max(r.devices for r in PUBLISHED),
    )
    shares = [1 / (1 + predict_published(row)[1] / 100) for row in PUBLISHED if row.devices <= reach]
    return min(1.0, *shares), max(1.0, *shares)


@frozen
class CheckRow:
    """One row of `vernier plan --check`: the model beside a published table. Percentages are scaling efficiencies."""

    what: str
    network: str
    base: int = named("from")
    devices: int = named("to")
    published_img_per_s: int
    published_percent: float
    predicted_percent: float
    error_percent: float
    source: str


def check_rows() -> list[CheckRow]:
    """Compare the model with every published row."""
    rows = []
    for row in PUBLISHED:
        predicted, error = predict_published(row)
        scale = row.base / row.base_images_per_s / row.devices
        rows.append(
            CheckRow(
                what=row.what,
                network=row.network,
                base=row.base,
                devices=row.devices,
                published_img_per_s=round(row.images_per_s),
                published_percent=round(100 * row.images_per_s * scale, 1),
                predicted_percent=round(100 * predicted * scale, 1),
                error_percent=round(error, 1),
                source=row.source,
            )
        )
    return rows
