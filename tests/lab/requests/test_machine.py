"""The request of `doctor`."""

import pytest

from vernier.cli.parser import parse
from vernier.errors import ConfigError
from vernier.lab.requests.machine import Doctor


def test_old_names_of_doctor_mean_the_new_ones() -> None:
    request, _ = parse(Doctor, ["--devices", "--seconds", "3", "--no-probe"], "doctor")
    assert request == Doctor(test_devices=True, time="3s", probe=False)


@pytest.mark.parametrize("time", ["0s", "601s", "10", "soon"])
def test_the_speed_test_takes_up_to_ten_minutes(time: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Doctor(time=time)
    assert refused.value.given == {"time": time}
