"""Compares two runs, or two sets of runs: which is faster, how certain that is, and what else differs between them.

Only the same work can be compared: `lab.logs.work` compares what logs say about it. Reading logs is `report.logs`,
the statistics are `lab.statistics.comparison`.
"""

from collections.abc import Sequence
from typing import Any

from vernier.config import tree_differences
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.logs.work import describe_work, different_work, other_differences, trace_of, unknown_work
from vernier.lab.statistics.comparison import DEFAULT_TOLERANCE, DETECTED, compare
from vernier.measure.runs import time_to_train
from vernier.records.codec import encode
from vernier.records.statistics import Comparison
from vernier.records.what_ran import WhatRan, line_of
from vernier.references import command, given, use
from vernier.report.logs.model import RunLog
from vernier.report.logs.work import Work, work_of
from vernier.wording import plural

_DIFFERS_ANYWAY = (
    "cpu.load_average",
    "command",
    "telemetry",
    "run",
    "recipe.seed",
    "seed",
    "recipe.published",
    "recipe.about",
    "recipe.source",
)
"""What differs from run to run without a meaning for speed."""
_IN_WORDS = (
    "recipe.name",
    "recipe.model",
    "recipe.global_batch",
    "recipe.data.source",
    "recipe.data.image_px",
    "recipe.data.eval_px",
    "recipe.data.eval_short_side_px",
    "machine.precision",
    "machine.mode",
    "machine.device",
    "machine.procs",
    "machine.threads",
    "machine.process_batch",
    "device_kind",
    "devices",
    "compute_threads",
    "versions.torch",
    "versions.vernier",
    "git_commit",
    "processes",
    "sensors",
)
"""What the words about both sides have already, where both have a record of what ran."""
_NOT_IN_A_BENCH = ("recipe.schedule", "recipe.eval", "checkpoint", "limits", "machine.telemetry_hz")
"""Settings of a training that a benchmark has no use for."""
_OTHER_WORK = "Not the same work"
SHOWN_DIFFERENCES = 20
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
    other_work: str | None
    not_alike: tuple[str, ...]
    notes: tuple[str, ...]

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
) -> RunComparison:
    """Compare the runs of side B with those of side A; copies of a run count once.

    Raises ConfigError where a run has no steps to measure, and for different work unless it is allowed.
    """
    # Copies first: a copy would count as another run that agrees perfectly, and make the interval too narrow.
    (a, copies_of_a), (b, copies_of_b) = _without_copies("A", a), _without_copies("B", b)
    (a, aborted_of_a), (b, aborted_of_b) = _without_aborted("A", a), _without_aborted("B", b)
    work_a, work_b = work_of(a[0]), work_of(b[0])  # the first run stands for its side; `_mixed_work` checks the others
    other_work = _describe_other_work(work_a, work_b)
    sides = (("A", a), ("B", b))
    mixed = next((text for name, side in sides if (text := _mixed_work(name, side))), None)
    if (refused := other_work or mixed) is not None and not allow_different_work:
        raise ConfigError(
            f"{refused}. Their speeds cannot be compared in a useful way; {use('different_work', True)} compares them "
            "all the same."
        )
    not_alike = [n for name, side in sides for n in _unlike(name, side)]
    comparison = compare([trace_of(r) for r in a], [trace_of(r) for r in b], tolerance, single_runs=single_runs)
    notes = [n for side in (a, b) for r in side for n in r.notes]
    return RunComparison(
        a=_side(a),
        b=_side(b),
        comparison=comparison,
        differs=_differs(a[0], b[0], work_a, work_b),
        other_work=other_work or mixed,
        not_alike=tuple(not_alike),
        notes=tuple(
            dict.fromkeys(
                [
                    *(*copies_of_a, *copies_of_b, *aborted_of_a, *aborted_of_b),
                    *_on_both_sides(a, b),
                    *_unknown(work_a, work_b),
                    *notes,
                ]
            )
        ),
    )


# --------------------------------------------------------------------------------------------------------------- copies


def _without_copies(name: str, runs: Sequence[RunLog]) -> tuple[list[RunLog], list[str]]:
    """The runs that differ in what they measured, and notes about the others."""
    distinct: dict[str, RunLog] = {}
    notes = []
    for run in runs:
        if (first := distinct.get(run.content)) is None:
            distinct[run.content] = run
        else:
            same = "is given twice" if run.path == first.path else f"is a copy of {first.path}"
            notes.append(f"{run.path} {same}: in {name} it counts once")
    return list(distinct.values()), notes


def _without_aborted(name: str, runs: Sequence[RunLog]) -> tuple[list[RunLog], list[str]]:
    """The runs that reached their target; aborted ones are not pooled with them, and are named in notes."""
    finished = [run for run in runs if not run.aborted]
    aborted = [str(run.path) for run in runs if run.aborted]
    if not aborted:
        return list(runs), []
    if not finished:  # nothing would remain: their speeds can still be compared
        return list(runs), [f"every run of {name} was aborted or did not reach its target: speeds only"]
    return finished, [f"left out of {name}, aborted or without reaching the target: {', '.join(aborted)}"]


def _on_both_sides(a: Sequence[RunLog], b: Sequence[RunLog]) -> list[str]:
    here = {run.content: run for run in a}
    pairs = [(here[run.content], run) for run in b if run.content in here]
    if not pairs:
        return []
    if len(pairs) == len(a) == len(b):
        return ["A and B are the same measurement: there is nothing to compare"]
    return [f"{y.path} of B is the same run as {x.path} of A: take it out of one side" for x, y in pairs]


# --------------------------------------------------------------------------------------------------------- what differs


def _describe_other_work(a: Work, b: Work) -> str | None:
    parts = different_work(a, b)
    if not parts:
        return None
    return f"{_OTHER_WORK}: A {describe_work(a, parts)}; B {describe_work(b, parts)} (different: {', '.join(parts)})"


def _mixed_work(name: str, runs: Sequence[RunLog]) -> str | None:
    """A sentence about the first run of a side that is of other work than those before it."""
    first = work_of(runs[0])
    for run in runs[1:]:
        if parts := different_work(first, work := work_of(run)):
            return (
                f"{_OTHER_WORK} within {name}: {runs[0].path} {describe_work(first, parts)}; {run.path} "
                f"{describe_work(work, parts)} (different: {', '.join(parts)})"
            )
    return None


def _unknown(a: Work, b: Work) -> list[str]:
    missing = unknown_work(a, b)
    return [f"whether A and B have the same {' and '.join(missing)} is not in the logs"] if missing else []


def _differs(a: RunLog, b: RunLog, work_a: Work, work_b: Work) -> Differs:
    hidden = (
        *(_IN_WORDS if a.ran is not None and b.ran is not None else ()),
        *(_NOT_IN_A_BENCH if a.format != b.format else ()),  # a run and a benchmark
    )
    comparable = (a.ran is None) == (b.ran is None)  # the settings of another system have other names
    return Differs(
        work={p: (work_a.texts[p], work_b.texts[p]) for p in different_work(work_a, work_b)},
        words=other_differences(work_a, work_b),
        settings=_differences(a.settings, b.settings, hidden) if comparable else {},
        environment=_differences(encode(a.environment) or {}, encode(b.environment) or {}, hidden)
        if comparable
        else {},
    )


def _side(runs: Sequence[RunLog]) -> Side:
    # MLPerf's score, so of its logs alone: other runs have no common target at which the clock stops.
    times = [r.total_s for r in runs if r.format == "mllog" and r.total_s and not r.aborted]
    score, how = time_to_train(times) or (None, None)
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


def _differences(a: Any, b: Any, hidden: tuple[str, ...] = ()) -> _Differences:
    differences = tree_differences(_numbered(a), _numbered(b))
    left_out = (*_DIFFERS_ANYWAY, *hidden)  # a name, or a group of settings: `run` hides run.x and not running
    return {k: v for k, v in differences.items() if not any(k == p or k.startswith(f"{p}.") for p in left_out)}


def _unlike(name: str, runs: Sequence[RunLog]) -> list[str]:
    """A sentence about the settings in which the runs of one side differ among themselves."""
    settings = sorted({k for r in runs[1:] for k in _differences(runs[0].settings, r.settings)})
    return [f"the runs of {name} are not alike: {', '.join(settings[:5])}"] if settings else []


# ---------------------------------------------------------------------------------------------------------------- words


def comparison_lines(result: RunComparison) -> list[str]:
    """The comparison for a person."""
    c = result.comparison
    mean = " (geometric mean over runs)" if max(c.runs) > 1 else ""
    lines = [
        *([result.other_work.replace(_OTHER_WORK, _OTHER_WORK.upper(), 1)] if result.other_work else []),
        *_side_lines("A", result.a, c.a_samples_per_s, c.steps[0]),
        *_side_lines("B", result.b, c.b_samples_per_s, c.steps[1]),
        f"B is {_percent(c.ratio)} in images per second against A{mean}{_interval(c)}",
        f"   from {c.basis}",
        *_power_lines(c),
        f"verdict: {_verdict_line(c)}",
        *(f"differs in {part}: {x} in A, {y} in B" for part, (x, y) in result.differs.words.items()),
    ]
    all_of_them = f"{command('compare', json=True)} lists all"
    for title, differences in (("setting", result.differs.settings), ("environment", result.differs.environment)):
        shown = list(differences.items())[:SHOWN_DIFFERENCES]
        lines += [f"differs in {title} {k}: {_short(x)} in A, {_short(y)} in B" for k, (x, y) in shown]
        if len(differences) > SHOWN_DIFFERENCES:
            lines.append(f"differs in {title}: {len(differences) - SHOWN_DIFFERENCES} more ({all_of_them})")
    return lines + [f"note: {n}" for n in (*result.not_alike, *result.notes)]


def _side_lines(name: str, side: Side, rate: float, steps: int) -> list[str]:
    paths = list(dict.fromkeys(side.runs))  # the rounds of a benchmark are in one file
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    count = "/".join(map(str, side.devices))
    devices = f"on {count} device{'' if count == '1' else 's'}" if side.devices else "(devices: not in the log)"
    return [
        f"{name}  {rate:,.1f} img/s total {devices}, data included; {plural(steps, 'step')} of "
        f"{plural(len(side.runs), 'run')}: {paths[0]}{more}",
        *([f"   {line_of([side.ran])}"] if side.ran else []),
        *(
            [f"   time to train {side.time_to_train_s / 60:,.2f} minutes ({side.time_to_train_is})"]
            if side.time_to_train_s
            else []
        ),
    ]


def _percent(ratio: float) -> str:
    if ratio > _LARGEST_RATIO:
        return f"more than {_LARGEST_RATIO} times"
    return f"{100 * (ratio - 1):+.2f} %"


def _interval(c: Comparison) -> str:
    if c.low is None or c.high is None:
        return ""
    # One run per side shows the noise within a run, not how runs of the same thing differ.
    kind = "95 % interval within these two runs" if c.runs == (1, 1) else "95 % interval"
    return f", {kind} {_percent(c.low)} to {_percent(c.high)}"


def _power_lines(c: Comparison) -> list[str]:
    """What difference could have been found, so that nobody takes "cannot tell" for "equal"."""
    if c.detectable is None:
        return []
    # Runs that differ very much make it endless; that is not written out.
    smallest = f"{100 * c.detectable:.2g} %" if c.detectable < 1 else "100 %"
    return [f"   such a comparison finds a difference of {smallest} or more in {100 * DETECTED:.0f} % of cases"]


def _verdict_line(c: Comparison) -> str:
    tolerance = f"{100 * c.tolerance:g} %"
    if c.verdict != "cannot tell":
        ignoring = f"; how runs differ is ignored: {given('single_runs', True)}" if c.runs == (1, 1) else ""
        return f"B is {c.verdict} (certainly different, and by more than the tolerance of {tolerance}{ignoring})"
    # Before the next cases: an interval within the tolerance is an answer, also if it includes 1.
    if c.within_tolerance:
        return f"cannot tell them apart: any difference is smaller than {tolerance}"
    if c.runs == (1, 1) and c.detectable is None:
        insist = "" if c.low is None else f", or insist with {use('single_runs', True)}"
        return f"cannot tell from one run each: runs of the same thing differ too. Give several runs per side{insist}"
    if c.low is None or c.high is None:
        return "cannot tell: there is no interval"
    if c.low <= 1 <= c.high:
        return f"cannot tell: the interval includes both faster and slower (tolerance {tolerance})"
    return f"cannot tell: they differ, but perhaps by less than the tolerance of {tolerance}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
