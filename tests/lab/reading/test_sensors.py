"""Sensors of nvidia-smi beside step times from other files."""

from pathlib import Path

import pytest

from tests.lab.logs.test_smi import NVIDIA
from vernier.errors import ConfigError
from vernier.lab.reading.tables import read_table


def _durations(path: Path, device: int) -> Path:
    path.write_text("".join(f"Iteration Duration {i} {device} : 0.{1 + device}\n" for i in range(5)))
    return path


@pytest.mark.parametrize("name", ["smi_c196-031.csv", "smi.csv"])
def test_devices_get_their_sensors_by_host_and_number(tmp_path: Path, name: str) -> None:
    files = [_durations(tmp_path / f"resnet_iterdur_1700000000_c196-031_{d}_0.txt", d) for d in range(3)]
    (tmp_path / name).write_text(NVIDIA)
    table = read_table([*files, tmp_path / name])
    assert [(r.device, r.sensors.get("freq")) for r in table.rows] == [
        ("c196-031-0", 1510.0),
        ("c196-031-1", 1400.0),
        ("c196-031-2", None),
    ]
    assert any(f"sensors of 2 devices from {name}, medians while busy; 1 device without" in n for n in table.notes)


def test_sensors_of_another_host_are_not_taken(tmp_path: Path) -> None:
    file = _durations(tmp_path / "resnet_iterdur_1700000000_c196-031_0_0.txt", 0)
    (tmp_path / "smi_c196-032.csv").write_text(NVIDIA)
    table = read_table([file, tmp_path / "smi_c196-032.csv"])
    assert table.rows[0].sensors == {}


def test_by_uuid_and_what_a_table_has_already_stays(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("uuid,step_time_ms,freq\nGPU-a,100,1300\nGPU-b,101,\n")
    (tmp_path / "smi.csv").write_text(NVIDIA)
    table = read_table([tmp_path / "t.csv", tmp_path / "smi.csv"])
    by_device = {r.device: r.sensors for r in table.rows}
    assert (by_device["GPU-a"]["freq"], by_device["GPU-a"]["power"]) == (1300, 295.0)
    assert by_device["GPU-b"]["freq"] == 1400.0


def test_sensors_alone_are_no_study(tmp_path: Path) -> None:
    (tmp_path / "smi.csv").write_text(NVIDIA)
    with pytest.raises(ConfigError, match=r"sensors \(freq, power, temp\) of 2 devices, but no step times"):
        read_table([tmp_path / "smi.csv"])
