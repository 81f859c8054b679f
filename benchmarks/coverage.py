"""How often Vernier's 95 % intervals hold and its verdicts are right, simulated with the product's own functions.

Usage: python benchmarks/coverage.py [--only intervals|fleets|...] [--cases 4000 | --quick] [--seed 1]
           [--kept FILE --minutes 9 --match REGEX] [--json]

Exit code 1 when a figure is outside its band. One file per subject in benchmarks/promises says what is simulated and
what the bands are: `simulate(cell, cases)`, `failures(result)` and `lines(result)`. --quick simulates fewer cases:
bands are then wider by what chance adds.

With --kept every finished cell is appended to a file, and the same command continues there; --minutes ends it with exit
code 3 if cells are still missing. A change of the code measured, or of a subject's file, begins its cells again.
"""

import argparse
import importlib
import json
import math
import sys
import time
from pathlib import Path

SUBJECTS = ("intervals", "few_steps", "few_runs", "choices", "fleets", "fleet_intervals", "fleet_checks", "studies")
QUICK_CASES, MISSING = 400, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SUBJECTS)
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--quick", action="store_const", const=QUICK_CASES, dest="cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument(
        "--match", default="", help="a regular expression: only these cells get more cases than they have"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    from promises.cells import Cells, OutOfTimeError, digest

    ends_s = time.monotonic() + 60 * arguments.minutes
    results, wrong, missing = {}, [], []
    for name in [arguments.only] if arguments.only else SUBJECTS:
        subject = importlib.import_module(f"promises.{name}")
        code = digest(Path(str(subject.__file__)), subject.MEASURED)
        cell = Cells(name, code, arguments.seed, arguments.kept, ends_s, arguments.match)
        try:
            results[name] = subject.simulate(cell, arguments.cases)
        except OutOfTimeError as error:
            missing.append(str(error))
            continue
        wrong += [f"{name}: {line}" for line in subject.failures(results[name])]
        if not arguments.json:
            print(f"{name}, {len(cell.done)} cells, {cell.seconds:.0f} s of processor time")
            print("\n".join(subject.lines(results[name])), flush=True)
    if arguments.json:
        print(json.dumps({**results, "failures": wrong}, indent=2))
    print("\n".join(f"FAILED {line}" for line in wrong), end="\n" if wrong else "", file=sys.stderr)
    print("\n".join(f"MISSING from {line} on" for line in missing), end="\n" if missing else "", file=sys.stderr)
    sys.exit(1 if wrong else MISSING if missing else 0)


if __name__ == "__main__":
    main()
