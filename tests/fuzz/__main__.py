"""`python -m tests.fuzz`: run the fuzzers, or replay one input that failed."""

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

from .campaign import Plan, run_campaign
from .guided import is_installed
from .targets import TARGETS
from .targets.base import Case
from .worker import Runner, probe

DEFAULT_INPUTS = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=DEFAULT_INPUTS, help="inputs of all targets together")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="CPU time of all targets together")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only this one; may be repeated")
    parser.add_argument("--seed", default="1", help="other inputs")
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="folder for inputs that fail")
    parser.add_argument(
        "--guided",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also inputs that are guided by coverage, where atheris is installed",
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", nargs="+", help="run inputs that failed before")
    options = parser.parse_args()
    if options.replay is not None:
        return max(_replay(path) for path in options.replay)
    plan = Plan(
        inputs=options.inputs,
        cpu_s=options.seconds,
        targets=tuple(options.target or TARGETS),
        seed=options.seed,
        guided=is_installed() and options.guided,
    )
    return int(bool(run_campaign(plan, options.out)))


def _replay(path: Path) -> int:
    """Say how the input fails, and show the traceback of an error."""
    case = Case.from_text(path.read_text())
    kind = probe(case)
    sys.stdout.write(f"{path.stem}: {kind or 'read, or refused as it should be'}\n")
    if kind is not None and " in " in kind:
        with tempfile.TemporaryDirectory() as folder:
            try:
                Runner(TARGETS[case.target], Path(folder)).read(case)
            except Exception:
                traceback.print_exc()
    return int(kind is not None)


if __name__ == "__main__":
    sys.exit(main())
