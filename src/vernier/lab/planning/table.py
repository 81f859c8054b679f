"""The rows of `vernier plan`: one prediction per number of devices, with a range, and the table that people read.

Speeds are what the model predicts, times what published tables typically reach of such predictions:
`benchmarks/plan_accuracy.py` computes these shares, and shows the errors on systems that had no part in them; a test
keeps them equal, and docs/results/scaling.md lists them. The range is that of these tables, times how well the speed of
one device is known (`Workload.speed_span`). Numbers have the digits that their range supports.
"""

import math
from collections.abc import Mapping, Sequence

from vernier.config import Recipe
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.records.bench import Cell
from vernier.records.codec import omitted
from vernier.references import command, use
from vernier.templates import lines_of, open_templates
from vernier.wording import round_to_range, with_range

from .plan import TABLES, Network, Workload, predict

LEAST_BATCH = 16
"""The smallest batch per device in any published table."""
MANY_HOSTS = 8
_REDUCED = ("mixed", "bf16", "fp16")


@frozen
class Shares:
    """Published speeds over predicted ones: a typical one, and the range that covers 90 % of them."""

    low: float
    typical: float
    high: float


def published_shares(hosts: int, devices: int, precision: str | None) -> Shares:
    """How published speeds compare with predicted ones. `precision` None: not known."""
    key = "reduced-precision" if precision in _REDUCED else "full-precision" if precision else "any-precision"
    # The model counts no losses of one device.
    one, several = (Shares(**TABLES["published"][name]) for name in (key, "several-hosts"))
    return Shares(**TABLES["published"]["one-device"]) if devices == 1 else between(one, several, hosts)


def between(one: Shares, several: Shares, hosts: int) -> Shares:
    """From those of one host to those of MANY_HOSTS or more, by equal steps per doubling: no table has a jump.

    But for the low end: a system that loses much between hosts does so from the second one on.
    """
    part = min(1.0, math.log2(hosts) / math.log2(MANY_HOSTS))
    typical, high = (a ** (1 - part) * b**part for a, b in ((one.typical, several.typical), (one.high, several.high)))
    return Shares(low=min(one.low, several.low) if hosts > 1 else one.low, typical=typical, high=high)


@frozen
class PlanRow:
    """One row of `vernier plan`. Hours and energy are those of the training steps alone.

    Efficiency is relative to as many devices at the measured speed of one. `model_share`: what published tables
    typically reach of the model's prediction, by which the row is corrected. `recipes_batch`: whether the global batch
    is the recipe's. `divides`: whether all devices have the same number of images, which a training needs.
    """

    devices: int
    global_batch: int
    batch_per_device: float
    recipes_batch: bool
    divides: bool
    model_share: float
    img_per_s_total: float
    img_per_s_range: tuple[float, float]
    efficiency_percent: float
    efficiency_range: tuple[float, float]
    step_ms: float
    communication_not_hidden_ms: float
    limit: str
    hours: float
    hours_range: tuple[float, float]
    kwh: float | None = omitted()


def divide_batch(counts: Sequence[int], global_batch: int) -> dict[int, int]:
    """The same global batch for each number of devices, as far as every device has an image (strong scaling)."""
    possible = {count: global_batch for count in counts if count <= global_batch}
    if not possible:
        raise ConfigError(
            f"The recipe's global batch is {global_batch:,}: {min(counts):,} devices would have less than one image "
            f"each. Give {use('devices', global_batch)} or less, or {use('weak', True)} to let the batch grow with the "
            "devices."
        )
    return possible


def plan_rows(
    work: Workload, batches: Mapping[int, int], recipe_batch: int, network: Network, images: float
) -> list[PlanRow]:
    """Predict a training on `images` images in total; `batches` has the global batch of each number of devices."""
    rows = []
    for devices, batch in batches.items():
        predicted = predict(work, devices, batch, network)
        shares = published_shares(math.ceil(devices / network.per_host), devices, work.precision)
        rate = predicted.images_per_s_total * shares.typical
        hours, linear = images / rate / 3600, devices * work.images_per_s
        low, high = shares.low / shares.typical, shares.high / shares.typical
        # The uncertainty of one device is that of all.
        efficiency, low, high = rate / linear, low * work.speed_span[0], high * work.speed_span[1]
        rows.append(
            PlanRow(
                devices=devices,
                global_batch=batch,
                batch_per_device=_four_digits(batch / devices),
                recipes_batch=batch == recipe_batch,
                divides=batch % devices == 0,
                model_share=_four_digits(shares.typical),
                img_per_s_total=_four_digits(rate),
                img_per_s_range=(_four_digits(low * rate), _four_digits(high * rate)),
                efficiency_percent=round(100 * efficiency, 1),
                efficiency_range=(round(100 * efficiency * low, 1), round(100 * efficiency * high, 1)),
                step_ms=_four_digits(1000 * batch / rate),
                communication_not_hidden_ms=_four_digits(predicted.exposed_ms),
                # Where published systems lose more than the model explains, its own reason would mislead.
                limit="other" if shares.typical < min(1.0, predicted.images_per_s_total / linear) else predicted.limit,
                hours=_four_digits(hours),
                hours_range=(_four_digits(hours / high), _four_digits(hours / low)),
                kwh=None if work.watts is None else _four_digits(hours * devices * work.watts / 1000),
            )
        )
    return rows


def divisors_near(count: int, batch: int) -> list[int]:
    """The nearest numbers of devices, below and above, among which a batch divides."""
    # Every batch divides by 1, so that there always is one below.
    below = max(n for n in range(1, count + 1) if batch % n == 0)
    above = next((n for n in range(count, batch + 1) if batch % n == 0), below)
    return sorted({below, above})


def _four_digits(value: float) -> float:
    return float(f"{value:.4g}")


def _unit_of_time(hours: float) -> tuple[str, float]:
    """The unit in which people would say the longest time, and how many of them an hour has."""
    return ("hours", 1.0) if hours >= 1 else ("minutes", 60.0) if hours >= 1 / 60 else ("seconds", 3600.0)


def table_rows(rows: Sequence[PlanRow]) -> list[dict[str, Cell]]:
    """The rows as people read them."""
    cells = []
    unit, per_hour = _unit_of_time(max(row.hours for row in rows))
    for row in rows:
        low, high = row.img_per_s_range
        least, most = row.efficiency_range
        scale = row.step_ms / row.img_per_s_total  # a step is as uncertain as the rate, in percent
        # Digits that the range does not support would look like knowledge.
        (step,) = round_to_range([row.step_ms], low * scale, high * scale)
        cell: dict[str, Cell] = {
            "devices": row.devices,
            "global batch": row.global_batch if row.recipes_batch else f"{row.global_batch:,} (not the recipe's)",
            "per device": f"{row.batch_per_device:,g}"
            if row.divides
            else f"{row.batch_per_device:,g} (does not divide)",
            "img/s (range)": with_range(row.img_per_s_total, row.img_per_s_range),
            "efficiency": f"{row.efficiency_percent:.0f} %" + (f" ({least:.0f} to {most:.0f})" if least < most else ""),
            "step ms": step,
            "not hidden ms": f"{row.communication_not_hidden_ms:.2g}",
            "limited by": row.limit,
            f"{unit} (range)": with_range(
                per_hour * row.hours, (per_hour * row.hours_range[0], per_hour * row.hours_range[1])
            ),
        }
        if row.kwh is not None:
            hours_low, hours_high = row.hours_range
            energy = row.kwh / row.hours
            (cell["kWh"],) = round_to_range([row.kwh], hours_low * energy, hours_high * energy)
        cells.append(cell)
    return cells


_TEMPLATES = open_templates(__file__, command=command, use=use, divisors_near=divisors_near)


def reading_notes(recipe: Recipe, rows: Sequence[PlanRow], most: int) -> list[str]:
    """How to read the rows of a plan: `templates/notes.txt`."""
    values = {"batch": f"{recipe.global_batch:,}", "rows": rows, "most": most, "LEAST_BATCH": LEAST_BATCH}
    return lines_of(_TEMPLATES, "notes.txt", values)
