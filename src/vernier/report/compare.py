"""Two runs, or two sets of runs, beside each other: which is faster, how sure, and what else differs between them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vernier.config import tree_differences
from vernier.errors import ConfigError
from vernier.measure.statistics.comparison import DEFAULT_TOLERANCE, compare
from vernier.records.codec import encode
from vernier.report.logs.model import RunLog

_PASSING = (
    "cpu.load_average", "command", "telemetry", "run", "recipe.seed", "recipe.published", "recipe.about", "recipe.source",
)  # fmt: skip
SHOWN_DIFFERENCES = 20


def parse_tolerance(text: str) -> float:
    """1% or 0.01."""
    try:
        value = float(text.rstrip("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ConfigError(f"--tolerance {text!r} is not a share. Write 1% or 0.01.") from None
    if not 0 <= value < 1:
        raise ConfigError(f"--tolerance {text} is not between 0 and 100 %. Write 1% or 0.01.")
    return value


def compare_runs(a: Sequence[RunLog], b: Sequence[RunLog], tolerance: float = DEFAULT_TOLERANCE) -> dict[str, Any]:
    """Everything as plain values; `comparison` is the verdict, B against A."""
    same = sorted({str(_identity(r)) for r in a} & {str(_identity(r)) for r in b})
    found = compare([r.trace() for r in a], [r.trace() for r in b], tolerance)
    notes = [n for side in (a, b) for r in side for n in r.notes]
    if same:
        notes.append(f"the same on both sides: {', '.join(same)}")
    return {
        "a": _side(a),
        "b": _side(b),
        "comparison": encode(found),
        "differs": {
            "settings": _differs(a[0].settings, b[0].settings),
            "environment": _differs(encode(a[0].environment) or {}, encode(b[0].environment) or {}),
        },
        "not_alike": [n for name, side in (("A", a), ("B", b)) for n in _unlike(name, side)],
        "notes": list(dict.fromkeys(notes)),
    }


def _identity(run: RunLog) -> tuple[Path, int | None, int]:
    return run.path.resolve(), run.round, hash(run.steps)


def _side(runs: Sequence[RunLog]) -> dict[str, Any]:
    return {
        "runs": [str(r.path) for r in runs],
        "format": sorted({r.format for r in runs}),
        "devices": sorted({r.devices for r in runs}),
        "warmup_steps_excluded": sum(not s.steady for r in runs for s in r.steps),
    }


def _numbered(tree: Any) -> Any:
    """Lists of tables as tables by position, so that what differs in them can be named; process ids are left out."""
    if isinstance(tree, dict):
        return {k: _numbered(v) for k, v in tree.items() if k != "pid"}
    if isinstance(tree, list) and tree and all(isinstance(v, dict) for v in tree):
        return {str(i): _numbered(v) for i, v in enumerate(tree)}
    return tree


def _differs(a: dict[str, Any], b: dict[str, Any]) -> dict[str, list[Any]]:
    found = tree_differences(_numbered(a), _numbered(b))
    return {k: list(v) for k, v in found.items() if not any(k == p or k.startswith(f"{p}.") for p in _PASSING)}


def _unlike(name: str, runs: Sequence[RunLog]) -> list[str]:
    """Settings in which the runs of one side differ among themselves."""
    found = sorted({k for r in runs[1:] for k in _differs(runs[0].settings, r.settings)})
    return [f"the runs of {name} are not alike: {', '.join(found[:5])}"] if found else []


def comparison_lines(found: dict[str, Any]) -> list[str]:
    """For a person."""
    c: dict[str, Any] = found["comparison"]
    lines = [f"{label}  {_side_line(found[key], c, n)}" for n, (label, key) in enumerate((("A", "a"), ("B", "b")))]
    between = "" if c["low"] is None else f", 95 % interval {_percent(c['low'])} to {_percent(c['high'])}"
    mean = " (geometric mean over runs)" if max(c["runs"]) > 1 else ""
    lines.append(f"B is {_percent(c['ratio'])} in images a second against A{mean}{between}")
    lines.append(f"   from {c['basis']}")
    lines.append(f"verdict: {_verdict_line(c)}")
    for what, title in (("settings", "setting"), ("environment", "environment")):
        pairs = list(found["differs"][what].items())
        lines += [f"differs in {title} {k}: {_short(x)} -> {_short(y)}" for k, (x, y) in pairs[:SHOWN_DIFFERENCES]]
        if len(pairs) > SHOWN_DIFFERENCES:
            lines.append(f"differs in {title}: {len(pairs) - SHOWN_DIFFERENCES} more (--json has all)")
    return lines + [f"note: {n}" for n in (*found["not_alike"], *found["notes"])]


def _side_line(side: dict[str, Any], c: dict[str, Any], which: int) -> str:
    runs, rate = side["runs"], (c["a_samples_per_s"], c["b_samples_per_s"])[which]
    more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
    devices = "/".join(map(str, side["devices"]))
    return (
        f"{rate:,.1f} img/s in all on {devices} device(s), data included; {c['steps'][which]:,} steps of {c['runs'][which]} run(s): "
        f"{runs[0]}{more}"
    )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f} %"


def _verdict_line(c: dict[str, Any]) -> str:
    tolerance = f"{100 * c['tolerance']:g} %"
    if c["verdict"] != "cannot tell":
        return f"B is {c['verdict']} (surely different, and by more than the tolerance of {tolerance})"
    if c["within_tolerance"]:
        return f"cannot tell them apart: any difference is smaller than {tolerance}"
    if c["low"] is None:
        return "cannot tell: too few steps for an interval"
    if c["low"] <= 1 <= c["high"]:
        return f"cannot tell: the interval holds both faster and slower (tolerance {tolerance})"
    return f"cannot tell at the tolerance of {tolerance}: they differ, but by less than that as far as can be seen"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def regressed(found: dict[str, Any]) -> bool:
    return bool(found["comparison"]["verdict"] == "slower")
