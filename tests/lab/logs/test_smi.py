"""Samples of nvidia-smi and hl-smi."""

from pathlib import Path

import pytest

from vernier.errors import ConfigError
from vernier.lab.logs.smi import host_of, looks_like_smi, read_smi

NVIDIA = """\
timestamp, index, uuid, clocks.sm [MHz], power.draw [W], temperature.gpu, utilization.gpu [%]
2024/03/01 10:00:00.000, 0, GPU-a, 135 MHz, 30.00 W, 30, 0 %
2024/03/01 10:00:01.000, 0, GPU-a, 1500 MHz, 290.00 W, 60, 99 %
2024/03/01 10:00:01.000, 1, GPU-b, 1400 MHz, [N/A], 70, 99 %
2024/03/01 10:00:02.000, 0, GPU-a, 1520 MHz, 300.00 W, 62, 98 %
"""
GAUDI = "index,uuid,temperature.aip [C],power.draw [W]\n0,01P4-1,36,226\n1,01P4-2,40 C,230 W\n"


def test_medians_of_each_device_while_it_was_busy() -> None:
    assert looks_like_smi(NVIDIA)
    first, second = read_smi(Path("x.csv"), NVIDIA)
    assert (first.index, first.uuid, first.samples) == ("0", "GPU-a", 2)
    assert first.sensors == {"freq": 1510.0, "power": 295.0, "temp": 61.0}
    assert second.sensors == {"freq": 1400.0, "temp": 70.0}


def test_gaudis_have_no_clock() -> None:
    assert looks_like_smi(GAUDI)
    assert [d.sensors for d in read_smi(Path("x.csv"), GAUDI)] == [
        {"temp": 36.0, "power": 226.0},
        {"temp": 40.0, "power": 230.0},
    ]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "uuid,perf\nx,1\n", "power.draw [W]\n30 W\n"])
def test_other_tables_are_not_samples(text: str) -> None:
    assert not looks_like_smi(text)


def test_what_cannot_be_used_gets_a_message() -> None:
    with pytest.raises(ConfigError, match="query index or uuid too"):
        read_smi(Path("x.csv"), "timestamp, power.draw [W]\nnow, 30 W\n")
    with pytest.raises(ConfigError, match="no sample of a clock"):
        read_smi(Path("x.csv"), "index, power.draw [W]\n0, [N/A]\n")


def test_the_host_of_a_file() -> None:
    assert host_of(Path("smi_c196-031.csv")) == "c196-031"
    assert host_of(Path("smi.csv")) is None
