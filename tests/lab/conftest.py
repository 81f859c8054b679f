"""A machine with every sensor Linux has for a processor, as real files."""

from pathlib import Path

import pytest


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    return path


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two cores with every sensor Linux has for them."""
    cpus = tmp_path / "sys/devices/system/cpu"
    for core, khz in enumerate((3_000_000, 2_000_000)):
        put(cpus / f"cpu{core}/cpufreq/scaling_cur_freq", str(khz))
        put(cpus / f"cpu{core}/thermal_throttle/core_throttle_count", "7")
    put(tmp_path / "sys/class/thermal/thermal_zone0/type", "acpitz")
    put(tmp_path / "sys/class/thermal/thermal_zone0/temp", "99000")
    put(tmp_path / "sys/class/thermal/thermal_zone1/type", "x86_pkg_temp")
    put(tmp_path / "sys/class/thermal/thermal_zone1/temp", "48000")
    put(tmp_path / "sys/class/hwmon/hwmon0/name", "k10temp")
    put(tmp_path / "sys/class/hwmon/hwmon0/temp1_input", "51500")
    put(tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj", "1000000")
    put(tmp_path / "sys/class/powercap/intel-rapl:0/max_energy_range_uj", "5000000")
    put(tmp_path / "sys/class/powercap/intel-rapl:0:0/energy_uj", "400000")
    return tmp_path
