"""`vernier check`: what it prints."""

from vernier.cli.output import Terminal
from vernier.errors import EXIT_DONE, EXIT_FAILED
from vernier.lab.api.checking import Repeatability, check_request
from vernier.lab.requests.checking import Check


def check(request: Check, terminal: Terminal) -> int:
    result = check_request(request, terminal)
    terminal.print_result(result, request.json, _lines)
    return EXIT_DONE if result.exact else EXIT_FAILED


def _lines(result: Repeatability) -> list[str]:
    def verdict(differences: tuple[str, ...]) -> str:
        return f"DIFFERS: {'; '.join(differences)}" if differences else "bit-identical"

    return [
        f"repeated   {result.steps} steps: {verdict(result.repeated)}",
        f"resumed    after {result.steps // 2} of {result.steps} steps: {verdict(result.resumed)}",
    ]
