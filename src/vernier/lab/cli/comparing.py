"""`vernier compare`: what it prints."""

from vernier.cli.output import Terminal
from vernier.errors import EXIT_DONE, EXIT_FAILED
from vernier.lab.api.comparisons import compare_sides
from vernier.lab.requests.comparing import Compare


def compare(request: Compare, terminal: Terminal) -> int:
    from vernier.lab.report.compare import comparison_lines

    result = compare_sides(request).record
    terminal.print_result(result, request.json, comparison_lines)
    return EXIT_FAILED if result.regressed else EXIT_DONE
