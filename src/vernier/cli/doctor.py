"""`vernier doctor`: prints one screen about this machine, or one page about its devices."""

from vernier.api.catalog import examine_machine
from vernier.errors import EXIT_DONE
from vernier.requests.catalog import Doctor

from .output import Terminal


def doctor(request: Doctor, terminal: Terminal) -> int:
    result = examine_machine(request, terminal)
    from vernier.report.machine import devices_lines, machine_lines

    terminal.print_result(result, request.json, devices_lines if request.test_devices else machine_lines)
    return EXIT_DONE
