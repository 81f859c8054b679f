"""How far the predictions of `vernier plan` are off, on published scaling tables and on speeds of known devices.

    python benchmarks/plan_accuracy.py

Prints each published speed as predicted from the tables of all other systems, the errors by system, the shares that
`vernier.lab.planning.table` and `workload` contain, and the worst conversions by multiply-accumulates.

Tables of recipes are those of `vernier.compat.published`; data/scaling_tables.json has those of other software and
networks, and of many hosts; data/training_speeds.json has speeds of several networks on one device, measured by
conversion.py. A system is a machine with its software: rows of one system err alike, so an error is judged by the
tables of all other systems (leave one system out), and each system counts once.
"""

import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from itertools import permutations
from pathlib import Path

import numpy as np

from vernier.compat.published import PublishedRate, rates
from vernier.config import Model
from vernier.frozen import frozen
from vernier.lab.planning.plan import NETWORKS, Workload, predict
from vernier.lab.planning.table import MANY_HOSTS, Shares, between
from vernier.measure.estimates import t_quantiles
from vernier.models.cost import cost_of
from vernier.records.codec import decode
from vernier.store import read_object

DATA = Path(__file__).with_name("data")
LEVEL = 0.9
"""Share of published speeds that the range is meant to cover."""
REDUCED = ("mixed", "bf16", "fp16")
_NETWORK_OF = {
    **{"DGX-1": "dgx-1", "DGX-1V": "dgx-1", "DGX-2": "dgx-2", "DGX-2V": "dgx-2"},
    **{"DGX A100": "dgx-a100", "HLS-1": "hls-1"},
}
_BOX_CLASSES, _IMAGE_CLASSES = 81, 1000


@frozen
class PublishedSpeed:
    """Images per second of `devices` devices, and of a smaller number, the base, from which they are predicted."""

    system: str
    network: str
    source: str
    model: str
    parameters: int
    precision: str
    device_batch: int
    base_images_per_s: float
    devices: int
    images_per_s: float
    base: int = 1
    base_batch: int | None = None
    """Batch per device of the base where it is not `device_batch`."""

    @property
    def hosts(self) -> int:
        """Number of hosts that the devices fill."""
        return math.ceil(self.devices / NETWORKS[self.network].per_host)


@cache
def published_speeds() -> tuple[PublishedSpeed, ...]:
    """Every published speed of several devices whose base is published too."""
    return (*_speeds_of_recipes(), *_speeds_of_others())


def _speeds_of_recipes() -> Iterator[PublishedSpeed]:
    training = [rate for rate in rates() if rate.what == "train" and rate.system in _NETWORK_OF]
    for rate in training:
        base = _base_of(rate, training)
        if rate.devices > 1 and base is not None:
            yield PublishedSpeed(
                system=f"{rate.system}, {' '.join(rate.source.citation.split()[:2]).rstrip(',')} {rate.source.year}",
                network=_NETWORK_OF[rate.system],
                source=rate.source.citation,
                model=f"{rate.model}, {rate.device}" + (f", {rate.note}" if "SGD" in rate.note else ""),
                parameters=_parameters(rate.model, rate.image_px),
                precision=rate.precision,
                device_batch=rate.device_batch,
                base_images_per_s=base.images_per_s,
                devices=rate.devices,
                images_per_s=rate.images_per_s,
            )


def _base_of(rate: PublishedRate, training: Sequence[PublishedRate]) -> PublishedRate | None:
    """One device of the same table; of another machine of that source where its own has none (the DGX-2 of 2019)."""

    def work(r: PublishedRate) -> tuple[object, ...]:
        return r.source, r.model, r.precision, r.device_batch, r.note

    ones = [r for r in training if r.devices == 1 and work(r) == work(rate)]
    return next((r for r in ones if (r.system, r.device) == (rate.system, rate.device)), ones[0] if ones else None)


@cache
def _parameters(model: str, image_px: int) -> int:
    classes = _BOX_CLASSES if model.startswith("ssd") else _IMAGE_CLASSES
    return cost_of(Model(name=model, num_classes=classes), px=image_px, channels=3).params


def _speeds_of_others() -> Iterator[PublishedSpeed]:
    for table in read_object(DATA / "scaling_tables.json")["tables"]:
        for devices, images_per_s in table["speeds"]:
            row = {key: value for key, value in table.items() if key != "speeds"}
            yield decode(PublishedSpeed, row | {"devices": devices, "images_per_s": float(images_per_s)})


@cache
def predict_published(row: PublishedSpeed) -> float:
    """Images per second that the model predicts, without any correction."""
    each, batch, network = row.base_images_per_s / row.base, row.base_batch or row.device_batch, NETWORKS[row.network]
    work = Workload(images_per_s=each, measured_batch=batch, gradient_bytes=4 * row.parameters)
    if row.base > 1:  # the base includes its own communication
        work = replace(work, images_per_s=each / predict(work, row.base, row.base * batch, network).efficiency)
    return predict(work, row.devices, row.devices * row.device_batch, network).images_per_s_total


@cache
def published_shares(hosts: int, devices: int, precision: str | None, without: str | None = None) -> Shares:
    """How published speeds compare with predicted ones: of one host at such a precision, or of several hosts.

    `precision` None: not known, so of all. `without` leaves a system out. The range is that of Student's distribution
    over systems, with the logarithms of the shares; its upper end is at most the prediction itself or, if that is more,
    the highest share published.
    """
    if devices == 1:
        return Shares(low=1.0, typical=1.0, high=1.0)
    if 1 < hosts < MANY_HOSTS:
        ends = (published_shares(number, 8 * number, precision, without) for number in (1, MANY_HOSTS))
        return between(*ends, hosts)
    rows = [r for r in published_speeds() if (r.hosts > 1) == (hosts > 1) and r.system != without]
    if hosts == 1 and precision is not None:
        rows = [r for r in rows if (r.precision in REDUCED) == (precision in REDUCED)]
    by_system: dict[str, list[float]] = {}
    for row in rows:
        by_system.setdefault(row.system, []).append(math.log(row.images_per_s / predict_published(row)))
    count = len(by_system)
    weights = np.concatenate([np.full(len(v), 1 / len(v) / count) for v in by_system.values()])
    logs = np.concatenate([np.array(v) for v in by_system.values()])
    centre = float((weights * logs).sum())
    sd = math.sqrt(float((weights * (logs - centre) ** 2).sum()) * count / (count - 1))
    half = float(t_quantiles(LEVEL, count - 1)) * sd * math.sqrt(1 + 1 / count)
    high = min(centre + half, max(0.0, float(logs.max())))
    return Shares(low=math.exp(centre - half), typical=math.exp(centre), high=math.exp(high))


@frozen
class CheckRow:
    """Percentages are scaling efficiencies; the system itself is omitted."""

    system: str
    what: str
    base: int
    devices: int
    published_img_per_s: int
    published_percent: float
    predicted_percent: float
    range_percent: tuple[float, float]
    error_percent: float
    in_range: bool
    source: str


@cache
def check_rows() -> tuple[CheckRow, ...]:
    """Predict every published row from the tables of all other systems."""
    rows = []
    for row in published_speeds():
        shares = published_shares(row.hosts, row.devices, row.precision, row.system)
        predicted, scale = predict_published(row), 100 * row.base / row.base_images_per_s / row.devices
        low, high = shares.low * predicted, shares.high * predicted
        rows.append(
            CheckRow(
                system=row.system,
                what=f"{row.model}, {row.precision}",
                base=row.base,
                devices=row.devices,
                published_img_per_s=round(row.images_per_s),
                published_percent=round(row.images_per_s * scale, 1),
                predicted_percent=round(shares.typical * predicted * scale, 1),
                range_percent=(round(low * scale, 1), round(high * scale, 1)),
                error_percent=round(100 * (shares.typical * predicted / row.images_per_s - 1), 1),
                in_range=low <= row.images_per_s <= high,
                source=row.source,
            )
        )
    return tuple(rows)


@frozen
class SystemErrors:
    """The errors of one system's rows, predicted from all other systems."""

    system: str
    rows: int
    devices: str
    lowest_percent: float
    highest_percent: float
    in_range: int


def errors_by_system() -> list[SystemErrors]:
    """One row per system, from the most pessimistic prediction to the most optimistic one."""
    grouped: dict[str, list[CheckRow]] = {}
    for row in check_rows():
        grouped.setdefault(row.system, []).append(row)
    systems = [
        SystemErrors(
            system=name,
            rows=len(rows),
            devices=" to ".join(str(n) for n in sorted({min(r.devices for r in rows), max(r.devices for r in rows)})),
            lowest_percent=min(r.error_percent for r in rows),
            highest_percent=max(r.error_percent for r in rows),
            in_range=sum(r.in_range for r in rows),
        )
        for name, rows in grouped.items()
    ]
    return sorted(systems, key=lambda s: s.highest_percent)


# --------------------------------------------------------------------------------------------------------- conversions


@frozen
class KnownSpeed:
    """Training images per second of a network on a device, and multiply-accumulates of an image (in 1e9)."""

    device: str
    network: str
    image_px: int
    gmac: float
    images_per_s: float
    source: str


@cache
def known_speeds() -> tuple[KnownSpeed, ...]:
    """Measured speeds, and the best published one of one device, by device, precision and network."""
    measured = [decode(KnownSpeed, row) for row in read_object(DATA / "training_speeds.json")["rows"]]
    best: dict[tuple[str, str, str, int], PublishedRate] = {}
    for rate in rates():
        key = rate.device, rate.precision, rate.model, rate.image_px
        if rate.what == "train" and rate.devices == 1 and rate.images_per_s > best.get(key, rate).images_per_s * 0.999:
            best[key] = rate
    published = [
        KnownSpeed(
            device=f"{rate.device}, {rate.precision}",
            network=rate.model,
            image_px=rate.image_px,
            gmac=cost_of(
                Model(name=rate.model, num_classes=_BOX_CLASSES if rate.model.startswith("ssd") else _IMAGE_CLASSES),
                px=rate.image_px,
            ).gmac,
            images_per_s=rate.images_per_s,
            source=rate.source.citation,
        )
        for rate in best.values()
    ]
    return (*measured, *published)


@frozen
class ConversionRow:
    """A speed converted to another model, and the true one."""

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
    for a, b in permutations(known_speeds(), 2):
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


# -------------------------------------------------------------------------------------------------------------- output


def print_rows(rows: Sequence[object]) -> None:
    for row in rows:
        sys.stdout.write("  ".join(str(value) for value in asdict(row).values()) + "\n")  # type: ignore[call-overload]


if __name__ == "__main__":
    print_rows(check_rows())
    print_rows(errors_by_system())
    errors, inside = [row.error_percent for row in check_rows()], sum(row.in_range for row in check_rows())
    sys.stdout.write(
        f"{len(errors)} published speeds of {len(errors_by_system())} systems: off by {min(errors):+.1f} to "
        f"{max(errors):+.1f} % (median {statistics.median(map(abs, errors)):.1f} %); in range {inside}\n"
    )
    cases = {"full": (1, 8, "fp32"), "reduced": (1, 8, "bf16"), "any": (1, 8, None), "several hosts": (2, 16, None)}
    for name, case in cases.items():
        sys.stdout.write(f"{name}: {published_shares(*case)}\n")
    print_rows(sorted(conversion_rows(), key=lambda row: -abs(row.error_percent))[:8])
    low, high = conversion_span()
    sys.stdout.write(f"{len(conversion_rows())} conversions: true speed {low:.6g} to {high:.6g} times the converted\n")
