"""Output of `vernier runs list`: the table of runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vernier.api.runs import DEFAULT_FOLDER, table_of_runs
from vernier.errors import EXIT_DONE
from vernier.quantities import age, file_size
from vernier.references import command
from vernier.requests.runs import ListRuns
from vernier.wording import plural

from .output import Terminal

if TYPE_CHECKING:
    from vernier.report.runs import RunRow

_FORMS = {"top1": "{:.2f} %", "AP": "AP {:.3f}", "images_per_s": "{:,.0f} img/s"}


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
