"""How often Vernier's 95 % intervals hold and its verdicts are right, simulated with the product's own functions.

Usage: python benchmarks/coverage.py [--only intervals|fleets|...] [--cases 4000 | --quick] [--seed 1] [--json]

Exit code 1 when a figure is outside its band. One file per subject in benchmarks/promises says what is simulated and
what the bands are: `simulate(cases, seed)`, `failures(result)` and `lines(result)`. --quick simulates fewer cases: a
figure just outside its band may then be chance.
"""

import argparse
import importlib
import json
import sys
import time
from pathlib import Path

SUBJECTS = ("intervals", "few_steps", "few_runs", "studies", "fleets", "fleet_intervals", "fleet_checks", "choices")
QUICK_CASES = 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SUBJECTS)
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--quick", action="store_const", const=QUICK_CASES, dest="cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    results, wrong = {}, []
    for name in [arguments.only] if arguments.only else SUBJECTS:
        subject, began = importlib.import_module(f"promises.{name}"), time.process_time()
        results[name] = subject.simulate(arguments.cases, arguments.seed)
        wrong += [f"{name}: {line}" for line in subject.failures(results[name])]
        if not arguments.json:
            print(f"{name}, {arguments.cases} cases, {time.process_time() - began:.0f} s of processor time")
            print("\n".join(subject.lines(results[name])))
    if arguments.json:
        print(json.dumps({**results, "failures": wrong}, indent=2))
    print("\n".join(f"FAILED {line}" for line in wrong), end="\n" if wrong else "", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
