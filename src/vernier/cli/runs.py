"""Output of `vernier runs list` and `runs clean`: the table of runs, and the disk space that was freed or can be."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vernier.api.runs import DEFAULT_FOLDER, free_space, table_of_runs
from vernier.errors import EXIT_DONE, EXIT_FAILED
from vernier.quantities import age, file_size
from vernier.references import command, use
from vernier.requests.runs import CleanRuns, ListRuns
from vernier.wording import plural

from .output import Terminal

if TYPE_CHECKING:
    from vernier.report.runs import RunRow
    from vernier.store.cleaning import Plan

_FORMS = {"top1": "{:.2f} %", "AP": "AP {:.3f}", "images_per_s": "{:,.0f} img/s"}
MOST_LINES = 30


def list_runs(request: ListRuns, terminal: Terminal) -> int:
    rows = table_of_runs(request, terminal)
    if request.json:
        terminal.print_json(list(rows))
        return EXIT_DONE
    if not rows:
        terminal.warn(f"No runs in {', '.join(request.folders) or DEFAULT_FOLDER}/. {command('train')} makes one.")
        return EXIT_DONE
    several = len(request.folders) > 1
    terminal.print_rows(
        [_cells(row, several) for row in rows],
        droppable=("ran", "step", "age"),
        wrapped="run",
        right=("step", "size", "age"),
    )
    terminal.warn(*(f"damaged: {row.path}: {row.problem}" for row in rows if row.state == "damaged"), _total(rows))
    return EXIT_DONE


def _cells(row: "RunRow", several: bool) -> dict[str, str]:
    progress = "" if row.step is None else f"{row.step:,}"
    if row.steps is not None and row.steps != row.step:
        progress = f"{row.step or 0:,}/{row.steps:,}"
    result = "" if row.result is None else _FORMS[row.metric or ""].format(row.result)
    if row.kind == "study":
        result, progress = f"{progress} repeats", ""
    return {
        "run": f"{row.path if several else row.name}" + (f" ({row.differs})" if row.differs else ""),
        "state": row.state,
        "result": "smoke run" if row.smoke else result,
        "step": progress,
        "size": file_size(row.bytes),
        "age": age(row.age_s),
        "ran": row.ran,
    }


def _total(rows: "Sequence[RunRow]") -> str:
    states = dict.fromkeys(row.state for row in rows)
    counts = ", ".join(f"{sum(row.state == state for row in rows)} {state}" for state in states)
    return f"{plural(len(rows), 'run')}, {file_size(sum(row.bytes for row in rows))}: {counts}"


def clean(request: CleanRuns, terminal: Terminal) -> int:
    plan, done = free_space(request, terminal), request.yes
    if request.json:
        items = {"removed" if done else "removable": plan.removals, "left_alone": plan.left_alone}
        terminal.print_json({"dry_run": not done, "bytes": plan.bytes, **items})
    else:
        _print_plan(plan, done, terminal)
    return EXIT_FAILED if done and any(item.reason.startswith("could not") for item in plan.left_alone) else EXIT_DONE


def _print_plan(plan: "Plan", done: bool, terminal: Terminal) -> None:
    """The largest parts first, what was kept and why, and the sum."""
    # The largest first: they are the reason to clean.
    largest = sorted(plan.removals, key=lambda removal: -removal.bytes)
    for removal in largest[:MOST_LINES]:
        where = removal.run if removal.run is not None else removal.paths[0]
        parts = "" if where in removal.paths else f": {_names(removal.paths)}"
        terminal.show(f"{removal.kind:<12} {file_size(removal.bytes):>7}  {where}{parts}")
    everything = f"({use('json', True)} has all)"
    if len(largest) > MOST_LINES:
        terminal.show(f"... and {len(largest) - MOST_LINES} more {everything}")
    terminal.warn(*(f"left alone: {item.path}: {item.reason}" for item in plan.left_alone[:MOST_LINES]))
    if len(plan.left_alone) > MOST_LINES:
        terminal.warn(f"left alone: {len(plan.left_alone) - MOST_LINES} more {everything}")
    kinds = dict.fromkeys(removal.kind for removal in largest)
    sums = {kind: sum(removal.bytes for removal in largest if removal.kind == kind) for kind in kinds}
    by_kind = f" ({', '.join(f'{kind} {file_size(size)}' for kind, size in sums.items())})" if len(sums) > 1 else ""
    if not largest:
        terminal.warn("Nothing to remove.")
    elif done:
        terminal.show(f"freed {file_size(plan.bytes)}{by_kind}")
    else:
        add = use("yes", True)
        terminal.show(f"{file_size(plan.bytes)} can be freed{by_kind}. Nothing was removed: add {add} to do it.")


def _names(paths: Sequence[Path]) -> str:
    names = ", ".join(path.name for path in paths[:3])
    return names if len(paths) <= 3 else f"{names} and {len(paths) - 3} more"
