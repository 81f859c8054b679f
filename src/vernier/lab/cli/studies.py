"""`vernier study`: what its actions print."""

from vernier.cli.output import Terminal
from vernier.errors import EXIT_DONE, EXIT_FAILED
from vernier.lab.api.studies import analyze_study, check_machine, design_study, learn_baseline, merge_studies, run_study
from vernier.lab.reading.text import check_lines, study_lines, study_rows
from vernier.lab.requests.studies import StudyAnalyze, StudyBaseline, StudyCheck, StudyDesign, StudyMerge, StudyRun
from vernier.lab.study.design import MOST_REPEATS
from vernier.lab.study.votes import hours_needed
from vernier.quantities import rough_duration
from vernier.references import command, use
from vernier.templates import lines_of, open_templates
from vernier.wording import plural

SHOWN = 20

_TEMPLATES = open_templates(__file__)


def run(request: StudyRun, terminal: Terminal) -> int:
    result = run_study(request, terminal)
    simulated = " (SIMULATED)" if result.simulated else ""
    lines = [
        f"{plural(result.devices, 'device')}{simulated}, {plural(result.repeats, 'repeat')} in {result.study}",
        f"Next: {command('study analyze', result.study)}",
    ]
    terminal.print_result(result, request.json, lambda _: lines)
    return EXIT_DONE


def analyze(request: StudyAnalyze, terminal: Terminal) -> int:
    analysis = analyze_study(request, terminal).analysis
    terminal.print_result(analysis, request.json, study_lines)
    if not request.json:
        rows = study_rows(analysis, None if request.all_devices else SHOWN)
        terminal.print_rows(rows, droppable=("beyond fence", "chance it is normal", "repeats"))
    return EXIT_FAILED if any(each.dissents for each in analysis.corruption or ()) else EXIT_DONE


def baseline(request: StudyBaseline, terminal: Terminal) -> int:
    learned = learn_baseline(request, terminal)
    line = (
        f"{request.out}: {learned.devices} devices, {learned.runs} runs; "
        f"normal devices differ by {100 * learned.speed.sd:.2f} % (sd), repeats by {100 * learned.noise_sd:.2f} %; "
        f"omitted as slow: {', '.join(learned.set_aside) or 'none'}"
    )
    terminal.print_result(learned, request.json, lambda _: [line])
    return EXIT_DONE


def check(request: StudyCheck, terminal: Terminal) -> int:
    result = check_machine(request, terminal)
    terminal.print_result(result, request.json, check_lines)
    return EXIT_DONE if result.accepted else EXIT_FAILED


def merge(request: StudyMerge, terminal: Terminal) -> int:
    result = merge_studies(request, terminal)
    line = f"{result.path}: {result.devices} devices, {result.repeats} repeats"
    terminal.print_result(result, request.json, lambda _: [line])
    return EXIT_DONE


def design(request: StudyDesign, terminal: Terminal) -> int:
    values = {"request": request, "most": MOST_REPEATS, "use": use, "duration": rough_duration, "hours": hours_needed}
    result = design_study(request, terminal)
    terminal.print_result(
        result,
        request.json,
        lambda answer: lines_of(_TEMPLATES, "design.txt", values | {"answer": answer}),
    )
    return EXIT_DONE
