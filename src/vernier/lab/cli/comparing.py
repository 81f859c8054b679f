"""`vernier compare` and `convert`: what they print."""

from vernier.cli.output import Terminal
from vernier.errors import EXIT_DONE, EXIT_FAILED
from vernier.lab.api.comparisons import compare_sides, convert_log
from vernier.lab.report.compare import comparison_lines
from vernier.lab.requests.comparing import Compare, Convert


def compare(request: Compare, terminal: Terminal) -> int:
    result = compare_sides(request).record
    terminal.print_result(result, request.json, comparison_lines)
    return EXIT_FAILED if result.regressed else EXIT_DONE


def convert(request: Convert, terminal: Terminal) -> int:
    converted = convert_log(request)
    if request.json:
        terminal.print_json(converted)
    else:
        terminal.show(*map(str, converted.written))
        terminal.warn(*(f"note: {note}" for note in converted.notes))
    return EXIT_DONE
