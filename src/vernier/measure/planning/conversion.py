"""How far a training speed is off that was converted to another network or image size by multiply-accumulates.

training_speeds.json has speeds of several networks on one device, measured by `benchmarks/conversion.py`; published
ones are those of `measure.published`. Every pair of one device is a conversion whose truth is known. The conversion
itself is in `workload`.
"""

from functools import cache
from itertools import permutations
from pathlib import Path

from vernier.config import Model
from vernier.frozen import frozen
from vernier.measure.published.tables import PublishedRate, rates
from vernier.records.codec import decode
from vernier.store import read_object

from .estimate import gmac


@frozen
class MeasuredSpeed:
    """Training images per second of a network on a device, and multiply-accumulates of an image (in 1e9)."""

    device: str
    network: str
    image_px: int
    gmac: float
    images_per_s: float
    source: str


def _measured() -> list[MeasuredSpeed]:
    return [decode(MeasuredSpeed, row) for row in read_object(Path(__file__).with_name("training_speeds.json"))["rows"]]


def _published() -> list[MeasuredSpeed]:
    """The best published speed of one device, by device, precision and network."""
    best: dict[tuple[str, str, str, int], PublishedRate] = {}
    for rate in rates():
        key = rate.device, rate.precision, rate.model, rate.image_px
        if rate.what == "train" and rate.devices == 1 and rate.images_per_s > best.get(key, rate).images_per_s * 0.999:
            best[key] = rate
    return [
        MeasuredSpeed(
            device=f"{rate.device}, {rate.precision}",
            network=rate.model,
            image_px=rate.image_px,
            gmac=gmac(Model(name=rate.model, num_classes=81 if rate.model.startswith("ssd") else 1000), rate.image_px),
            images_per_s=rate.images_per_s,
            source=rate.source.citation,
        )
        for rate in best.values()
    ]


@cache
def speeds() -> tuple[MeasuredSpeed, ...]:
    """Measured speeds, and published ones."""
    return (*_measured(), *_published())


@frozen
class ConversionRow:
    """One row of `vernier plan --accuracy`: a speed converted to another model, next to the true one."""

    device: str
    converted_from: str
    to: str
    converted_img_per_s: float
    true_img_per_s: float
    error_percent: float


@cache
def conversion_rows() -> tuple[ConversionRow, ...]:
    """Every conversion between two networks or sizes on one device."""
    rows = []
    for a, b in permutations(speeds(), 2):
        if a.device == b.device:
            converted = a.images_per_s * a.gmac / b.gmac
            rows.append(
                ConversionRow(
                    device=a.device,
                    converted_from=f"{a.network} at {a.image_px} px",
                    to=f"{b.network} at {b.image_px} px",
                    converted_img_per_s=float(f"{converted:.3g}"),
                    true_img_per_s=b.images_per_s,
                    error_percent=round(100 * (converted / b.images_per_s - 1), 1),
                )
            )
    return tuple(rows)


def conversion_span() -> tuple[float, float]:
    """Lowest and highest true speed over the converted one."""
    shares = [1 / (1 + row.error_percent / 100) for row in conversion_rows()]
    return min(shares), max(shares)


def conversion_error() -> str:
    """The measured error of conversions, in words."""
    low, high = conversion_span()
    return f"the true speed was {low:.2g} to {high:.2g} times the converted one in {len(conversion_rows())} conversions"
