"""`vernier doctor`: prints one screen about this machine."""

from vernier.cli.output import Terminal
from vernier.errors import EXIT_DONE
from vernier.lab.api.machine import examine_machine
from vernier.lab.report.machine import machine_lines
from vernier.lab.requests.machine import Doctor


def doctor(request: Doctor, terminal: Terminal) -> int:
    terminal.print_result(examine_machine(request, terminal), request.json, machine_lines)
    return EXIT_DONE
