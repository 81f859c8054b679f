"""`vernier audit`, `certify` and `verify`: what they print."""

from vernier.cli.output import Terminal
from vernier.errors import EXIT_DONE, EXIT_FAILED
from vernier.lab.api.audit import audit_run, certify_run, verify_run
from vernier.lab.report.audit import audit_lines, verify_lines
from vernier.lab.requests.audit import Audit, Certify, Verify
from vernier.references import command


def audit(request: Audit, terminal: Terminal) -> int:
    result = audit_run(request, terminal)
    terminal.print_result(result, request.json, audit_lines)
    return EXIT_DONE if result.verdict == "agrees" else EXIT_FAILED


def certify(request: Certify, terminal: Terminal) -> int:
    path = certify_run(request, terminal)
    lines = [f"{path}", f"Next: {command('verify', path)}"]
    terminal.print_result({"certificate": str(path)}, request.json, lambda _: lines)
    return EXIT_DONE


def verify(request: Verify, terminal: Terminal) -> int:
    result = verify_run(request, terminal)
    terminal.print_result(result, request.json, verify_lines)
    return EXIT_DONE if result.verdict == "agrees" else EXIT_FAILED
