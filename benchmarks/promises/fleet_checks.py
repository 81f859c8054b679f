"""How often `vernier study check` rejects a healthy machine (1 % is promised), and how often it misses a slow device.

Run by benchmarks/coverage.py. A baseline is learned from a fleet with hosts of four, then a new machine of four devices
of the same law is checked, four machines per fleet; devices differ by 0.6 % and repeats by 0.8 % unless the law says
otherwise. `missed`: one of the four devices is 3, 5 or 10 % slow, a quarter of the cases, no band. Band: 1 %, plus what
chance adds to so few cases.
SHOWN breaks what the output states as a condition. *Before* was simulated independently on 2026-11-18 at 5258558.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from promises.cells import Cells

from vernier.lab.study.analysis import Measurement, Table
from vernier.lab.study.baseline import Baseline, check, learn
from vernier.measure.estimates import Floats

Rng = np.random.Generator
MEASURED = ("lab/study/baseline.py", "lab/study/outliers.py", "lab/study/noise.py", "lab/statistics/distributions.py")
PER_HOST, FALSE_ALARMS, SLOWER = 4, 0.01, (0.03, 0.05, 0.10)
MACHINES = 4
"""Machines that are checked with one baseline: learning it takes most of the time."""
DESIGNS = {"16 x 5": (16, 5, 5), "64 x 5": (64, 5, 5), "64 x 5, machine x 3": (64, 5, 3)}
"""Devices and repeats of the fleet, repeats of the machine."""
Law = Callable[[Rng, int, int], Floats]
"""Slowness of so many devices, in hosts of four, and repeats."""


def _own(r: Rng, d: int) -> Floats:
    return 0.006 * r.standard_normal((d, 1))


def _noise(r: Rng, d: int, k: int) -> Floats:
    return 0.008 * r.standard_normal((d, k))


def _devices(own: Callable[[Rng, tuple[int, int]], Floats]) -> Law:
    return lambda r, d, k: own(r, (d, 1)) + _noise(r, d, k)


def _repeats(noise: Law) -> Law:
    return lambda r, d, k: _own(r, d) + noise(r, d, k)


def _disturbed(share: float) -> Law:
    return _repeats(
        lambda r, d, k: _noise(r, d, k) + np.log1p(r.uniform(0.05, 0.3, (d, k))) * (r.random((d, k)) < share)
    )


def _hosts(differ: float) -> Law:
    return lambda r, d, k: (
        _own(r, d) + _noise(r, d, k) + np.repeat(differ * r.standard_normal((-(-d // PER_HOST), 1)), PER_HOST, 0)[:d]
    )


LAWS: dict[str, Law] = {
    "normal": _repeats(_noise),
    "repeats t3": _repeats(lambda r, d, k: 0.008 / math.sqrt(3) * r.standard_t(3, (d, k))),
    "3 % of runs disturbed": _disturbed(0.03),
    "20 % of runs disturbed": _disturbed(0.2),
    "devices gamma 4": _devices(lambda r, s: 0.006 * (r.gamma(4, 1.0, s) - 4) / 2),
    "devices gamma 1": _devices(lambda r, s: 0.006 * (r.exponential(1.0, s) - 1)),
    "devices t3": _devices(lambda r, s: 0.006 / math.sqrt(3) * r.standard_t(3, s)),
    "noise differs per device": _repeats(lambda r, d, k: _noise(r, d, k) * np.exp(0.7 * r.standard_normal((d, 1)))),
    "repeats exponential 3 %": _repeats(lambda r, d, k: 0.03 * r.exponential(1.0, (d, k))),
    "two bins, 80 / 20, 2 % apart": _devices(lambda r, s: 0.02 * (r.random(s) < 0.2)),
    "1 device in 20 is 3 % slow": _repeats(lambda r, d, k: _noise(r, d, k) + 0.03 * (r.random((d, 1)) < 0.05)),
    "hosts differ by 1 %": _hosts(0.01),
    "hosts differ by 3 %": _hosts(0.03),
}
BEFORE = {
    "normal": (0.2, 0.4, 0.3),
    "repeats t3": (0.3, 0.6, 0.6),
    "3 % of runs disturbed": (0.3, 0.5, 1.7),
    "20 % of runs disturbed": (20.8, 22.1, 35.9),
    "devices gamma 4": (1.4, 1.7, 1.8),
    "devices gamma 1": (4.9, 4.7, 3.6),
    "devices t3": (1.5, 1.9, 2.0),
    "noise differs per device": (1.7, 1.8, 2.9),
    "repeats exponential 3 %": (2.1, 1.7, 4.7),
    "two bins, 80 / 20, 2 % apart": (11.1, 1.4, 1.7),
    "1 device in 20 is 3 % slow": (15.3, 16.8, 17.3),
    "hosts differ by 1 %": (2.4, 0.6, 1.1),
    "hosts differ by 3 %": (8.7, 0.7, 1.4),
    "another day": (10.2, 13.7, 12.5),
    "another day, 8 control devices": (10.2, 13.7, 12.5),
}
BEFORE_LARGE = {"normal": 0.4, "devices gamma 1": 6.2, "noise differs per device": 3.0, "3 % of runs disturbed": 1.6}
"""With a baseline of 400 devices x 5."""
DAY, CONTROLS = 0.01, 8
SHOWN = ("another day", "1 device in 20 is 3 % slow")
"""The output names the condition that days do not differ; of the second law, 19 % of machines do have a slow device."""


def table(slowness: Floats) -> Table:
    rows = tuple(
        Measurement(device=f"d{i:04}", repeat=str(k), value=value, host=f"h{i // PER_HOST:04}")
        for i, runs in enumerate(np.exp(slowness).tolist())
        for k, value in enumerate(runs)
    )
    return Table(rows=rows, unit="s", what="median iteration")


def rates(rng: Rng, name: str, cases: int, design: tuple[int, int, int]) -> dict[str, float]:
    """How often a healthy machine is rejected, and a machine with one slow device accepted."""
    day, controls = (DAY, name != "another day") if name.startswith("another day") else (0.0, False)
    law, (devices, repeats, own_repeats) = LAWS.get(name, LAWS["normal"]), design
    rejected = 0
    missed = dict.fromkeys(SLOWER, 0)
    for case in range(cases):
        if case % MACHINES == 0:
            fleet = law(rng, devices, repeats)
            learned: Baseline = learn(table(fleet))
        shift = day * rng.standard_normal()
        machine = law(rng, PER_HOST, own_repeats) + shift
        own = fleet.mean(1, keepdims=True)[:CONTROLS]
        control = table(own + _noise(rng, CONTROLS, own_repeats) + shift) if controls else None
        rejected += not check(learned, table(machine), control=control).accepted
        for slower in SLOWER if case % MACHINES == 0 else ():
            slow = machine + np.log1p(slower) * (np.arange(PER_HOST)[:, None] == 0)
            missed[slower] += next(
                d.accepted for d in check(learned, table(slow), control=control).devices if d.device == "d0000"
            )
    quarter = -(-cases // MACHINES)
    return {"rejected": rejected / cases} | {f"{100 * s:.0f} % missed": n / quarter for s, n in missed.items()}


def simulate(cell: Cells, cases: int) -> dict[str, Any]:
    def run(title: str, name: str, design: tuple[int, int, int]) -> Any:
        return cell(title, cases, lambda rng, n: rates(rng, name, n, design))

    return {
        "rejected": {
            name: {text: run(f"{name}, {text}", name, design) for text, design in DESIGNS.items()} for name in BEFORE
        },
        "400 x 5": {name: run(f"{name}, 400 x 5", name, (400, 5, 5)) for name in BEFORE_LARGE},
    }


def failures(result: dict[str, Any]) -> list[str]:
    cells = [(f"{n}, {d}", v) for n, row in result["rejected"].items() if n not in SHOWN for d, v in row.items()]
    cells += [(f"{name}, 400 x 5", v) for name, v in result["400 x 5"].items()]
    return [
        f"{name}: rejects {v['rejected']:.1%} of healthy machines"
        for name, v in cells
        if v["rejected"] > FALSE_ALARMS + 3 * math.sqrt(FALSE_ALARMS * (1 - FALSE_ALARMS) / v["n"])
    ]


def lines(result: dict[str, Any]) -> list[str]:
    shown = [
        f"healthy machines rejected, %: {'; '.join(DESIGNS)}: before / now (missed if one device is 3, 5, 10 % slow)"
    ]
    for name, row in result["rejected"].items():
        pairs = zip(BEFORE[name], row.values(), strict=True)
        note = f"  n = {min(v['n'] for v in row.values()):,}" + (" (shown only)" if name in SHOWN else "")
        shown.append(f"  {name:32}" + "   ".join(f"{b:4.1f} /{_cell(v)}" for b, v in pairs) + note)
    shown.append("fleet 400 x 5")
    large = result["400 x 5"].items()
    return shown + [f"  {n:32}{BEFORE_LARGE[n]:4.1f} /{_cell(v)}  n = {v['n']:,}" for n, v in large]


def _cell(values: dict[str, float]) -> str:
    rejected, *missed = (100 * v for key, v in values.items() if key != "n")
    return f"{rejected:5.1f} ({', '.join(f'{v:.0f}' for v in missed)})"
