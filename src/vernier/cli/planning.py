"""`vernier plan` and `submit`: what they print."""

import statistics
from typing import TYPE_CHECKING

from vernier.api.planning import PlanAccuracy, make_plan, write_job
from vernier.errors import EXIT_DONE
from vernier.references import use
from vernier.requests.planning import Plan, Submit

from .output import Terminal

if TYPE_CHECKING:
    from vernier.measure.planning.published import CheckRow

SHOWN_CONVERSIONS = 8


def plan(request: Plan, terminal: Terminal) -> int:
    from vernier.measure.planning.table import table_rows

    result = make_plan(request, terminal)
    if isinstance(result, PlanAccuracy):
        terminal.print_json(result) if request.json else _show_accuracy(result, terminal)
    elif request.json:
        names = ("basis", "network", "workload", "scaling", "rows")
        terminal.print_json({name: getattr(result, name) for name in names})
    else:
        terminal.show(*result.summary)
        terminal.print_rows(table_rows(result.rows), droppable=("not hidden ms", "step ms", "per device"))
        terminal.warn(*result.notes)
    return EXIT_DONE


def submit(request: Submit, terminal: Terminal) -> int:
    job = write_job(request, terminal)
    if request.json:
        script = job.script if job.file is None else None
        terminal.print_json({"submit": job.to, "file": job.file, "job": job.job, "script": script})
    elif job.file is None:
        terminal.show(*job.script.splitlines())
    else:
        terminal.show(f"{job.file}: {job.job.describe()}. Submit it: {job.how}")
    return EXIT_DONE


def _show_accuracy(result: PlanAccuracy, terminal: Terminal) -> None:
    from vernier.measure.planning.conversion import conversion_error

    terminal.print_rows([_accuracy_cells(row) for row in result.scaling])
    terminal.print_rows(result.systems)
    errors, inside = [row.error_percent for row in result.scaling], sum(row.in_range for row in result.scaling)
    median = statistics.median(map(abs, errors))
    terminal.show(
        f"scaling: {len(errors)} published speeds of {len(result.systems)} systems, each predicted from the tables of "
        f"the other systems alone: off by {min(errors):+.1f} to {max(errors):+.1f} % (median {median:.1f} %); the "
        f"range covers {inside} of them ({100 * inside / len(errors):.0f} %; it is meant to cover 90 %)"
    )
    terminal.print_rows(sorted(result.conversions, key=lambda row: -abs(row.error_percent))[:SHOWN_CONVERSIONS])
    terminal.show(
        f"conversion by multiply-accumulates: {conversion_error()}; the worst {SHOWN_CONVERSIONS} are listed above "
        f"({use('json', True)} lists all)"
    )


def _accuracy_cells(row: "CheckRow") -> dict[str, str]:
    low, high = row.range_percent
    return {
        "system": row.system,
        "what": row.what,
        "devices": f"{row.base} to {row.devices:,}",
        "published": f"{row.published_percent:.0f} %",
        "predicted (range)": f"{row.predicted_percent:.0f} % ({low:.0f} to {high:.0f})",
        "error": f"{row.error_percent:+.0f} %",
        "in range": "yes" if row.in_range else "NO",
    }
