"""Compares two runs, or two sets of runs: which is faster, how certain that is, and what else differs between them.

Reading logs is `report.logs`, the statistics are `measure.statistics.comparison`.
"""

from collections.abc import Sequence
from typing import Any

from vernier.config import tree_differences
from vernier.frozen import frozen
from vernier.measure.statistics.comparison import DEFAULT_TOLERANCE, compare
from vernier.records.codec import encode
from vernier.records.statistics import Comparison

from .logs.model import RunLog

_DIFFERS_ANYWAY = (
    "cpu.load_average",
    "command",
    "telemetry",
    "run",
    "recipe.seed",
    "recipe.published",
    "recipe.about",
    "recipe.source",
)
"""What differs from run to run without a meaning for speed."""
SHOWN_DIFFERENCES = 20
_Differences = dict[str, tuple[Any, Any]]


@frozen
class Side:
    """One side of a comparison. `format` and `devices` list the different values of its runs."""

    runs: tuple[str, ...]
    format: tuple[str, ...]
    devices: tuple[int, ...]
    warmup_steps_excluded: int


@frozen
class Differs:
    """Settings and environment that differ between the first runs of both sides: dotted name -> values of A and B."""

    settings: _Differences
    environment: _Differences


@frozen
class RunComparison:
    """B against A. `not_alike` says where the runs of one side differ among themselves."""

    a: Side
    b: Side
    comparison: Comparison
    differs: Differs
    not_alike: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def regressed(self) -> bool:
        return self.comparison.verdict == "slower"


def compare_runs(a: Sequence[RunLog], b: Sequence[RunLog], tolerance: float = DEFAULT_TOLERANCE) -> RunComparison:
    """Compare the runs of side B with those of side A. Raises ConfigError where one has no steps to measure."""
    comparison = compare([r.trace() for r in a], [r.trace() for r in b], tolerance)
    notes = [n for side in (a, b) for r in side for n in r.notes]
    if same := sorted({_identity(r) for r in a} & {_identity(r) for r in b}):
        notes.append(f"the same on both sides: {', '.join(same)}")
    return RunComparison(
        a=_side(a),
        b=_side(b),
        comparison=comparison,
        differs=Differs(
            settings=_differences(a[0].settings, b[0].settings),
            environment=_differences(encode(a[0].environment) or {}, encode(b[0].environment) or {}),
        ),
        not_alike=tuple(n for name, side in (("A", a), ("B", b)) for n in _unlike(name, side)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _identity(run: RunLog) -> str:
    return str((run.path.resolve(), run.round, hash(run.steps)))


def _side(runs: Sequence[RunLog]) -> Side:
    return Side(
        runs=tuple(str(r.path) for r in runs),
        format=tuple(sorted({r.format for r in runs})),
        devices=tuple(sorted({r.devices for r in runs if r.devices is not None})),
        warmup_steps_excluded=sum(not s.steady for r in runs for s in r.steps),
    )


def _numbered(tree: Any) -> Any:
    """Lists of tables as tables by position, so that differences within have a name; process ids are left out."""
    if isinstance(tree, dict):
        return {k: _numbered(v) for k, v in tree.items() if k != "pid"}
    if isinstance(tree, list) and tree and all(isinstance(v, dict) for v in tree):
        return {str(i): _numbered(v) for i, v in enumerate(tree)}
    return tree


def _differences(a: Any, b: Any) -> _Differences:
    differences = tree_differences(_numbered(a), _numbered(b))
    return {k: v for k, v in differences.items() if not any(k == p or k.startswith(f"{p}.") for p in _DIFFERS_ANYWAY)}


def _unlike(name: str, runs: Sequence[RunLog]) -> list[str]:
    """A sentence about the settings in which the runs of one side differ among themselves."""
    settings = sorted({k for r in runs[1:] for k in _differences(runs[0].settings, r.settings)})
    return [f"the runs of {name} are not alike: {', '.join(settings[:5])}"] if settings else []


def comparison_lines(result: RunComparison) -> list[str]:
    """The comparison for a person."""
    c = result.comparison
    interval = "" if c.low is None or c.high is None else f", 95 % interval {_percent(c.low)} to {_percent(c.high)}"
    mean = " (geometric mean over runs)" if max(c.runs) > 1 else ""
    lines = [
        f"A  {_side_line(result.a, c.a_samples_per_s, c.steps[0])}",
        f"B  {_side_line(result.b, c.b_samples_per_s, c.steps[1])}",
        f"B is {_percent(c.ratio)} in images per second against A{mean}{interval}",
        f"   from {c.basis}",
        f"verdict: {_verdict_line(c)}",
    ]
    for title, differences in (("setting", result.differs.settings), ("environment", result.differs.environment)):
        shown = list(differences.items())[:SHOWN_DIFFERENCES]
        lines += [f"differs in {title} {k}: {_short(x)} -> {_short(y)}" for k, (x, y) in shown]
        if len(differences) > SHOWN_DIFFERENCES:
            lines.append(f"differs in {title}: {len(differences) - SHOWN_DIFFERENCES} more (--json has all)")
    return lines + [f"note: {n}" for n in (*result.not_alike, *result.notes)]


def _side_line(side: Side, rate: float, steps: int) -> str:
    more = f" and {len(side.runs) - 1} more" if len(side.runs) > 1 else ""
    devices = f"on {'/'.join(map(str, side.devices))} device(s)" if side.devices else "(devices: not in the log)"
    return (
        f"{rate:,.1f} img/s total {devices}, data included; "
        f"{steps:,} steps of {len(side.runs)} run(s): {side.runs[0]}{more}"
    )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f} %"


def _verdict_line(c: Comparison) -> str:
    tolerance = f"{100 * c.tolerance:g} %"
    if c.verdict != "cannot tell":
        return f"B is {c.verdict} (certainly different, and by more than the tolerance of {tolerance})"
    if c.within_tolerance:
        return f"cannot tell them apart: any difference is smaller than {tolerance}"
    if c.low is None or c.high is None:
        return "cannot tell: too few steps for an interval"
    if c.low <= 1 <= c.high:
        return f"cannot tell: the interval includes both faster and slower (tolerance {tolerance})"
    return f"cannot tell: they differ, but perhaps by less than the tolerance of {tolerance}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
