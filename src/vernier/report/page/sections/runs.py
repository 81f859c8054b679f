"""The table of all runs: results first, then what differs between them; to search, sort, group and save.

Runs that were read briefly are only here: `vernier report RUN...` with their names shows their curves too.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from vernier.report.page.collect import FULL_RUNS
from vernier.report.page.figures import Content, Figure, Runs, Section
from vernier.report.page.html import div, tag
from vernier.report.page.identity import differing_parts, differing_settings, short_names
from vernier.report.page.numbers import decimals
from vernier.report.page.training import Training
from vernier.wording import plural

MOST_SETTINGS = 12
"""So many settings that differ have a column; all of them are in the last section, for runs with curves."""
SHOWN_NOTES = 5
DIGITS = {"top-1 %": 2, "top-5 %": 2, "AP": 3, "AP50": 3, "data wait %": 1}
_WORK = ("network", "image size", "batch", "devices", "data", "precision", "mode", "device")
_COVERED_BY_PARTS = {
    "network": ("model.name", "model.width", "model.stem"),
    "image size": ("data.image_px", "data.eval_px", "data.eval_short_side_px"),
    "batch": ("global_batch", "machine.eval_batch", "recipe.batch"),
    "data": ("data.source",),
    "precision": ("machine.precision",),
    "mode": ("machine.mode",),
}
"""Settings that a part of what ran says already."""


def _runs_table(runs: list[Training]) -> Content | None:
    """None for a single run."""
    if len(runs) < 2:
        return None
    results, settings, more = _results(runs), _settings(runs), _more_results(runs)
    names = {"run": [s.name for s in runs]}
    paths = {"colour": [s.colour for s in runs], "path": [str(s.path) for s in runs]}
    columns = {n: c for n, c in (names | results | settings | more | paths).items() if any(v is not None for v in c)}
    numbers = {n: [v for v in c if isinstance(v, float)] for n, c in columns.items()}
    table = Runs(
        # Groups of one run each, or one group of all runs, would show nothing.
        groups=tuple(n for n in settings if 1 < len({*map(str, columns[n])}) < len(runs)),
        # Results only. Settings stay exact, since runs can differ in the sixth digit of one.
        digits={n: DIGITS.get(n, decimals(v)) for n, v in numbers.items() if v and n in (*results, *more)},
        hidden=("colour", "path", "img/s low", "img/s high"),
        briefly=any(s.brief for s in runs),
    )
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    figure = Figure("runs", "All runs", table, list(columns), rows)
    card = div("card", div("plot", data_figure="runs"), _notes(runs))
    return Content(lead=_lead(runs), parts=[card], figures=[figure])


def _notes(runs: Sequence[Training]) -> Markup | None:
    """What could not be read of runs that have no card."""
    lines = [f"{s.path}: {note}" for s in runs if s.brief for note in s.notes]
    more = [f"and {len(lines) - SHOWN_NOTES} more"] if len(lines) > SHOWN_NOTES else []
    return tag("ul", *(tag("li", line) for line in [*lines[:SHOWN_NOTES], *more]), cls="notes") if lines else None


def _lead(runs: Sequence[Training]) -> str:
    brief = sum(s.brief for s in runs)
    if not brief:
        return ""
    return (
        f"{plural(len(runs), 'run')}. Cards and curves are of the {FULL_RUNS} newest. "
        "For others, tick them and run the command that appears."
    )


def _results(runs: Sequence[Training]) -> dict[str, list[Any]]:
    rate, low, high = map(list, zip(*(s.images_per_s or (None, None, None) for s in runs), strict=True))
    return {
        "top-1 %": [s.figure("top1") for s in runs],
        "AP": [s.figure("AP") for s in runs],
        "accuracy in the log": [s.figure("eval_accuracy") for s in runs],
        "img/s": rate,
        "img/s low": low,
        "img/s high": high,
    }


def _more_results(runs: Sequence[Training]) -> dict[str, list[Any]]:
    waits = [s.summary.training.data_wait_share if s.summary.training else None for s in runs]
    return {
        "loss": [s.figure("loss") for s in runs],
        "best epoch": [_best_epoch(s) for s in runs],
        "time s": [s.spent_s.get("total") for s in runs],
        "data wait %": [None if wait is None else 100 * wait for wait in waits],
        "status": [f"{s.status}, smoke" if s.smoke else "log" if s.foreign else s.status for s in runs],
        "started": [s.started[:16].replace("T", " ") or None for s in runs],
        "note": [s.note[:200] or None for s in runs],
    }


def _best_epoch(s: Training) -> str | None:
    """As a text: whole epochs and parts of them in one column."""
    best, done = s.summary.best, s.summary
    if best and done.step and done.epoch:
        return f"{best.step * done.epoch / done.step:.4g}"
    return f"{s.best.epoch:.4g}" if s.best and not s.brief else None  # only the last evaluation of a brief run was read


def _settings(runs: Sequence[Training]) -> dict[str, list[Any]]:
    """What differs: parts of what ran, then settings that they do not say, the most important first."""
    kinds = [s.kind for s in runs]
    columns: dict[str, list[Any]] = {"what": kinds} if len(set(kinds)) > 1 else {}
    parts = [part for part in differing_parts([s.parts for s in runs]) if part in _WORK]
    for part in parts:
        columns[part] = [_brief_part(part, s.parts.get(part, "")) for s in runs]
    covered = tuple(setting for part in parts for setting in _COVERED_BY_PARTS.get(part, ()))
    own = Counter(s.kind for s in runs if not s.foreign).most_common(1)
    compared = [bool(own) and s.kind == own[0][0] and not s.foreign for s in runs]  # trainings with trainings
    trees = [s.settings for s, same in zip(runs, compared, strict=True) if same]
    settings = {n: c for n, c in differing_settings(trees).items() if not n.endswith(covered)}
    names = short_names(list(settings)[:MOST_SETTINGS])
    for name, short in names.items():
        values = iter(settings[name])  # of the compared runs alone; the others get None
        # A part of what ran can have the short name already, such as `mode`.
        columns[name if short in columns else short] = [next(values) if same else None for same in compared]
    return columns


def _brief_part(part: str, text: str) -> str | None:
    """A part of what ran for a narrow column: without what stands in brackets, data without how it was loaded."""
    short = text.partition(" (")[0].removeprefix(f"{part} ")
    return (short.partition(", ")[0] if part == "data" else short) or None


SECTION = Section(title="Runs", order=10, of=Training, brief=True, build=_runs_table)
