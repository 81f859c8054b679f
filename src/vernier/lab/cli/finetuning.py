"""`vernier finetune`: what it prints."""

from vernier.cli.output import Terminal
from vernier.config import names_code
from vernier.errors import EXIT_DONE
from vernier.lab.api.finetuning import FinetuningExplanation, FinishedRun, explain_finetuning, finetune_request
from vernier.lab.requests.finetuning import Finetune
from vernier.references import command
from vernier.report.live.console import closing_lines, format_figures
from vernier.store import RunDir
from vernier.templates import lines_of, open_templates


def finetune(request: Finetune, terminal: Terminal) -> int:
    if request.explain:
        terminal.print_result(explain_finetuning(request, terminal), request.json, _explanation_lines)
        return EXIT_DONE
    done = finetune_request(request, terminal)
    if done.finished is not None:
        _print_finished(done.finished, request.json, terminal)
    return done.ended.code


def _explanation_lines(explained: FinetuningExplanation) -> list[str]:
    warnings = (f"  warning        {warning}" for warning in explained.warnings)
    return [*explained.plan.lines(explained.time), *warnings]


def _print_finished(finished: FinishedRun, json: bool, terminal: Terminal) -> None:
    path = finished.record["run"]
    status = RunDir.open(path).status()
    if json:
        terminal.print_json({**finished.record, "status": status.status})
        return
    if status.summary is not None:
        terminal.show(*closing_lines(status.summary, str(path), "finished")[:-1], "")
    terminal.show(*_finished_lines(finished))


def _finished_lines(finished: FinishedRun) -> list[str]:
    done = finished.done
    # A file does not choose the code that runs: of an own model the run itself is used.
    usable = finished.record["run"] if names_code(done.about.model) else done.model
    templates = open_templates(__file__, figures=format_figures, command=command)
    return lines_of(templates, "finished.txt", {**vars(finished), "usable": usable})
