"""How often the 95 % intervals of a study hold for fleets that are not normal: of a device, and of both spreads.

Run by benchmarks/coverage.py. Devices differ by 0.6 % and repeats by 0.8 % unless the law says otherwise; cells are
devices x repeats. Bands: LEAST for each interval and kind of law, less what chance does to so few cases. The laws in
SHOWN break what the promise needs (repeats that are exchangeable, a spread that so many devices can show): they are
measured and shown. *Before* was simulated independently on 2026-11-18 at commit 5258558.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from promises.cells import Cells
from promises.fleets import LAWS, MOST_RUNS, Rng

from vernier.lab.study import noise, variance
from vernier.measure.estimates import Floats

Shape = tuple[int, int, int]
MEASURED = ("lab/study/noise.py", "lab/study/variance.py", "lab/statistics/distributions.py")
CELLS = ((8, 5), (32, 3), (32, 5), (32, 10), (100, 5))
DEVICE, SPREAD = 0.006, 0.008


def _scaled(law: Callable[[Rng, Shape], Floats]) -> Callable[[Rng, Shape, Floats], Floats]:
    return lambda r, s, own: own + law(r, s)


def _noise(rng: Rng, shape: Shape) -> Floats:
    return SPREAD * rng.standard_normal(shape)


def _normal(rng: Rng, shape: Shape) -> Floats:
    return DEVICE * rng.standard_normal((*shape[:2], 1))


def _rounded(step: float) -> Callable[[Rng, Shape, Floats], Floats]:
    return lambda r, s, own: np.log(step * np.round(np.exp(own / 2 + 0.003 * r.standard_normal(s)) / step))


def _correlated(phi: float) -> Callable[[Rng, Shape, Floats], Floats]:
    name = f"repeats correlated {str(phi)[1:]}, equal devices"
    return lambda r, s, own: own + LAWS[name](r, s)


def _missing(rng: Rng, shape: Shape) -> Floats:
    count = rng.integers(1, shape[2] + 1, shape[:2])
    count[:, 0] = shape[2]
    return np.where(np.arange(shape[2]) < count[..., None], _noise(rng, shape), np.nan)


def _both_sides(rng: Rng, shape: Shape) -> Floats:
    chance, size = rng.random(shape), rng.uniform(0.0, 0.2, shape)
    return _noise(rng, shape) + np.where(chance < 0.05, size, np.where(chance > 0.95, -size, 0.0))


LOUD = 5.0
REPEATS: dict[str, tuple[Callable[[Rng, Shape, Floats], Floats], float, float]] = {
    "normal": (_scaled(_noise), 0.0, SPREAD),
    "repeats t3": (_scaled(lambda r, s: SPREAD / math.sqrt(3) * r.standard_t(3, s)), 0.0, SPREAD),
    "repeats exponential 3 %": (_scaled(lambda r, s: 0.03 * r.exponential(1.0, s)), 0.03 * math.log(2), 0.03),
    "repeats lognormal": (
        _scaled(lambda r, s: SPREAD * np.exp(r.standard_normal(s))),
        SPREAD,
        SPREAD * math.sqrt(math.e * (math.e - 1)),
    ),
    "noise differs per device": (
        _scaled(lambda r, s: _noise(r, s) * np.exp(0.7 * r.standard_normal((*s[:2], 1)))),
        0.0,
        SPREAD * math.exp(0.49),
    ),
    "1 device in 10 has 5 times the noise": (
        lambda r, s, own: own + _noise(r, s) * np.where(np.arange(s[1])[:, None] % 10 == 0, LOUD, 1.0),
        0.0,
        math.nan,  # depends on the number of devices: `_truths`
    ),
    "times rounded to 1 %": (_rounded(0.01), 0.0, math.nan),
    "times rounded to 3 %": (_rounded(0.03), 0.0, math.nan),
    "unequal repeats, 1 to R": (_scaled(_missing), 0.0, SPREAD),
    "outliers both sides, 5 + 5 % of runs": (_scaled(_both_sides), 0.0, math.nan),
    "repeats correlated .5": (_correlated(0.5), 0.0, math.nan),
    "repeats correlated .9": (_correlated(0.9), 0.0, math.nan),
}
"""Law of the repeats given the devices' own values; the median and the standard deviation that it adds."""
DEVICES: dict[str, Callable[[Rng, Shape], Floats]] = {
    "devices gamma 4": lambda r, s: DEVICE * (r.gamma(4, 1.0, (*s[:2], 1)) - 4) / 2,
    "devices gamma 1": lambda r, s: DEVICE * (r.exponential(1.0, (*s[:2], 1)) - 1),
    "two bins, 80 / 20, 2 % apart": lambda r, s: 0.02 * (r.random((*s[:2], 1)) < 0.2),
    "devices t3": lambda r, s: DEVICE / math.sqrt(3) * r.standard_t(3, (*s[:2], 1)),
}
LEAST = {"device": 0.93, "loud device": 0.90, "between": 0.93, "repeats": 0.90}
SHOWN = {
    ("device", "repeats correlated .5"),
    ("device", "repeats correlated .9"),
    ("between", "devices gamma 4"),
    ("between", "devices gamma 1"),
    ("between", "devices t3"),
    ("between", "1 device in 10 has 5 times the noise"),
}
BEFORE = {
    "device": "exponential, lognormal 91.5 to 93.3; loud 36; rounded to 1 / 3 % 74 to 89 / 12 to 61",
    "between": "gamma 4 / gamma 1 / t3 devices / unequal noise 91.5 to 94 / 80 to 89 / 76 to 87 / 88 to 94",
    "repeats": "t3 68 to 75; lognormal 68 to 83; exponential 79 to 91; unequal 57 to 73; 1 in 10 loud 39 to 77",
}


def _truths(name: str, devices: int, within: float) -> float:
    loud = -(-devices // 10) / devices
    return SPREAD * math.sqrt(1 + loud * (LOUD**2 - 1)) if name.startswith("1 device") else within


def coverage(rng: Rng, name: str, cases: int, shape: tuple[int, int]) -> dict[str, float | None]:
    """How often each interval holds; None for one that has no truth here."""
    law, median, within = REPEATS.get(name, REPEATS["normal"])
    hits: dict[str, list[Floats]] = {key: [] for key in LEAST}
    size = max(1, MOST_RUNS // math.prod(shape))
    for begin in range(0, cases, size):
        whole = (min(size, cases - begin), *shape)
        own = DEVICES.get(name, _normal)(rng, whole)
        slowness = law(rng, whole, own)
        truth = own[..., 0] * (0.5 if "rounded" in name else 1.0) + median
        truth = np.zeros(truth.shape) if "correlated" in name else truth
        repeats = noise.repeat_noise(slowness)
        half = noise.half_widths(slowness, repeats)
        inside = np.abs(np.nanmedian(slowness, -1) - truth) <= half
        hits["device"].append(inside)
        if name.startswith("1 device"):
            hits["loud device"].append(inside[:, ::10])
        parts = variance.variances(slowness, np.isfinite(slowness))
        between = math.nan if any(word in name for word in ("rounded", "correlated", "two bins")) else DEVICE
        for key, sd in (("between", between), ("repeats", _truths(name, shape[0], within))):
            _, low, high = parts.between if key == "between" else parts.within
            if not math.isnan(sd):
                hits[key].append((low <= sd**2) & (sd**2 <= high))
    return {key: float(np.concatenate(rows, None).mean()) if rows else None for key, rows in hits.items()}


def simulate(cell: Cells, cases: int) -> dict[str, Any]:
    return {
        "covered": {
            name: {
                f"{d} x {r}": cell(
                    f"{name}, {d} x {r}", cases, lambda rng, n, name=name, d=d, r=r: coverage(rng, name, n, (d, r))
                )
                for d, r in CELLS
            }
            for name in (*REPEATS, *DEVICES)
        }
        | {
            "2,000 devices, normal": {
                "2000 x 5": cell(
                    "2,000 devices, normal", max(1, cases // 8), lambda rng, n: coverage(rng, "normal", n, (2000, 5))
                )
            }
        },
    }


def failures(result: dict[str, Any]) -> list[str]:
    return [
        f"{name}, {cell}: the interval of {key} covers {share:.1%}"
        for name, row in result["covered"].items()
        for cell, shares in row.items()
        for key, least in LEAST.items()
        if (share := shares[key]) is not None
        and (key, name) not in SHOWN
        and share < least - 3 * math.sqrt(0.05 * 0.95 / shares["n"])
    ]


def lines(result: dict[str, Any]) -> list[str]:
    """One table per interval, in percent."""
    shown = [f"95 % intervals cover, %: {', '.join(f'{d} x {r}' for d, r in CELLS)}"]
    for key in LEAST:
        shown.append(f"  {key}, at least {100 * LEAST[key]:.0f}; before: {BEFORE.get(key, '36')}")
        for name, row in result["covered"].items():
            cells = [v[key] for v in row.values()]
            if cells[0] is not None:
                note = " (shown only)" if (key, name) in SHOWN else ""
                note += f"  n = {min(v['n'] for v in row.values()):,}"
                shown.append(f"    {name:40}" + "".join(f"{100 * v:7.1f}" for v in cells) + note)
    return shown
