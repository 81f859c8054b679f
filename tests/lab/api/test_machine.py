"""`doctor` in Python: the machine and its devices."""

import vernier as v
from vernier.lab.machine.doctor import Examination


def test_the_machine_is_examined() -> None:
    examination = v.doctor()
    assert isinstance(examination, Examination)
    assert "cpu" in {device.device for device in examination.devices}
