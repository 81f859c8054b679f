"""Does the study find the slow devices, and only those? Synthetic fleets whose slow devices are known.

Usage: python benchmarks/virtual_devices.py [--fleets 1000] [--devices 32] [--repeats 5] [--seed 1] [--json]

Every fleet has ordinary devices that differ a little, repeats that differ more, now and then a repeat disturbed by something
else, and up to six devices that are 5 to 20 % slow. Passes when every slow device is found and at most 1 % of ordinary ones are
called slow. The figures are those of `vernier study analyze`.
"""

import argparse
import json
import sys

import numpy as np

from vernier.measure.study.analysis import Measurement, Table, judge_devices

BETWEEN, REPEATS, DISTURBED = 0.006, 0.008, 0.03
LEAST_SLOWDOWN, FALSE_ALARMS = 0.05, 0.01


def fleet(rng: np.random.Generator, count: int, repeats: int) -> tuple[Table, set[str]]:
    slow = rng.choice(count, rng.integers(0, max(2, count // 5) + 1), replace=False)
    factor = np.exp(BETWEEN * rng.standard_normal(count))
    factor[slow] = 1 + rng.uniform(LEAST_SLOWDOWN, 0.20, slow.size)
    values = factor[:, None] * np.exp(REPEATS * rng.standard_normal((count, repeats)))
    values *= np.where(rng.random((count, repeats)) < DISTURBED, 1 + rng.exponential(0.2, (count, repeats)), 1.0)
    rows = [
        Measurement(device=f"gpu{d:03d}", repeat=str(k), value=float(values[d, k]))
        for d in range(count)
        for k in range(repeats)
    ]
    return Table(rows=tuple(rows), unit="s", what="median iteration", simulated=True), {f"gpu{d:03d}" for d in slow}


def simulate(fleets: int, count: int, repeats: int, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    slow = found = ordinary = false = clean = 0
    for _ in range(fleets):
        table, truth = fleet(rng, count, repeats)
        said = {d.device for d in judge_devices(table) if d.sure_slow}
        slow, found = slow + len(truth), found + len(truth & said)
        ordinary, false = ordinary + count - len(truth), false + len(said - truth)
        clean += not said - truth
    return {
        "fleets": fleets, "devices": count, "repeats": repeats, "seed": seed, "slow_devices": slow, "found": found,
        "found_share": found / max(1, slow), "ordinary_devices": ordinary, "false_alarms": false,
        "false_alarm_share": false / max(1, ordinary), "fleets_without_false_alarm": clean / fleets,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("fleets", 1000), ("devices", 32), ("repeats", 5), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = simulate(given.fleets, given.devices, given.repeats, given.seed)
    print(json.dumps(found, indent=2) if given.json else "\n".join(f"{k:>28} {v:g}" for k, v in found.items()))
    sys.exit(0 if found["found_share"] == 1 and found["false_alarm_share"] <= FALSE_ALARMS else 1)


if __name__ == "__main__":
    main()
