"""Does the study find the slow devices, and only those? Synthetic fleets whose slow devices are known.

Usage: python benchmarks/virtual_devices.py [--fleets 1000] [--devices 32] [--repeats 5] [--seed 1] [--json]

Every fleet has normal devices that differ a little, one per host, repeats that differ more, a few disturbed repeats,
and up to six devices that are slow by the same 5 to 20 % (simulated_fleet.py). Passes when 99.5 % of these stand out
and at most 1 % of the normal ones do; `certain` are those that are slow for sure. The figures are those of
`vernier study analyze`.
"""

import argparse
import json
import sys

import numpy as np
from simulated_fleet import FleetSettings, device_names, draw_fleet, fleet_table

from vernier.lab.study.analysis import Table, judge_devices

BETWEEN, REPEATS, DISTURBED = 0.006, 0.008, 0.03
LEAST_SLOWDOWN, MOST_SLOWDOWN, FALSE_ALARMS, FOUND = 0.05, 0.20, 0.01, 0.995


def fleet(rng: np.random.Generator, count: int, repeats: int) -> tuple[Table, set[str]]:
    """A simulated fleet, and the names of its slow devices."""
    settings = FleetSettings(
        devices=count,
        per_host=1,
        repeats=repeats,
        spread=BETWEEN,
        noise=REPEATS,
        disturbed=DISTURBED,
        slow=int(rng.integers(0, max(2, count // 5) + 1)),
        slow_by=float(rng.uniform(LEAST_SLOWDOWN, MOST_SLOWDOWN)),
    )
    draws = draw_fleet(settings, rng)
    slow = {name for name, fault in zip(device_names(settings), draws.faults, strict=True) if fault == "slow"}
    return fleet_table(settings, draws.step_s), slow


def simulate(fleets: int, count: int, repeats: int, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    slow = hits = certain = normal = false = clean = 0
    for _ in range(fleets):
        table, truth = fleet(rng, count, repeats)
        verdicts = judge_devices(table)
        called = {d.device for d in verdicts if d.stands_out == "slow"}
        certain += len(truth & {d.device for d in verdicts if d.sure_slow})
        slow, hits = slow + len(truth), hits + len(truth & called)
        normal, false = normal + count - len(truth), false + len(called - truth)
        clean += not called - truth
    return {
        "fleets": fleets,
        "devices": count,
        "repeats": repeats,
        "seed": seed,
        "slow_devices": slow,
        "found": hits,
        "found_share": hits / max(1, slow),
        "certain_share": certain / max(1, slow),
        "ordinary_devices": normal,
        "false_alarms": false,
        "false_alarm_share": false / max(1, normal),
        "fleets_without_false_alarm": clean / fleets,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("fleets", 1000), ("devices", 32), ("repeats", 5), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = simulate(arguments.fleets, arguments.devices, arguments.repeats, arguments.seed)
    print(json.dumps(result, indent=2) if arguments.json else "\n".join(f"{k:>28} {v:g}" for k, v in result.items()))
    sys.exit(0 if result["found_share"] >= FOUND and result["false_alarm_share"] <= FALSE_ALARMS else 1)


if __name__ == "__main__":
    main()
