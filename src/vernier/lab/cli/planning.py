"""`vernier plan` and `submit`: what they print."""

from vernier.cli.output import Terminal
from vernier.errors import EXIT_DONE
from vernier.lab.api.planning import make_plan, write_job
from vernier.lab.planning.table import table_rows
from vernier.lab.requests.planning import Plan, Submit


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
