"""`vernier doctor`: prints one screen about this machine, or one page about its devices."""

from vernier.cli.output import Terminal
from vernier.errors import EXIT_DONE
from vernier.lab.api.machine import examine_machine
from vernier.lab.requests.machine import Doctor


def doctor(request: Doctor, terminal: Terminal) -> int:
    result = examine_machine(request, terminal)
    from vernier.lab.report.machine import devices_lines, machine_lines

    terminal.print_result(result, request.json, devices_lines if request.test_devices else machine_lines)
    return EXIT_DONE
