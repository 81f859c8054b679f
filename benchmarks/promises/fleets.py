"""How often `vernier study` calls an ordinary device certainly slow or fast, for fleets that are not normal.

Run by benchmarks/coverage.py. Unless a law says otherwise, devices differ by 0.6 % and repeats of one device by 0.8 %.
A false alarm is a fleet in which at least one device of the law is called certainly slow (or fast). The band is 5 % for
each cell, plus what chance adds to so few cases. `power` is how often one device that is 3, 5 or 10 % slow is certainly
slow, and how often it at least stands out; `design` the same with spreads that `study design` knows, for laws that it
does not: shown, no band. Figures of an earlier version, simulated independently, are beside those of this one.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from promises.cells import Cells

from vernier.lab.study import design, outliers
from vernier.lab.study.noise import calm_medians, repeat_noise
from vernier.lab.study.outliers import Labels
from vernier.measure.estimates import Floats

Rng = np.random.Generator
Shape = tuple[int, int, int]
Law = Callable[[Rng, Shape], Floats]
MEASURED = ("lab/study/outliers.py", "lab/study/noise.py", "lab/statistics/distributions.py")
CELLS = ((8, 5), (32, 3), (32, 5), (32, 10), (100, 5))
FALSE_ALARMS, MOST_RUNS = 0.05, 400_000


def _own(rng: Rng, shape: Shape, sd: float = 0.006) -> Floats:
    return sd * rng.standard_normal((*shape[:2], 1))


def _noise(rng: Rng, shape: Shape, sd: float = 0.008) -> Floats:
    return sd * rng.standard_normal(shape)


def _devices(own: Callable[[Rng, tuple[int, int, int]], Floats], noise: float = 0.008) -> Law:
    """Devices of this law, repeats normal."""
    return lambda r, s: own(r, (*s[:2], 1)) + _noise(r, s, noise)


def _repeats(noise: Law) -> Law:
    """Normal devices, repeats of this law."""
    return lambda r, s: _own(r, s) + noise(r, s)


def _outliers(rng: Rng, shape: Shape, slow: float, fast: float) -> Floats:
    """Runs up to 20 % slower or faster."""
    chance, size = rng.random(shape), rng.uniform(0.0, 0.2, shape)
    return _noise(rng, shape) + np.where(chance < slow, size, np.where(chance > 1 - fast, -size, 0.0))


def _correlated(rng: Rng, shape: Shape, phi: float) -> Floats:
    noise = rng.standard_normal(shape)
    for k in range(1, shape[2]):
        noise[..., k] = phi * noise[..., k - 1] + math.sqrt(1 - phi**2) * noise[..., k]
    return 0.008 * noise


def _throttled(chance: float) -> Law:
    return _repeats(lambda r, s: _noise(r, s) + 0.05 * (r.random(s) < chance))


def _rounded(step: float) -> Law:
    """Times rounded to a share of their size."""
    return lambda r, s: np.log(step * np.round(np.exp(_own(r, s, 0.003) + _noise(r, s, 0.003)) / step))


def _unequal(rng: Rng, shape: Shape) -> Floats:
    """1 to R repeats per device; one has them all."""
    count = rng.integers(1, shape[2] + 1, shape[:2])
    count[:, 0] = shape[2]
    return np.where(np.arange(shape[2]) < count[..., None], _own(rng, shape) + _noise(rng, shape), np.nan)


def _drift(rng: Rng, shape: Shape) -> Floats:
    """All repeats of one device, then of the next, while everything becomes 3 % slower."""
    order = np.arange(shape[1] * shape[2]).reshape(shape[1:]) / (shape[1] * shape[2])
    return _own(rng, shape) + _noise(rng, shape) + 0.03 * order


def _walk(rng: Rng, shape: Shape) -> Floats:
    """A random walk of 2 % over the study, repeat after repeat of one device."""
    steps = rng.standard_normal((shape[0], shape[1] * shape[2])) * 0.02 / math.sqrt(shape[1] * shape[2])
    return _own(rng, shape) + _noise(rng, shape) + np.cumsum(steps, 1).reshape(shape)


def _lognormal(rng: Rng, shape: Shape) -> Floats:
    return 0.008 * np.exp(rng.standard_normal(shape))


def _unequal_noise(rng: Rng, shape: Shape) -> Floats:
    return _noise(rng, shape) * np.exp(0.7 * rng.standard_normal((*shape[:2], 1)))


def _gamma(shape: float, sd: float) -> Callable[[Rng, Shape], Floats]:
    return lambda r, s: sd * (r.gamma(shape, 1.0, s) - shape) / math.sqrt(shape)


LAWS: dict[str, Law] = {
    "normal": _repeats(_noise),
    "equal": _noise,
    "repeats t3": _repeats(lambda r, s: 0.008 / math.sqrt(3) * r.standard_t(3, s)),
    "repeats exponential 3 %": _repeats(lambda r, s: 0.03 * r.exponential(1.0, s)),
    "repeats lognormal": _repeats(_lognormal),
    "outliers both sides, 5 + 5 % of runs": _repeats(lambda r, s: _outliers(r, s, 0.05, 0.05)),
    "fast outliers, 10 % of runs": _repeats(lambda r, s: _outliers(r, s, 0.0, 0.1)),
    "first repeat +4 %, second +1.2 %": _repeats(
        lambda r, s: _noise(r, s) + np.where(np.arange(s[2]) == 0, 0.04, np.where(np.arange(s[2]) == 1, 0.012, 0.0))
    ),
    "half of the devices: first repeat +5 %": _repeats(
        lambda r, s: _noise(r, s) + 0.05 * (r.random((*s[:2], 1)) < 0.5) * (np.arange(s[2]) == 0)
    ),
    "unequal repeats, 1 to R": _unequal,
    "repeats correlated .5, equal devices": lambda r, s: _correlated(r, s, 0.5),
    "repeats correlated .9, equal devices": lambda r, s: _correlated(r, s, 0.9),
    "device after device, drift 3 %": _drift,
    "random walk 2 %, not shuffled": _walk,
    "noise differs per device": _repeats(_unequal_noise),
    "1 device in 10 has 5 times the noise": _repeats(
        lambda r, s: _noise(r, s) * np.where(r.random((*s[:2], 1)) < 0.1, 5.0, 1.0)
    ),
    "throttled, 30 % of repeats": _throttled(0.3),
    "throttled, 50 % of repeats": _throttled(0.5),
    "throttled, 70 % of repeats": _throttled(0.7),
    "own chance of throttling": _repeats(
        lambda r, s: _noise(r, s) + 0.05 * (r.random(s) < r.beta(0.5, 1.5, (*s[:2], 1)))
    ),
    "devices gamma 4": _devices(_gamma(4, 0.006)),
    "devices gamma 1": _devices(_gamma(1, 0.006)),
    "devices gamma 1, 1 %, noise .4 %": _devices(_gamma(1, 0.01), 0.004),
    "devices t3": _devices(lambda r, s: 0.006 / math.sqrt(3) * r.standard_t(3, s)),
    "two bins, 80 / 20, 2 % apart": _devices(lambda r, s: 0.02 * (r.random(s) < 0.2)),
    "two bins, 50 / 50, 3 % apart": _devices(lambda r, s: 0.03 * (r.random(s) < 0.5)),
    "times rounded to .2 %": _rounded(0.002),
    "times rounded to .5 %": _rounded(0.005),
    "times rounded to 1 %": _rounded(0.01),
    "times rounded to 3 %": _rounded(0.03),
}

BEFORE: dict[str, tuple[float, ...]] = {
    "normal": (2.3, 2.5, 2.5, 4.2, 3.5),
    "equal": (math.nan,) * 5,  # not measured independently
    "repeats t3": (3.1, 3.1, 3.5, 3.6, 4.3),
    "repeats exponential 3 %": (0.8, 2.4, 1.7, 1.1, 1.4),
    "repeats lognormal": (3.2, 2.0, 4.6, 4.4, 5.4),
    "outliers both sides, 5 + 5 % of runs": (1.6, 1.8, 1.8, 3.1, 2.5),
    "fast outliers, 10 % of runs": (1.2, 1.2, 1.4, 2.5, 1.5),
    "first repeat +4 %, second +1.2 %": (0.4, 0.0, 0.2, 4.0, 0.0),
    "half of the devices: first repeat +5 %": (1.3, 0.0, 2.1, 3.9, 2.1),
    "unequal repeats, 1 to R": (0.9, 1.4, 1.3, 1.2, 1.3),
    "repeats correlated .5, equal devices": (2.1, 2.6, 2.4, 2.5, 2.4),
    "repeats correlated .9, equal devices": (4.5, 3.7, 3.6, 4.0, 4.2),
    "device after device, drift 3 %": (0.7, 0.1, 0.0, 0.0, 0.0),
    "random walk 2 %, not shuffled": (3.1, 2.2, 2.7, 1.6, 1.0),
    "noise differs per device": (1.1, 7.7, 3.4, 2.5, 7.4),
    "1 device in 10 has 5 times the noise": (1.9, 11.5, 4.8, 2.8, 10.0),
    "throttled, 30 % of repeats": (1.8, 5.8, 3.0, 3.0, 4.9),
    "throttled, 50 % of repeats": (1.9, 6.0, 10.6, 7.7, 18.4),
    "throttled, 70 % of repeats": (1.1, 6.5, 0.6, 12.2, 0.0),
    "own chance of throttling": (24.0, 32.0, 65.0, 82.0, 88.0),
    "devices gamma 4": (5.5, 10.9, 16.8, 22.4, 28.0),
    "devices gamma 1": (11.6, 23.0, 34.5, 47.1, 59.0),
    "devices gamma 1, 1 %, noise .4 %": (29.8, 59.2, 63.8, 63.8, 83.6),
    "devices t3": (4.9, 11.7, 15.1, 24.4, 35.1),
    "two bins, 80 / 20, 2 % apart": (36.0, 31.0, 54.0, 77.0, 22.0),
    "two bins, 50 / 50, 3 % apart": (10.2, 2.5, 3.8, 4.3, 0.1),
    "times rounded to .2 %": (2.1, 2.1, 2.7, 3.4, 4.0),
    "times rounded to .5 %": (2.8, 1.4, 3.5, 15.9, 0.6),
    "times rounded to 1 %": (5.1, 3.6, 23.2, 22.5, 50.6),
    "times rounded to 3 %": (5.7, 9.6, 23.4, 21.9, 58.3),
}
"""Fleets with a certainly slow device, %, by cell of CELLS; simulated independently on 2026-11-18 at 5258558."""


def _on_hosts(differ: float, heavy: bool = False, slot: float = 0.0) -> Callable[[Labels], Law]:
    """Hosts that differ, by a normal law or Student's t3; the first device of each is slower by `slot`."""

    def law(hosts: Labels) -> Law:
        def draw(rng: Rng, shape: Shape) -> Floats:
            size = shape[0], int(hosts.max()) + 1, 1
            own = rng.standard_t(3, size) / math.sqrt(3) if heavy else rng.standard_normal(size)
            first = slot * np.isin(np.arange(shape[1]), np.unique(hosts, return_index=True)[1])[:, None]
            return _own(rng, shape) + _noise(rng, shape) + differ * own[:, hosts] + first

        return draw

    return law


def _even(devices: int, per_host: int) -> Labels:
    return np.arange(devices) // per_host


def _uneven(*counts: int) -> Labels:
    return np.repeat(np.arange(len(counts)), counts)


HOSTS: dict[str, tuple[Callable[[Labels], Law], Labels, int, str]] = {
    "8 in 2 hosts, 3 %": (_on_hosts(0.03), _even(8, 4), 5, "1.1 to 4.6"),
    "32 in 8 hosts, 3 %": (_on_hosts(0.03), _even(32, 4), 5, "1.1 to 4.6"),
    "64 in 8 hosts, 3 %": (_on_hosts(0.03), _even(64, 8), 5, "1.1 to 4.6"),
    "32 in 16 hosts, 1 %": (_on_hosts(0.01), _even(32, 2), 5, "1.1 to 4.6"),
    "8 in 2 hosts, 5 %": (_on_hosts(0.05), _even(8, 4), 5, "1.3 to 3.9"),
    "12 in 3 hosts, 5 %": (_on_hosts(0.05), _even(12, 4), 5, "1.3 to 3.9"),
    "16 in 4 hosts, 5 %": (_on_hosts(0.05), _even(16, 4), 5, "1.3 to 3.9"),
    "20 in 5 hosts, 5 %": (_on_hosts(0.05), _even(20, 4), 5, "1.3 to 3.9"),
    "14 in 3 uneven hosts, 3 %": (_on_hosts(0.03), _uneven(1, 8, 5), 5, "1.5 to 4.3"),
    "31 in 7 uneven hosts, 3 %": (_on_hosts(0.03), _uneven(1, 8, 3, 5, 2, 8, 4), 5, "1.5 to 4.3"),
    "54 in 12 uneven hosts, 3 %": (_on_hosts(0.03), _uneven(1, 8, 3, 5, 2, 8, 4, 7, 6, 1, 3, 6), 5, "1.5 to 4.3"),
    "8 of one host": (_on_hosts(0.03), _even(8, 8), 5, "2.2"),
    "first slot 1.5 % slow, 8 in 2": (_on_hosts(0.0, slot=0.015), _even(8, 4), 5, "1.8 to 8.8"),
    "first slot 1.5 % slow, 64 in 16": (_on_hosts(0.0, slot=0.015), _even(64, 4), 5, "1.8 to 8.8"),
    "32 in 8 hosts, t3 1 %": (_on_hosts(0.01, heavy=True), _even(32, 4), 5, "9.4"),
    "64 in 16 hosts, t3 1 %, 3 repeats": (_on_hosts(0.01, heavy=True), _even(64, 4), 3, "14.7"),
    "64 in 16 hosts, t3 1 %": (_on_hosts(0.01, heavy=True), _even(64, 4), 5, "17.4"),
}
"""Hosts that differ, the host of each device, repeats, and fleets with a false alarm before, %."""
CABINETS = (
    *((64, 4, 5, 0.04), (64, 4, 3, 0.04), (32, 2, 5, 0.04)),
    *((64, 4, 5, 0.0), (64, 4, 3, 0.0), (32, 2, 5, 0.0)),
)
"""Devices on hosts of four, cabinets, repeats, and by how much the first cabinet is slower; hosts differ by 0.5 %."""
FEW = ((3, 3, 13.9), (4, 3, 14.9), (4, 5, 29.6), (4, 10, 55.9))
FEW_CORRELATED = ((3, 3, 16.9), (4, 3, 18.1), (4, 5, 25.4), (4, 10, 30.8))
"""Devices, repeats, and fleets with a certainly slow device before, %: devices that differ, and equal ones whose
repeats are correlated by .5."""
MANY = {
    **{("normal", 5): 2.7, ("normal", 3): 1.3, ("equal", 5): 0.0, ("repeats t3", 3): 6.0, ("repeats t3", 5): 1.3},
    ("devices t3", 5): 99.0,
}
"""Laws and repeats of 2,000 devices, and what was called certainly slow before, %."""
MANY_POWER = (0.03, 0.05)
POWER = (
    *("normal", "repeats t3", "noise differs per device", "repeats exponential 3 %", "throttled, 30 % of repeats"),
    *("outliers both sides, 5 + 5 % of runs", "first repeat +4 %, second +1.2 %", "unequal repeats, 1 to R"),
    *("devices gamma 4", "devices t3", "times rounded to 1 %"),
)
DESIGNED = {
    "normal, 3 % slow": ("normal", 0.03, 51.0),
    "normal, 4.6 % slow": ("normal", 0.046, 94.0),
    "repeats lognormal, 3 % slow": ("repeats lognormal", 0.03, 18.0),
    "repeats lognormal, 4.6 % slow": ("repeats lognormal", 0.046, 74.0),
    "noise differs, 3 % slow": ("noise differs per device", 0.03, 40.0),
    "noise differs, 4.6 % slow": ("noise differs per device", 0.046, 86.0),
}
"""Of 64 devices x 3 one is slow: law, slowdown, and found before, %. `study design` assumes the first law."""


def _judged(
    rng: Rng, law: Law, cases: int, shape: tuple[int, int], change: float = 0.0, hosts: Labels | None = None
) -> Any:
    """Shares of fleets with a certainly slow, a certainly fast and a slow device that stands out.

    With `change` the first device is that much slower, and the shares are those of fleets in which it is named.
    """
    parts, size = [], max(1, MOST_RUNS // math.prod(shape))
    for begin in range(0, cases, size):
        slowness = law(rng, (min(size, cases - begin), *shape))
        slowness[:, 0] += math.log1p(change)
        judged = outliers.judge(slowness, repeat_noise(slowness), hosts)
        sides = (judged.slow, judged.fast, judged.slower)
        parts.append([side[:, 0] if change else side.any(-1) for side in sides])
    slow, fast, out = (float(np.concatenate(rows).mean()) for rows in zip(*parts, strict=True))
    return {"slow": slow, "fast": fast, "stands out": out}


def _cabinets(rng: Rng, cases: int, cell: tuple[int, int, int, float]) -> dict[str, float]:
    """Fleets in which the first cabinet, or another one, is slow or fast as a whole; and with a device to remove."""
    devices, cabinets, repeats, warmer = cell
    hosts, numbers = _even(devices, 4), _even(devices, devices // cabinets)
    shape = (cases, devices, repeats)
    slowness = _on_hosts(0.005)(hosts)(rng, shape) + warmer * (numbers == 0)[:, None]
    named = {"first": 0, "others": 0, "to remove": 0}
    for fleet in slowness:
        values = calm_medians(fleet, repeat_noise(fleet).calm)
        judged = outliers.judge_cabinets(values, hosts, numbers)
        differ = judged.slow | judged.fast
        named["first"] += bool(differ[0])
        # Of two, the other one is fast if the first is slow.
        named["others"] += bool(differ[1:].any()) and cabinets > 2
        off = np.array([np.median(values[numbers == c]) for c in range(cabinets)]) - np.median(values)
        moved = fleet - np.where(differ, off, 0.0)[numbers][:, None]
        named["to remove"] += bool(outliers.judge(moved, repeat_noise(moved), hosts).slow.any())
    return {key: count / cases for key, count in named.items()}


def _few(rng: Rng, law: Law, cases: int, shape: tuple[int, int]) -> dict[str, float]:
    """Fleets of which a device differs, and of which one is certainly slow: of so few devices none."""
    differ, slow = (called.any(-1).mean() for called in design.called_slow(law(rng, (cases, *shape)), None))
    return {"differ": float(differ), "slow": float(slow)}


def simulate(cell: Cells, cases: int) -> dict[str, Any]:
    def run(title: str, law: Law, shape: tuple[int, int], count: int = cases, **more: Any) -> Any:
        return cell(title, count, lambda rng, n: _judged(rng, law, n, shape, **more))

    designs = [(f"{d} x {r}", (d, r)) for d, r in CELLS]
    correlated = LAWS["repeats correlated .5, equal devices"]
    few = (("differ", LAWS["normal"], FEW), ("correlated", correlated, FEW_CORRELATED))
    return {
        "false alarms": {
            name: {text: run(f"false alarms, {name}, {text}", law, shape) for text, shape in designs}
            for name, law in LAWS.items()
        },
        "hosts": {
            name: run(f"hosts, {name}", law(hosts), (hosts.size, repeats), hosts=hosts)
            for name, (law, hosts, repeats, _) in HOSTS.items()
        },
        "one host, 5 % slow": run(
            "8 of one host, one 5 % slow", _on_hosts(0.03)(_even(8, 8)), (8, 5), hosts=_even(8, 8), change=0.05
        ),
        "cabinets": {
            (title := f"{each[0]} in {each[1]} x {each[2]}, {each[3]:+.0%}"): cell(
                f"cabinets, {title}", max(1, cases // 4), lambda rng, n, each=each: _cabinets(rng, n, each)
            )
            for each in CABINETS
        },
        "few": {
            (title := f"{d} x {r}, {name}"): cell(
                f"few, {title}", cases, lambda rng, n, law=law, d=d, r=r: _few(rng, law, n, (d, r))
            )
            for name, law, shapes in few
            for d, r, _ in shapes
        },
        "power": {
            f"{name}, {slower:.0%} slow": {
                text: run(f"power, {name}, {slower:.0%}, {text}", LAWS[name], shape, max(1, cases // 4), change=slower)
                for text, shape in designs
            }
            for name in POWER
            for slower in (0.03, 0.05, 0.10)
        },
        "design": {
            name: run(f"design, {name}", LAWS[law], (64, 3), change=by) for name, (law, by, _) in DESIGNED.items()
        },
        "2,000 devices": {
            f"{name} x {repeats}": run(
                f"2,000 devices x {repeats}, {name}",
                LAWS[name],
                (2000, repeats),
                # As many as the others where the figure is near its band; they take 30 ms each.
                cases if name == "devices t3" else max(20, cases // 4),
            )
            for name, repeats in MANY
        },
        "2,000 devices, power": {
            f"{by:.0%} slow": cell(
                f"2,000 devices x 5, {by:.0%} slow",
                max(20, cases // 8),
                lambda rng, n, by=by: _judged(rng, LAWS["normal"], n, (2000, 5), change=by),
            )
            for by in MANY_POWER
        },
    }


def failures(result: dict[str, Any]) -> list[str]:
    rows = [(f"{n}, {c}", v) for n, row in result["false alarms"].items() for c, v in row.items()]
    rows += [*result["hosts"].items(), *((f"2,000 devices, {n}", v) for n, v in result["2,000 devices"].items())]
    wrong = []
    for name, shares in rows:
        most = _allowed(shares["n"])
        wrong += [f"{name}: certainly {s} in {shares[s]:.1%}" for s in ("slow", "fast") if shares[s] > most]
    for name, shares in result["cabinets"].items():
        falsely = ("others", "to remove") if "+4%" in name else ("first", "others", "to remove")
        most = _allowed(shares["n"])
        wrong += [f"cabinets, {name}: {key} in {shares[key]:.1%}" for key in falsely if shares[key] > most]
    return wrong


def _allowed(cases: int) -> float:
    return FALSE_ALARMS + 3 * math.sqrt(FALSE_ALARMS * (1 - FALSE_ALARMS) / cases)


def lines(result: dict[str, Any]) -> list[str]:
    """Tables of percentages; each cell as before / now / fast now / standing out now."""
    shown = [
        f"fleets with a false alarm, %: {', '.join(f'{d} x {r}' for d, r in CELLS)}: before / slow / fast / stands out"
    ]
    for name, row in result["false alarms"].items():
        pairs = zip(BEFORE[name], row.values(), strict=True)
        shown.append(f"  {name:40}" + "  ".join(f"{b:4.1f} /{_cell(v)}" for b, v in pairs) + _cases(row.values()))
    shown.append("hosts: before / slow / fast / stands out")
    shown += [f"  {n:40}{HOSTS[n][3]:>10} /{_cell(v)}{_cases([v])}" for n, v in result["hosts"].items()]
    shown.append("8 of one host, one is 5 % slow (before 96 %): certainly / - / stands out")
    shown.append(f"  {'':40}{_cell(result['one host, 5 % slow'])}")
    shown.append("cabinets: the first one named / another one named / a device to remove")
    shown += [f"  {name:40}{_cell(v)}{_cases([v])}" for name, v in result["cabinets"].items()]
    shown.append("3 and 4 devices: certainly slow before; differ / certainly slow now")
    few = zip((*FEW, *FEW_CORRELATED), result["few"].items(), strict=True)
    shown += [f"  {name:40}{b:4.1f};{_cell(v)}{_cases([v])}" for (_, _, b), (name, v) in few]
    shown.append("2,000 devices: before / slow / fast / stands out")
    many = zip(MANY.values(), result["2,000 devices"].items(), strict=True)
    shown += [f"  {name:40}{before:4.1f} /{_cell(v)}{_cases([v])}" for before, (name, v) in many]
    shown.append("2,000 devices x 5, power (before 43 and 99 %): certainly slow / - / stands out")
    shown += [f"  {name:40}{_cell(v)}{_cases([v])}" for name, v in result["2,000 devices, power"].items()]
    shown.append("64 devices x 3, designed: before; certainly slow / - / stands out")
    shown += [f"  {n:40}{DESIGNED[n][2]:4.0f};{_cell(v)}{_cases([v])}" for n, v in result["design"].items()]
    shown.append("power: certainly slow / stands out")
    for name, row in result["power"].items():
        found = (f"{100 * v['slow']:3.0f} /{100 * v['stands out']:4.0f}" for v in row.values())
        shown.append(f"  {name:40}" + "   ".join(found) + _cases(row.values()))
    return shown


def _cell(figures: dict[str, float]) -> str:
    return " /".join(f"{100 * share:5.1f}" for key, share in figures.items() if key != "n")


def _cases(cells: Iterable[dict[str, float]]) -> str:
    return f"  n = {min(int(figures['n']) for figures in cells):,}"
