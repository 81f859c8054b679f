"""Sensors of the processor: files below /proc and /sys, so any directory with such files can stand in for them."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from vernier.clock import now_s
from vernier.lab.records.telemetry import Reading
from vernier.records.environment import MissingSensor, SensorDevice

_LOAD_EVERY_S = 0.5
"""How often the CPU's load is read: at 10 Hz it would be rounded to tenths, and be most of the cost of sampling."""
_TEMPERATURE_LABELS = ("x86_pkg_temp", "cpu", "soc", "tcpu", "coretemp", "k10temp", "zenpower")


class CpuSensors:
    """The processor of this machine as one device. `own_processes` are those whose CPU time counts as our own.

    `cores`: clock and throttling are those of these cores; power and energy exist for whole processors only.
    """

    kind = "cpu"
    devices: tuple[SensorDevice, ...] = (SensorDevice(kind="cpu", index=0, name="cpu"),)

    def __init__(
        self,
        root: Path = Path("/"),
        own_processes: Callable[[], list[psutil.Process]] | None = None,
        cores: Sequence[int] = (),
    ) -> None:
        # One object for all readings: making one reads more of /proc than a reading does.
        this = psutil.Process()
        self._own_processes = own_processes or (lambda: [this])
        self._this = this
        self.missing: list[MissingSensor] = []
        cpus = root / "sys/devices/system/cpu"
        names = sorted(path.name for path in cpus.glob("cpu[0-9]*"))
        used = [name for name in names if not cores or int(name.removeprefix("cpu")) in cores]
        clocks = [path for name in used for path in cpus.glob(f"{name}/cpufreq/scaling_cur_freq")]
        self._clocks = self._readable("clock_mhz", clocks, "no cpufreq: a virtual machine, or no driver")
        self._temperatures = self._readable(
            "temperature_c", _temperature_files(root), "no thermal zone or hwmon of the CPU"
        )
        # whole packages only: their cores and memory controllers are parts of them
        packages = sorted((root / "sys/class/powercap").glob("intel-rapl:[0-9]/energy_uj"))
        # Energy of a whole processor, divided by images of half of it, would double the joules per image.
        if len(used) < len(names):
            self._miss("energy_j", "RAPL counts whole processors, and only some of their cores are in use")
            packages = []
        else:
            packages = self._readable("energy_j", packages, "no energy counter of the CPU (RAPL, powercap)")
        self._energy = [_EnergyCounter(package) for package in packages]
        throttles = sorted(path for name in used for path in cpus.glob(f"{name}/thermal_throttle/*_throttle_count"))
        self._throttles = self._readable("throttle", throttles, "no thermal_throttle counters")
        self._throttle_count = sum(map(_number, self._throttles))
        self._miss("memory_clock_mhz", "CPUs do not report it")
        self._miss("power_limit_w", "not read on CPUs")
        if not self._energy:
            self._miss("power_w", "follows from the energy counter")
        self._times_before, self._load_due_s = self._times(), 0.0
        self._energy_before = self._joules()

    def _miss(self, sensor: str, why: str) -> None:
        self.missing.append(MissingSensor(kind="cpu", device=0, sensor=sensor, why=why))

    def _readable(self, sensor: str, paths: list[Path], why_none: str) -> list[Path]:
        """The files that can be read; without any the sensor is missing."""
        readable = [p for p in paths if _is_readable(p)]
        if not readable:
            self._miss(sensor, f"{paths[0]} cannot be read by this user" if paths else why_none)
        return readable

    def _times(self) -> tuple[float, float, float, float]:
        """Busy, stolen and total seconds of all cores, and seconds of our own processes."""
        cores = psutil.cpu_times()._asdict()
        stolen, iowait, *guests = (cores.get(name, 0.0) for name in ("steal", "iowait", "guest", "guest_nice"))
        # From /proc/stat, whose counters are seconds since boot: only differences mean anything.
        total = sum(cores.values()) - sum(guests)  # guests are already in user
        own = 0.0
        for process in self._own_processes():
            # Worker processes end between being listed and being read.
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                own += times.user + times.system
        return total - cores["idle"] - iowait - stolen, stolen, total, own

    def _joules(self) -> tuple[float, float]:
        return now_s(), sum(counter.joules() for counter in self._energy)

    def _load(self) -> dict[str, float]:
        """Who uses the cores and the memory; empty until the next reading is due, as the kernel counts in 10 ms."""
        if now_s() < self._load_due_s:
            return {}
        self._load_due_s = now_s() + _LOAD_EVERY_S
        before, self._times_before = self._times_before, self._times()
        busy, stolen, total, own = (b - a for a, b in zip(before, self._times_before, strict=True))
        memory = {
            "mem_used_bytes": float(psutil.virtual_memory().used),
            "rss_bytes": float(self._this.memory_info().rss),
        }
        # Two readings within one tick of the kernel, 10 ms.
        if total <= 0:
            return memory
        others = max(0.0, busy - own)
        seconds = {"util_pct": busy, "own_pct": min(own, busy), "others_pct": others, "steal_pct": stolen}
        return {name: 100 * s / total for name, s in seconds.items()} | memory

    def _throttle(self) -> tuple[str, ...] | None:
        """Whether the clock was held down since the last reading; None where that is not counted."""
        if not self._throttles:
            return None
        before, self._throttle_count = self._throttle_count, sum(map(_number, self._throttles))
        return ("thermal",) if self._throttle_count > before else ()

    def read(self) -> list[Reading]:
        values = self._load()
        if self._clocks:
            values["clock_mhz"] = sum(map(_number, self._clocks)) / len(self._clocks) / 1000
        if self._temperatures:
            values["temperature_c"] = max(map(_number, self._temperatures)) / 1000
        if self._energy:
            (before_s, before_j), self._energy_before = self._energy_before, self._joules()
            at_s, joules = self._energy_before
            values["energy_j"] = joules
            # The first reading can come in the same instant as the counter was opened.
            if at_s > before_s:
                values["power_w"] = (joules - before_j) / (at_s - before_s)
        return [Reading(throttle=self._throttle(), **values)]

    def close(self) -> None:
        """Files are opened anew for each reading."""


class _EnergyCounter:
    """The energy counter of a RAPL domain, which wraps around."""

    def __init__(self, path: Path) -> None:
        self._path = path
        limit = path.with_name("max_energy_range_uj")
        self._range = _number(limit) if _is_readable(limit) else 2.0**32
        self._last = _number(path)
        self._wrapped = 0.0

    def joules(self) -> float:
        value = _number(self._path)
        # RAPL has 32 bits, which are 262 kJ on most processors: at 200 W it wraps about every 20 minutes.
        if value < self._last:
            self._wrapped += self._range
        self._last = value
        return (self._wrapped + value) / 1e6


def _temperature_files(root: Path) -> list[Path]:
    """Thermal zones and hwmon chips whose label is that of a processor."""
    zones = [(z / "type", [z / "temp"]) for z in sorted((root / "sys/class/thermal").glob("thermal_zone*"))]
    chips = [(c / "name", sorted(c.glob("temp*_input"))) for c in sorted((root / "sys/class/hwmon").glob("hwmon*"))]
    return [
        path
        for label, paths in (*zones, *chips)
        if _is_readable(label) and label.read_text().strip().lower().startswith(_TEMPERATURE_LABELS)
        for path in paths
    ]


def _number(path: Path) -> float:
    return float(path.read_text())


def _is_readable(path: Path) -> bool:
    try:
        path.read_text()
    except OSError:
        return False
    return True
