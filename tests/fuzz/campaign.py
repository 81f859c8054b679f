"""A campaign: divides the inputs among the targets by their speed, and saves what fails, minimised.

Every target first gets a small share, from which its speed is known; the rest goes to the targets by the square of
their speed, since a slow target with as many inputs as a fast one would take nearly all of the time.
"""

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from .guided import run_guided
from .targets import TARGETS
from .targets.base import Case, make_case
from .worker import Outcome, minimise, probe, run_many

MINIMUM_SHARE = 0.003
"""Of all inputs, for each target."""
GUIDED_SHARE = 0.001
"""Of all inputs, for each parser, in addition."""


@dataclass(frozen=True)
class Plan:
    """How many inputs, or how much CPU time, for which targets."""

    inputs: int
    targets: tuple[str, ...]
    cpu_s: float = float("inf")
    seed: str = "1"
    guided: bool = False
    """With further inputs by atheris, marked with a star in the figures."""


@dataclass(frozen=True)
class Finding:
    """One kind of failure of a target, and the smallest input that shows it."""

    kind: str
    case: Case
    number: int
    reproduced: bool


def run_campaign(plan: Plan, out: Path, say: Callable[[str], object] = sys.stderr.write) -> list[Finding]:
    """Run the inputs, print figures per target, and save every finding to `out`."""
    for name in plan.targets:
        _check_examples(name)
    totals: dict[str, Outcome] = {}
    first = max(20, round(plan.inputs * MINIMUM_SHARE))
    share_s = plan.cpu_s / len(plan.targets)
    for name in plan.targets:
        totals[name] = _run(name, plan, range(min(first, TARGETS[name].most or first)), share_s / 4)
    rest = max(0, plan.inputs - sum(t.inputs for t in totals.values()))
    weights = {name: (t.inputs / max(t.cpu_s, 1e-3)) ** 2 for name, t in totals.items()}
    findings: list[Finding] = []
    for name in plan.targets:
        more = 0 if TARGETS[name].most else round(rest * weights[name] / sum(weights.values()))
        done = totals[name].inputs
        added = _run(name, plan, range(done, done + more), share_s - totals[name].cpu_s)
        totals[name] = _sum(totals[name], added)
        say(_line(name, totals[name]))
        for kind, number in totals[name].failures.items():
            findings.append(_finding(name, plan.seed, kind, number))
            say(_save(findings[-1], out))
    if plan.guided:
        findings += _run_guided(plan, totals, out, say)
    say(_line("all", _total(totals)))
    return findings


def _check_examples(name: str) -> None:
    """Raise RuntimeError where a sound file is refused: damage to it would be refused for that reason alone."""
    target = TARGETS[name]
    cases = [Case(name, e, p, target.sound[e][p]) for e, p in dict(target.damageable).items()]
    outcome = run_many(target, cases.__getitem__, range(len(cases)), until_cpu_s=120)
    if outcome.failures or outcome.typed != target.refused:
        raise RuntimeError(f"{outcome.typed} examples of {name} are refused, not {target.refused}: {outcome.failures}")


def _run_guided(plan: Plan, totals: dict[str, Outcome], out: Path, say: Callable[[str], object]) -> list[Finding]:
    """Some more inputs for the parsers, guided by coverage; what fails is run again and minimised like the rest."""
    findings = []
    for name in (name for name in plan.targets if TARGETS[name].text):
        outcome, cases = run_guided(name, round(plan.inputs * GUIDED_SHARE), plan.seed)
        outcome.failures = dict.fromkeys(cases, 0)
        totals[f"{name}, guided"] = outcome
        say(_line(f"{name}*", outcome))
        for kind, case in cases.items():
            findings.append(Finding(kind, minimise(case, kind), 0, reproduced=probe(case) is not None))
            say(_save(findings[-1], out))
    return findings


def _run(name: str, plan: Plan, numbers: range, cpu_s: float) -> Outcome:
    target = TARGETS[name]
    return run_many(target, lambda number: make_case(target, plan.seed, number), numbers, until_cpu_s=cpu_s)


def _sum(a: Outcome, b: Outcome) -> Outcome:
    return Outcome(
        inputs=a.inputs + b.inputs,
        typed=a.typed + b.typed,
        failures={**b.failures, **a.failures},
        peak_bytes=max(a.peak_bytes, b.peak_bytes),
        cpu_s=a.cpu_s + b.cpu_s,
        slowest_s=max(a.slowest_s, b.slowest_s),
    )


def _total(totals: dict[str, Outcome]) -> Outcome:
    total = Outcome()
    for name, outcome in totals.items():
        named = {f"{name}: {kind}": number for kind, number in outcome.failures.items()}
        total = _sum(total, replace(outcome, failures=named))
    return total


def _line(name: str, outcome: Outcome) -> str:
    return (
        f"{name:14} {outcome.inputs:9,} inputs  {outcome.typed:9,} refused  {len(outcome.failures):3} failures  "
        f"{outcome.cpu_s:7.1f} s  slowest {outcome.slowest_s:.2f} s  peak +{outcome.peak_bytes >> 20} MiB\n"
    )


# ------------------------------------------------------------------------------------------------------------- findings


def _finding(name: str, seed: str, kind: str, number: int) -> Finding:
    """The failure once more, alone and minimised."""
    case = make_case(TARGETS[name], seed, number)
    again = probe(case)
    if again is None:
        return Finding(kind, case, number, reproduced=False)
    return Finding(again, minimise(case, again), number, reproduced=True)


def _save(finding: Finding, out: Path) -> str:
    out.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(finding.kind.encode()).hexdigest()[:8]
    path = out / f"{finding.case.target}-{digest}.json"
    path.write_text(finding.case.to_text())
    note = "" if finding.reproduced else " (not when it runs alone)"
    return (
        f"{finding.case.target} #{finding.number}: {finding.kind}{note}\n"
        f"  {finding.case.example}/{finding.case.path}: {finding.case.content[:160]!r}\n"
        f"  python -m tests.fuzz --replay {path}\n"
    )
