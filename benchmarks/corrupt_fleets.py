"""Fleets with devices that compute wrong, whose truth is known: does `study analyze` name them, are its bounds right?

    python benchmarks/corrupt_fleets.py fleet DIR [--wrong rate|stuck|hot] [--devices 12] [--repeats 5]
    python benchmarks/corrupt_fleets.py votes [--fleets 2000]
    python benchmarks/corrupt_fleets.py hours [--fleets 20000]

`fleet` writes the study of such a fleet, for `vernier study analyze DIR`. `votes` counts who is named: one device errs
at a rate (each repeat with a chance of --chance), has a stuck bit, or errs only when it is hot (a fraction --chance of
the repeats). `hours` lets all devices of a fleet corrupt at the same rate per device-hour, and counts how often a study
as long as `study design --corruption RATE` prints has no dissent (it should be 5 %), and how often the printed bound is
below the true rate. Nothing here is measured.
"""

import argparse
import math
from pathlib import Path

import numpy as np

from vernier.lab.records.bench import ExactResult
from vernier.lab.study.files import Repeat, StudyDir
from vernier.lab.study.records import StudyDevice, StudyMeta
from vernier.lab.study.votes import Ballot, Electorate, hours_needed, vote

KINDS = ("none", "rate", "stuck", "hot")
NAMES = (*(f"step {step}" for step in range(5, 101, 5)), "matrix product", "sum")
_HOT_C, _COOL_C = 84.0, 55.0


def fingerprints(first_wrong: int | None, what: str) -> tuple[str, ...]:
    """Those of a repeat; from a step on they are others. A wrong step leaves kernels right."""
    steps = len(NAMES) - 2
    wrong = range(steps if first_wrong is None else first_wrong, steps)
    return tuple(f"{name} {what if number in wrong else 'right'}" for number, name in enumerate(NAMES))


def repeats_of(kind: str, repeats: int, chance: float, rng: np.random.Generator) -> list[tuple[tuple[str, ...], float]]:
    """The fingerprints of each repeat of a device, and its temperature."""
    hot = rng.random(repeats) < chance
    errs = {"none": np.zeros(repeats, bool), "rate": rng.random(repeats) < chance, "stuck": ~np.zeros(repeats, bool)}
    wrong, stuck_at = {**errs, "hot": hot}[kind], int(rng.integers(20))
    # A stuck bit gives the same wrong result each time, what comes and goes another one.
    at = [stuck_at if kind == "stuck" else int(rng.integers(20)) for _ in range(repeats)]
    what = ["stuck" if kind == "stuck" else f"{rng.integers(2**63):016x}" for _ in range(repeats)]
    return [(fingerprints(at[k] if wrong[k] else None, what[k]), _HOT_C if hot[k] else _COOL_C) for k in range(repeats)]


def fleet(kind: str, devices: int, repeats: int, chance: float, rng: np.random.Generator) -> dict[str, list[Ballot]]:
    """Device 3 computes wrong."""
    return {
        f"gpu{number:03d}": [
            ballot_of(f"gpu{number:03d}", own)
            for own, _ in repeats_of(kind if number == 3 else "none", repeats, chance, rng)
        ]
        for number in range(devices)
    }


def ballot_of(device: str, own: tuple[str, ...], hours: float = 0.01) -> Ballot:
    return Ballot(device=device, model="A", hours=hours, result=ExactResult(library="torch", fingerprints=own))


def judged(ballots: dict[str, list[Ballot]]) -> Electorate:
    (result,) = vote(ballot for own in ballots.values() for ballot in own)
    return result


def write_fleet(arguments: argparse.Namespace) -> None:
    rng = np.random.default_rng(arguments.seed)
    names = [f"gpu{number:03d}" for number in range(arguments.devices)]
    devices = tuple(StudyDevice(id=name, index=i, name="A", host=f"host{i // 4}") for i, name in enumerate(names))
    meta = StudyMeta(workload="exact", iterations=100, repeats=arguments.repeats, devices=devices, simulated=True)
    study = StudyDir.create(arguments.out, meta)
    for number, name in enumerate(names):
        kind = arguments.wrong if number == 3 else "none"
        for k, (own, celsius) in enumerate(repeats_of(kind, arguments.repeats, arguments.chance, rng)):
            seconds = tuple(float(s) for s in 0.1 * np.exp(rng.normal(0, 0.01, 101)))
            exact, warm = ExactResult(library="torch", fingerprints=own), ({"t_s": 1.0, "temperature_c": celsius},)
            study.write_repeat(Repeat(device=name, repeat=k, seconds=seconds, telemetry=warm, exact=exact))
    study.write_tables()
    print(f"gpu003 of {arguments.devices}: {arguments.wrong}. vernier study analyze {arguments.out}")


def count_votes(arguments: argparse.Namespace) -> None:
    print(f"{'':<8}{'erred':>8}{'named':>8}{'others':>8}{'no vote':>9}   verdicts")
    for kind in KINDS:
        rng, erred, named, others, silent = np.random.default_rng(arguments.seed), 0, 0, 0, 0
        verdicts: dict[str, int] = {}
        for _ in range(arguments.fleets):
            ballots = fleet(kind, arguments.devices, arguments.repeats, arguments.chance, rng)
            result = judged(ballots)
            erred += len({ballot.result.fingerprints for ballot in (*ballots["gpu000"], *ballots["gpu003"])}) > 1
            named += any(each.device == "gpu003" for each in result.dissents)
            others += any(each.device != "gpu003" for each in result.dissents)
            silent += bool(result.no_verdict)
            for each in result.dissents:
                verdicts[each.verdict] = verdicts.get(each.verdict, 0) + 1
        print(f"{kind:<8}{erred:>8}{named:>8}{others:>8}{silent:>9}   {verdicts}")


def count_hours(arguments: argparse.Namespace) -> None:
    """All devices corrupt at the rate that the study was designed to exclude, or at a multiple of it."""
    rng, right = np.random.default_rng(arguments.seed), fingerprints(None, "")
    hours, repeats = hours_needed(arguments.rate), arguments.devices * arguments.repeats
    print(f"{hours:.4g} device-hours exclude a rate of {arguments.rate:g} per device-hour")
    print(f"{'true rate':>12}{'fleets':>8}{'no dissent':>12}{'one':>8}{'no vote':>9}{'bound below the true rate':>28}")
    for factor in (0.3, 1.0, 1.5, 3.0):
        clean = one = silent = below = 0
        chance = 1 - math.exp(-factor * arguments.rate * hours / repeats)
        for _ in range(arguments.fleets):
            wrong = np.flatnonzero(rng.random(repeats) < chance)
            ballots: dict[str, list[Ballot]] = {}
            for number in range(repeats):
                name, own = f"gpu{number % arguments.devices:03d}", right
                if number in wrong:
                    own = fingerprints(7, f"{number}")
                ballots.setdefault(name, []).append(ballot_of(name, own, hours / repeats))
            result = judged(ballots)
            clean, one = clean + (not len(wrong)), one + (len(wrong) == 1)
            silent += bool(result.no_verdict)
            below += not result.no_verdict and result.rate_per_hour() < factor * arguments.rate * (1 - 1e-9)
        percent = [f"{100 * each / arguments.fleets:.2f} %" for each in (clean, one, silent, below)]
        widths = (12, 8, 9, 28)
        cells = "".join(f"{text:>{width}}" for text, width in zip(percent, widths, strict=True))
        print(f"{factor * arguments.rate:>12g}{arguments.fleets:>8}{cells}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True)
    for action, carry_out in (("fleet", write_fleet), ("votes", count_votes), ("hours", count_hours)):
        sub = actions.add_parser(action)
        sub.set_defaults(carry_out=carry_out)
        if action == "fleet":
            sub.add_argument("out", type=Path)
            sub.add_argument("--wrong", choices=KINDS, default="rate")
        sub.add_argument("--devices", type=int, default=12)
        sub.add_argument("--repeats", type=int, default=5)
        sub.add_argument("--chance", type=float, default=0.4, help="that a repeat is wrong, or hot")
        sub.add_argument("--rate", type=float, default=0.001, help="per device-hour")
        sub.add_argument("--fleets", type=int, default=2000)
        sub.add_argument("--seed", type=int, default=0)
    parsed = parser.parse_args()
    parsed.carry_out(parsed)
