"""`vernier plan`: what it prints."""

from vernier.cli.output import Terminal
from vernier.errors import EXIT_DONE
from vernier.lab.api.planning import make_plan
from vernier.lab.planning.table import table_rows
from vernier.lab.requests.planning import Plan


def plan(request: Plan, terminal: Terminal) -> int:
    result = make_plan(request, terminal)
    if request.json:
        names = ("basis", "network", "workload", "scaling", "rows")
        terminal.print_json({name: getattr(result, name) for name in names})
    else:
        terminal.show(*result.summary)
        terminal.print_rows(table_rows(result.rows), droppable=("not hidden ms", "step ms", "per device"))
        terminal.warn(*result.notes)
    return EXIT_DONE
