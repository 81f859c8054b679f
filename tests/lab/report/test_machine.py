"""The texts of `vernier doctor`; tests/lab/cli/test_machine.py has those of real machines."""

from vernier.lab.machine.doctor import examine
from vernier.lab.report.machine import machine_lines


def test_a_device_is_listed_once_with_a_row_per_mode_and_each_reason_once() -> None:
    lines = machine_lines(examine())
    cpu = next(number for number, line in enumerate(lines) if line.startswith("device     cpu: 1 x "))
    modes = [line.split()[0] for line in lines[cpu + 1 : cpu + 4]]
    assert modes == ["eager", "compile", "trace"]
    reasons = [line for line in lines[cpu + 4 :] if line.startswith("           - ")]
    assert reasons
    assert len(set(reasons)) == len(reasons)
