"""Compares two runs, or two sets of runs: which is faster, how certain that is, and what else differs between them.

Only the same work can be compared: `lab.logs.work` compares what logs say about it. Reading logs is `lab.logs`,
the statistics are `lab.statistics.comparison`.
"""

import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from vernier.config import differences
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.logs.model import RunLog
from vernier.lab.logs.work import (
    Work,
    describe_work,
    different_work,
    other_differences,
    trace_of,
    unknown_work,
    work_of,
)
from vernier.lab.statistics.comparison import DEFAULT_RUNS, DEFAULT_TOLERANCE, DETECTED, compare
from vernier.lab.statistics.runs import time_to_train
from vernier.records.codec import encode
from vernier.records.statistics import Comparison, SpeedVerdict
from vernier.records.what_ran import WhatRan, line_of
from vernier.references import command, given, use
from vernier.report.runs import FIGURES
from vernier.requests.wording import PROGRAM
from vernier.templates import lines_of, open_templates
from vernier.wording import plural

_HIDDEN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_OTHER_WORK = "Not the same work"
_SHOWN_DIFFERENCES = 20
_LARGEST_RATIO = 100  # intervals of few, very different runs can reach hundreds of digits
_Differences = dict[str, tuple[Any, Any]]


@frozen
class Side:
    """One side of a comparison. `format` and `devices` list the different values of its runs; no devices: not known.

    `ran` is what ran in the first of them; None in logs of other systems.
    """

    runs: tuple[str, ...]
    format: tuple[str, ...]
    devices: tuple[int, ...]
    warmup_steps_excluded: int
    ran: WhatRan | None = None
    time_to_train_s: float | None = None
    """MLPerf's score, where these are MLPerf logs; `time_to_train_is` says of how many runs."""
    time_to_train_is: str | None = None


@frozen
class Differs:
    """What differs between the first runs of both sides: part or dotted name -> values of A and B.

    `work` has the parts that make it other work, `words` the others that people know by name.
    """

    work: dict[str, tuple[str, str]]
    words: dict[str, tuple[str, str]]
    settings: _Differences
    environment: _Differences


@frozen
class RunComparison:
    """B against A. `not_alike` says where the runs of one side differ among themselves."""

    a: Side
    b: Side
    comparison: Comparison
    differs: Differs
    accuracy: dict[str, tuple[float, float]]
    """Metric -> mean over the runs of A and of B, of their last evaluations; empty unless both sides have it."""
    other_work: str | None
    not_alike: tuple[str, ...]
    notes: tuple[str, ...]
    first: str | None = None
    """The side that was measured before the other; None if they were measured in turn, or if that is not known."""
    in_turn: str | None = None
    """Shell commands that measure both sides in turn; None if the runs do not say how they were started."""
    or_machine: SpeedVerdict | None = None
    """What B is unless the machine was, at the time of one side; the verdict then cannot tell."""

    @property
    def regressed(self) -> bool:
        return self.comparison.verdict == "slower"


def compare_runs(
    a: Sequence[RunLog],
    b: Sequence[RunLog],
    tolerance: float = DEFAULT_TOLERANCE,
    *,
    allow_different_work: bool = False,
    single_runs: bool = False,
    other_times: bool = False,
) -> RunComparison:
    """Compare the runs of side B with those of side A; copies of a run count once.

    Raises ConfigError where a run has no steps to measure, and for different work unless it is allowed.
    """
    notes: list[str] = []
    # Copies first: a copy would count as another run that agrees perfectly, and make the interval too narrow.
    every = {name: _without_copies(name, side, notes) for name, side in (("A", a), ("B", b))}
    # Aborted runs are not pooled with those that reached their target. If none did, speeds can still be compared.
    sides = {name: [run for run in side if not run.aborted] or side for name, side in every.items()}
    aborted = {name: [str(run.path) for run in side if run.aborted] for name, side in every.items()}
    for name, paths in aborted.items():
        if sides[name][0].aborted:
            notes.append(f"every run of {name} was aborted or did not reach its target: speeds only")
        elif paths:
            notes.append(f"left out of {name}, aborted or without reaching the target: {', '.join(paths)}")
    a, b = sides.values()
    work_a, work_b = work_of(a[0]), work_of(b[0])  # the first run stands for its side; `_mixed_work` checks the others
    other_work = _describe_other_work("", ("A", work_a), ("B", work_b))
    other_work = other_work or next((text for side in sides.items() if (text := _mixed_work(*side))), None)
    if other_work is not None and not allow_different_work:
        raise ConfigError(
            f"{other_work}. Their speeds cannot be compared in a useful way; {use('different_work', True)} compares "
            "them all the same."
        )
    notes += _on_both_sides(a, b)
    if missing := unknown_work(work_a, work_b):
        notes.append(f"whether A and B have the same {' and '.join(missing)} is not in the logs")
    compared = compare([trace_of(r) for r in a], [trace_of(r) for r in b], tolerance, single_runs=single_runs)
    first, or_machine = _when(a, b), None
    if first and not other_times and compared.verdict != "cannot tell":
        or_machine, compared = compared.verdict, replace(compared, verdict="cannot tell")
    return RunComparison(
        a=_side(a, len(aborted["A"])),
        b=_side(b, len(aborted["B"])),
        comparison=compared,
        differs=_differs(a[0], b[0], work_a, work_b),
        accuracy=_accuracy(a, b),
        other_work=other_work,
        not_alike=tuple(n for side in sides.items() for n in _unlike(*side)),
        first=first,
        in_turn=_in_turn(a[0], b[0]) if first else None,
        or_machine=or_machine,
        notes=tuple(dict.fromkeys([*notes, *(n for run in (*a, *b) for n in run.notes)])),
    )


def _without_copies(name: str, runs: Sequence[RunLog], notes: list[str]) -> list[RunLog]:
    """The runs that differ in what they measured; a note about each of the others."""
    distinct: dict[str, RunLog] = {}
    for run in runs:
        first = distinct.get(run.content)
        if first is None:
            distinct[run.content] = run
        else:
            same = "is given twice" if run.path == first.path else f"is a copy of {first.path}"
            notes.append(f"{run.path} {same}: in {name} it counts once")
    return list(distinct.values())


def _when(a: Sequence[RunLog], b: Sequence[RunLog]) -> str | None:
    """Which side was measured before the other, if it was: a machine that became slower would look the same."""
    if any(run.started is None for run in (*a, *b)) or any(run.round is not None for run in (*a, *b)):
        return None
    (a_from, a_to), (b_from, b_to) = ((min(r.began() for r in s), max(r.began() for r in s)) for s in (a, b))
    return "A" if a_to < b_from else "B" if b_to < a_from else None


def _in_turn(a: RunLog, b: RunLog) -> str | None:
    own, other = (_own_command(run) for run in (a, b))
    # The same command for both sides: what differs between them is not in it, such as a driver.
    if own is None or other is None or own == other:
        return None
    return f"for round in {' '.join(map(str, range(1, DEFAULT_RUNS + 1)))}; do {own}; {other}; done"


def _own_command(run: RunLog) -> str | None:
    """The command line of a run of Vernier; None for others, and for runs that Python started."""
    program, *rest = (run.environment and run.environment.command) or ("",)
    return shlex.join([PROGRAM, *rest]) if Path(program).name in (PROGRAM, "__main__.py") else None


def _on_both_sides(a: Sequence[RunLog], b: Sequence[RunLog]) -> list[str]:
    here = {run.content: run for run in a}
    pairs = [(here[run.content], run) for run in b if run.content in here]
    if not pairs:
        return []
    if len(pairs) == len(a) == len(b):
        return ["A and B are the same measurement: there is nothing to compare"]
    return [f"{y.path} of B is the same run as {x.path} of A: take it out of one side" for x, y in pairs]


# --------------------------------------------------------------------------------------------------------- what differs


def _describe_other_work(where: str, a: tuple[str, Work], b: tuple[str, Work]) -> str | None:
    """A sentence about two sides, or two runs, that are not of the same work; None if they are."""
    parts = different_work(a[1], b[1])
    both = "; ".join(f"{name} {describe_work(work, parts)}" for name, work in (a, b))
    return f"{_OTHER_WORK}{where}: {both} (different: {', '.join(parts)})" if parts else None


def _mixed_work(name: str, runs: Sequence[RunLog]) -> str | None:
    """A sentence about the first run of a side that is of other work than those before it."""
    first, *others = ((str(run.path), work_of(run)) for run in runs)
    return next((text for run in others if (text := _describe_other_work(f" within {name}", first, run))), None)


def _differs(a: RunLog, b: RunLog, work_a: Work, work_b: Work) -> Differs:
    hidden = [
        *(_HIDDEN["in_what_ran"] if a.ran is not None and b.ran is not None else ()),
        *(_HIDDEN["not_in_a_benchmark"] if a.format != b.format else ()),
    ]
    # The settings of another system have other names.
    comparable = (a.ran is None) == (b.ran is None)
    return Differs(
        work={p: (work_a.texts[p], work_b.texts[p]) for p in different_work(work_a, work_b)},
        words=other_differences(work_a, work_b),
        settings=_differences(a.settings, b.settings, hidden) if comparable else {},
        environment=_differences(encode(a.environment), encode(b.environment), hidden) if comparable else {},
    )


def _accuracy(a: Sequence[RunLog], b: Sequence[RunLog]) -> dict[str, tuple[float, float]]:
    last_a, last_b = ([run.evals[-1].values if run.evals else {} for run in side] for side in (a, b))
    names = [name for name in FIGURES if all(name in values for values in (*last_a, *last_b))]
    return {
        name: (fmean(values[name] for values in last_a), fmean(values[name] for values in last_b)) for name in names
    }


def _side(runs: Sequence[RunLog], aborted: int) -> Side:
    # MLPerf's score, so of its logs alone: other runs have no common target at which the clock stops.
    times = [r.total_s for r in runs if r.format == "mllog" and r.total_s and not r.aborted]
    score, how = time_to_train(times, aborted) or (None, None)
    return Side(
        runs=tuple(str(r.path) for r in runs),
        format=tuple(sorted({r.format for r in runs})),
        devices=tuple(sorted({r.devices for r in runs if r.devices is not None})),
        warmup_steps_excluded=sum(s.steps for r in runs for s in r.steps if not s.steady),
        ran=runs[0].ran,
        time_to_train_s=score,
        time_to_train_is=how,
    )


def _numbered(tree: Any) -> Any:
    """Lists of tables as tables by position, so that differences within have a name; process ids are left out."""
    if isinstance(tree, dict):
        return {k: _numbered(v) for k, v in tree.items() if k != "pid"}  # process ids differ in every run
    if isinstance(tree, list) and tree and all(isinstance(v, dict) for v in tree):
        return {str(i): _numbered(v) for i, v in enumerate(tree)}
    return tree


def _differences(a: Any, b: Any, hidden: Sequence[str]) -> _Differences:
    changes = differences(_numbered(a or {}), _numbered(b or {}))
    hidden = [*_HIDDEN["always"], *hidden]
    return {k: v for k, v in changes.items() if not any(f"{k}.".startswith(f"{name}.") for name in hidden)}


def _unlike(name: str, runs: Sequence[RunLog]) -> list[str]:
    """A sentence about the settings in which the runs of one side differ among themselves."""
    settings = sorted(
        {k for r in runs[1:] for k in _differences(runs[0].settings, r.settings, _HIDDEN["within_a_side"])}
    )
    return [f"the runs of {name} are not alike: {', '.join(settings[:5])}"] if settings else []


# ---------------------------------------------------------------------------------------------------------------- words


def _percent(ratio: float) -> str:
    if ratio > _LARGEST_RATIO:
        return f"more than {_LARGEST_RATIO} times"
    return f"{100 * (ratio - 1):+.2f} %"


_TEMPLATES = open_templates(
    __file__, command=command, given=given, use=use, line_of=line_of, percent=_percent, plural=plural
)


def comparison_lines(result: RunComparison) -> list[str]:
    """The comparison for a person: `templates/compare.txt`."""
    constants = {"DETECTED": DETECTED, "SHOWN": _SHOWN_DIFFERENCES, "OTHER_WORK": _OTHER_WORK}
    return lines_of(_TEMPLATES, "compare.txt", vars(result) | constants)
