"""`vernier study`: what its actions print."""

from typing import TYPE_CHECKING

from vernier.cli.output import Terminal
from vernier.errors import EXIT_DONE, EXIT_FAILED
from vernier.lab.api.studies import analyze_study, check_machine, design_study, learn_baseline, merge_studies, run_study
from vernier.lab.requests.studies import StudyAnalyze, StudyBaseline, StudyCheck, StudyDesign, StudyMerge, StudyRun
from vernier.references import command, use
from vernier.wording import plural, rough_duration

if TYPE_CHECKING:
    from vernier.lab.study.design import DesignAnswer, Power

SHOWN = 20


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
    from vernier.lab.reading.text import study_lines, study_rows

    analysis = analyze_study(request, terminal).analysis
    terminal.print_result(analysis, request.json, study_lines)
    if not request.json:
        rows = study_rows(analysis, None if request.all_devices else SHOWN)
        terminal.print_rows(rows, droppable=("beyond fence", "chance it is normal", "repeats"))
    return EXIT_DONE


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
    from vernier.lab.reading.text import check_lines

    result = check_machine(request, terminal)
    terminal.print_result(result, request.json, check_lines)
    return EXIT_DONE if result.accepted else EXIT_FAILED


def merge(request: StudyMerge, terminal: Terminal) -> int:
    result = merge_studies(request, terminal)
    line = f"{result.path}: {result.devices} devices, {result.repeats} repeats"
    terminal.print_result(result, request.json, lambda _: [line])
    return EXIT_DONE


def design(request: StudyDesign, terminal: Terminal) -> int:
    result = design_study(request, terminal)
    source = (
        f"from {request.pilot}"
        if request.pilot
        else f"assumed; {use('pilot', slot='STUDY')} takes those of your devices"
    )
    assumed = (
        f"assumes     normal devices differ by {100 * result.spread:.2g} % (sd), repeats by {100 * result.noise:.2g} % "
        f"({source}); {100 * result.disturbed:.2g} % of repeats disturbed"
    )
    terminal.print_result(result, request.json, lambda _: [assumed, *_design_lines(result)])
    return EXIT_DONE


def _in_words(power: "Power") -> str:
    low, high = 100 * power.low, 100 * power.high
    return f"{100 * power.power:.0f} % (95 % interval {low:.0f} to {high:.0f}) of {power.fleets} simulated fleets"


def _slowdown(slower: float | None) -> str:
    return "no slowdown up to 50 %" if slower is None else f"a device that is {100 * slower:.2g} % slow or more"


def _design_lines(result: "DesignAnswer") -> list[str]:
    from vernier.lab.study.design import MOST_REPEATS

    proposed, best = result.proposed, result.cheapest
    slower = f"{100 * proposed.slower:.3g} %"
    if best is None:
        cheapest = (
            f"none up to {MOST_REPEATS} repeats: normal devices differ too much for {slower} to stand out; "
            f"{MOST_REPEATS} repeats find {_slowdown(result.limit)}"
        )
    else:
        hours = rough_duration(3600 * result.hours(best))
        cheapest = f"{best.devices} devices x {best.repeats} repeats: {_in_words(best)}, about {hours}"
    return [
        f"power       {proposed.devices} devices x {proposed.repeats} repeats name a device that is {slower} slow in "
        f"{_in_words(proposed)}; they name a normal one in {100 * proposed.false_alarms:.0f} %",
        f"time        about {rough_duration(3600 * result.hours(proposed))}",
        f"finds       in 95 % of fleets: {_slowdown(result.smallest)}",
        f"cheapest    {cheapest}",
    ]
