"""Output of `vernier eval`, `predict` and `export`."""

from vernier.api.crossing import run_in_processes
from vernier.api.models import evaluate_request, evaluation_processes, export_request, predict_request
from vernier.errors import EXIT_DONE, EXIT_FAILED
from vernier.records.run import EvaluationReport
from vernier.requests.models import Evaluate, Export, Predict
from vernier.wording import plural

from .output import Terminal

SHOWN = 20
"""Images that could not be read, and classes, of which the others are counted."""


def evaluate(request: Evaluate, terminal: Terminal) -> int:
    _, to_start = evaluation_processes(request, terminal)
    if to_start:
        return run_in_processes(request, terminal, to_start).code
    reports = []
    # Printed as they come: all checkpoints of a run can take hours.
    for report in evaluate_request(request, terminal):
        reports.append(report)
        if not request.json:
            terminal.show(*_report_lines(report))
    if request.json and reports:
        terminal.print_json(reports if request.which == "all" else reports[0])
    return EXIT_DONE


def _report_lines(report: EvaluationReport) -> list[str]:
    from vernier.report.live.console import TTA, format_figures

    part = "" if report.exact else f"  {report.describe_part()}"
    tta = f" {TTA}" if report.flip_tta else ""
    step = "" if report.step is None else f"weights of step {report.step:,}, "
    return [
        *([f"ran: {report.ran.line()}"] if report.ran is not None else []),
        f"{format_figures(report.figures)}  on {report.samples:,} images of {report.data} ({report.split}){part}{tta}",
        f"{'averaged ' if report.averaged else ''}{step}{report.weights}; {report.images_per_s_total:,.0f} img/s",
        *([f"prepared: {report.prepared}"] if report.prepared else []),
        *(f"note: {note}" for note in report.notes),
        *_bad_lines(report),
        *_class_lines(report),
        *(f"wrote {path}" for path in report.written),
    ]


def _bad_lines(report: EvaluationReport) -> list[str]:
    """The images that could not be read, by name."""
    if not report.bad_images:
        return []
    more = [f"  ... and {len(report.bad_images) - SHOWN} more"] if len(report.bad_images) > SHOWN else []
    head = f"{plural(len(report.bad_images), 'image')} could not be read, evaluated as black:"
    return [head, *(f"  {path}" for path in report.bad_images[:SHOWN]), *more]


def _class_lines(report: EvaluationReport) -> list[str]:
    """AP of a detector's classes; if there are many, the weakest ones first."""
    scores = [(c.AP, c) for c in report.classes or () if c.AP is not None]
    if len(scores) > SHOWN:
        # The weakest first: among hundreds of classes, they are what a reader looks for.
        scores = sorted(scores, key=lambda pair: pair[0])
    head = [f"the {SHOWN} weakest of {len(scores)} classes:"] if len(scores) > SHOWN else []
    return head + [f"  {c.name:<20} AP {ap:.4f}  AP50 {c.AP50 or 0.0:.4f}" for ap, c in scores[:SHOWN]]


def predict(request: Predict, terminal: Terminal) -> int:
    writer = predict_request(request, terminal)
    document = writer.document()
    if not request.json:
        terminal.say(f"prepared: {document.prepared}")
        terminal.warn(*document.notes)
    terminal.print_result(document, request.json, lambda _: writer.lines())
    return EXIT_FAILED if writer.failed else EXIT_DONE


def export(request: Export, terminal: Terminal) -> int:
    from vernier.report.model_card import describe_check

    exported = export_request(request, terminal)
    if request.json:
        terminal.print_json(exported)
        return EXIT_DONE
    terminal.warn(*exported.notes)
    if exported.check is not None:
        terminal.say(describe_check(exported.check))
    if exported.card is not None:
        terminal.say(f"card: {exported.card}")
    terminal.show(str(exported.path))
    return EXIT_DONE
