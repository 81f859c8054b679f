"""Sensors: what a machine and its devices say about themselves, one reader a kind.

A reader opens whatever it can find, once, and names what it cannot: a sensor that is missing is never a zero. CPU
sensors are files below /proc and /sys, so any directory with such files can stand in for them.
"""

import importlib
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import psutil

from vernier.clock import now_s

FIELDS = {
    "util_pct": "busy share of the device",
    "own_pct": "busy share of the CPU that is this process's (and its family's)",
    "others_pct": "busy share of the CPU that is other programs'",
    "steal_pct": "share of the CPU that the hypervisor gave to other guests",
    "mem_used_bytes": "memory in use on the device",
    "rss_bytes": "memory of this process",
    "clock_mhz": "core clock; CPU: mean over cores",
    "memory_clock_mhz": "memory clock",
    "temperature_c": "temperature; CPU: the hottest of its sensors",
    "power_w": "power draw; CPU: from the energy counter since the sample before",
    "power_limit_w": "power limit in force",
    "energy_j": "energy counter, joules since some moment before the run",
    "throttle": "why the clock is held down, empty when it is not",
}


LOAD_EVERY_S = 0.5
"""How often the CPU's load is looked at: at 10 Hz it would be rounded to tenths, and cost most of the sampling."""


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A sensor that is not there, and why."""

    device: int
    sensor: str
    why: str


Reading = dict[str, float | list[str]]


class Sensors(Protocol):
    """All sensors of one kind of device."""

    kind: str
    missing: list[Missing]

    def devices(self) -> list[dict[str, Any]]:
        """Index, name and uuid of every device that is read."""
        ...

    def read(self) -> list[Reading]:
        """One reading a device, in the order of `devices`; sensors that are missing are not in it."""
        ...

    def close(self) -> None: ...


# ----------------------------------------------------------------------------------------------------------------- CPU


class CpuSensors:
    """The processor of this machine as one device. `family` gives the processes that count as our own."""

    kind = "cpu"

    def __init__(self, root: Path = Path("/"), family: Callable[[], list[psutil.Process]] | None = None) -> None:
        self._root = root
        self._me = psutil.Process()
        self._family = family or (lambda: [self._me])
        self.missing: list[Missing] = []
        self._clocks = self._found("clock_mhz", _clock_files(root), "no cpufreq: a virtual machine, or no driver")
        self._temperatures = self._found(
            "temperature_c", _temperature_files(root), "no thermal zone or hwmon of the CPU"
        )
        self._energy = [Counter(p) for p in self._found("energy_j", _energy_files(root), "no RAPL (powercap)")]
        self._throttles = self._found("throttle", _throttle_files(root), "no thermal_throttle counters")
        self._throttled = sum(map(_number, self._throttles))
        for sensor, why in (("memory_clock_mhz", "CPUs do not report it"), ("power_limit_w", "not read on CPUs")):
            self.missing.append(Missing(device=0, sensor=sensor, why=why))
        if not self._energy:
            self.missing.append(Missing(device=0, sensor="power_w", why="follows from the energy counter"))
        self._before, self._load_due_s = self._times(), 0.0
        self._energy_before = self._joules()

    def _found(self, sensor: str, paths: list[Path], none: str) -> list[Path]:
        """The files that can be read; why not, where there is none."""
        readable = [p for p in paths if _readable(p)]
        if not readable:
            why = f"{paths[0]} cannot be read by this user" if paths else none
            self.missing.append(Missing(device=0, sensor=sensor, why=why))
        return readable

    def devices(self) -> list[dict[str, Any]]:
        return [{"index": 0, "name": "cpu", "uuid": None}]

    def _times(self) -> tuple[float, float, float, float, float]:
        """Clock, busy, stolen and total seconds of all cores, and seconds of our own processes."""
        cores = psutil.cpu_times()
        stolen = float(getattr(cores, "steal", 0.0))
        idle = cores.idle + float(getattr(cores, "iowait", 0.0))
        guest = float(getattr(cores, "guest", 0.0)) + float(getattr(cores, "guest_nice", 0.0))  # already in user
        total = sum(cores) - guest
        own = 0.0
        for process in self._family():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            own += times.user + times.system
        return now_s(), total - idle - stolen, stolen, total, own

    def _joules(self) -> tuple[float, float]:
        return now_s(), sum(counter.joules() for counter in self._energy)

    def _load(self) -> Reading:
        """Who uses the cores and the memory; empty between looks, which are rare because the kernel counts in 10 ms."""
        if now_s() < self._load_due_s:
            return {}
        self._load_due_s = now_s() + LOAD_EVERY_S
        before, self._before = self._before, self._times()
        _, busy, stolen, total, own = (b - a for a, b in zip(before, self._before, strict=True))
        found: Reading = {}
        if total > 0:
            share = {
                "util_pct": busy,
                "own_pct": min(own, busy),
                "others_pct": max(0.0, busy - own),
                "steal_pct": stolen,
            }
            found |= {name: 100 * seconds / total for name, seconds in share.items()}
        found["mem_used_bytes"] = float(psutil.virtual_memory().used)
        found["rss_bytes"] = float(self._me.memory_info().rss)
        return found

    def read(self) -> list[Reading]:
        found = self._load()
        if self._clocks:
            found["clock_mhz"] = sum(map(_number, self._clocks)) / len(self._clocks) / 1000
        if self._temperatures:
            found["temperature_c"] = max(map(_number, self._temperatures)) / 1000
        if self._throttles:
            count = sum(map(_number, self._throttles))
            found["throttle"] = ["thermal"] if count > self._throttled else []
            self._throttled = count
        if self._energy:
            (then_s, then_j), self._energy_before = self._energy_before, self._joules()
            at_s, joules = self._energy_before
            found["energy_j"] = joules
            if at_s > then_s:
                found["power_w"] = (joules - then_j) / (at_s - then_s)
        return [found]

    def close(self) -> None:
        """Files are opened anew for each reading."""


class Counter:
    """A RAPL domain's energy counter, which wraps around."""

    def __init__(self, path: Path) -> None:
        self._path = path
        limit = path.with_name("max_energy_range_uj")
        self._range = _number(limit) if _readable(limit) else 2.0**32
        self._last = _number(path)
        self._wrapped = 0.0

    def joules(self) -> float:
        value = _number(self._path)
        if value < self._last:
            self._wrapped += self._range
        self._last = value
        return (self._wrapped + value) / 1e6


def _clock_files(root: Path) -> list[Path]:
    return sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))


_CPU_ZONES = ("x86_pkg_temp", "cpu", "soc", "tcpu", "coretemp", "k10temp", "zenpower")


def _temperature_files(root: Path) -> list[Path]:
    """Thermal zones and hwmon chips that belong to the processor by what they call themselves."""
    zones = [(z / "type", [z / "temp"]) for z in sorted((root / "sys/class/thermal").glob("thermal_zone*"))]
    chips = [(c / "name", sorted(c.glob("temp*_input"))) for c in sorted((root / "sys/class/hwmon").glob("hwmon*"))]
    return [
        path
        for label, paths in (*zones, *chips)
        if _readable(label) and label.read_text().strip().lower().startswith(_CPU_ZONES)
        for path in paths
    ]


def _energy_files(root: Path) -> list[Path]:
    """Whole packages only: their cores and memory controllers are parts of them."""
    return sorted((root / "sys/class/powercap").glob("intel-rapl:[0-9]/energy_uj"))


def _throttle_files(root: Path) -> list[Path]:
    return sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/*_throttle_count"))


def _number(path: Path) -> float:
    return float(path.read_text())


def _readable(path: Path) -> bool:
    try:
        path.read_text()
    except OSError:
        return False
    return True


# ------------------------------------------------------------------------------------------- management libraries


@dataclass(frozen=True, kw_only=True)
class Library:
    """A vendor's management library: NVML, and HLML which is modelled on it. Getters take a device handle."""

    kind: str
    module: str
    prefix: str
    package: str
    getters: dict[str, Callable[[Any, Any], float | list[str]]]

    def call(self, module: ModuleType, name: str, *arguments: Any) -> Any:
        return getattr(module, f"{self.prefix}{name}")(*arguments)


def _bits(value: int, names: dict[int, str]) -> list[str]:
    return [name for bit, name in names.items() if value & bit]


_NVML_REASONS = {
    0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost", 0x20: "software thermal",
    0x40: "hardware thermal", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
_HLML_REASONS = {0x1: "power", 0x2: "thermal"}

NVML = Library(
    kind="cuda", module="pynvml", prefix="nvml", package="nvidia-ml-py",
    getters={
        "util_pct": lambda m, h: float(m.nvmlDeviceGetUtilizationRates(h).gpu),
        "mem_used_bytes": lambda m, h: float(m.nvmlDeviceGetMemoryInfo(h).used),
        "clock_mhz": lambda m, h: float(m.nvmlDeviceGetClockInfo(h, m.NVML_CLOCK_SM)),
        "memory_clock_mhz": lambda m, h: float(m.nvmlDeviceGetClockInfo(h, m.NVML_CLOCK_MEM)),
        "temperature_c": lambda m, h: float(m.nvmlDeviceGetTemperature(h, m.NVML_TEMPERATURE_GPU)),
        "power_w": lambda m, h: m.nvmlDeviceGetPowerUsage(h) / 1000,
        "power_limit_w": lambda m, h: m.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,
        "energy_j": lambda m, h: m.nvmlDeviceGetTotalEnergyConsumption(h) / 1000,
        "throttle": lambda m, h: _bits(m.nvmlDeviceGetCurrentClocksEventReasons(h), _NVML_REASONS),
    },
)  # fmt: skip
HLML = Library(
    kind="hpu", module="pyhlml", prefix="hlml", package="pyhlml",
    getters={
        "util_pct": lambda m, h: float(m.hlmlDeviceGetUtilizationRates(h)),
        "mem_used_bytes": lambda m, h: float(m.hlmlDeviceGetMemoryInfo(h).used),
        "clock_mhz": lambda m, h: float(m.hlmlDeviceGetClockInfo(h)),
        "temperature_c": lambda m, h: float(m.hlmlDeviceGetTemperature(h, 0)),
        "power_w": lambda m, h: m.hlmlDeviceGetPowerUsage(h) / 1000,
        "power_limit_w": lambda m, h: m.hlmlDeviceGetPowerManagementDefaultLimit(h) / 1000,
        "energy_j": lambda m, h: m.hlmlDeviceGetTotalEnergyConsumption(h) / 1000,
        "throttle": lambda m, h: _bits(m.hlmlDeviceGetCurrentClocksThrottleReasons(h), _HLML_REASONS),
    },
)  # fmt: skip


class LibrarySensors:
    """Every device a management library shows; what it refuses to tell at first is missing from then on."""

    def __init__(self, library: Library, module: ModuleType) -> None:
        self.kind = library.kind
        self.missing: list[Missing] = []
        self._library, self._module = library, module
        library.call(module, "Init")
        count = library.call(module, "DeviceGetCount")
        self._handles = [library.call(module, "DeviceGetHandleByIndex", i) for i in range(count)]
        self._getters = [self._working(index, handle) for index, handle in enumerate(self._handles)]

    def _working(self, index: int, handle: Any) -> dict[str, Callable[[Any, Any], float | list[str]]]:
        working = {}
        for name, getter in self._library.getters.items():
            try:
                getter(self._module, handle)
            except Exception as error:  # each library has an exception class of its own, made at run time
                why = f"{self._library.package}: {error or type(error).__name__}"
                self.missing.append(Missing(device=index, sensor=name, why=why))
            else:
                working[name] = getter
        return working

    def devices(self) -> list[dict[str, Any]]:
        def text(name: str, handle: Any) -> str:
            value = self._library.call(self._module, name, handle)
            return value.decode() if isinstance(value, bytes) else str(value)

        return [
            {"index": i, "name": text("DeviceGetName", h), "uuid": text("DeviceGetUUID", h)}
            for i, h in enumerate(self._handles)
        ]

    def read(self) -> list[Reading]:
        return [
            {name: getter(self._module, handle) for name, getter in getters.items()}
            for handle, getters in zip(self._handles, self._getters, strict=True)
        ]

    def close(self) -> None:
        self._library.call(self._module, "Shutdown")


# -------------------------------------------------------------------------------------------------------------- hl-smi


_HL_SMI = {
    "utilization.aip": ("util_pct", 1.0),
    "memory.used": ("mem_used_bytes", 2.0**20),
    "temperature.aip": ("temperature_c", 1.0),
    "power.draw": ("power_w", 1.0),
}


class HlSmiSensors:
    """Gaudi through the command `hl-smi`, where pyhlml is not installed. It knows no clock and no energy."""

    kind = "hpu"

    def __init__(self, command: str = "hl-smi") -> None:
        self._command = command
        self._names = ["index", "uuid", "name", *_HL_SMI]
        rows = self._query()
        self._devices = [{"index": int(r["index"]), "name": r["name"], "uuid": r["uuid"]} for r in rows]
        absent = ("clock_mhz", "memory_clock_mhz", "energy_j", "throttle", "power_limit_w")
        self.missing = [
            Missing(device=i, sensor=s, why="hl-smi does not tell; pip install pyhlml")
            for i in range(len(rows))
            for s in absent
        ]
        self.missing += [
            Missing(device=i, sensor=ours, why=f"hl-smi says {row[theirs]!r}")
            for i, row in enumerate(rows)
            for theirs, (ours, _) in _HL_SMI.items()
            if _value(row[theirs]) is None
        ]

    def _query(self) -> list[dict[str, str]]:
        asked = ",".join(self._names)
        done = subprocess.run(
            [self._command, "-Q", asked, "-f", "csv,noheader,nounits"], capture_output=True, text=True, timeout=20, check=True
        )  # fmt: skip
        lines = [line.split(",") for line in done.stdout.splitlines() if line.strip()]
        return [dict(zip(self._names, (cell.strip() for cell in cells), strict=True)) for cells in lines]

    def devices(self) -> list[dict[str, Any]]:
        return self._devices

    def read(self) -> list[Reading]:
        return [
            {
                ours: value * scale
                for theirs, (ours, scale) in _HL_SMI.items()
                if (value := _value(row[theirs])) is not None
            }
            for row in self._query()
        ]

    def close(self) -> None:
        """Each query is a process of its own."""


def _value(text: str) -> float | None:
    """A number, with its unit or without; None for N/A."""
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None


# ------------------------------------------------------------------------------------------------------- what is here


def open_sensors(
    device_kind: str, family: Callable[[], list[psutil.Process]] | None = None
) -> tuple[list[Sensors], list[dict[str, Any]]]:
    """The sensors of the accelerator in use and of the host; and all that is missing, by device kind, with the reason."""
    found: list[Sensors] = [CpuSensors(Path(os.environ.get("VERNIER_SENSOR_ROOT", "/")), family)]
    absent: list[dict[str, Any]] = []
    if device_kind in ("cuda", "hpu"):
        library = NVML if device_kind == "cuda" else HLML
        try:
            found.insert(0, LibrarySensors(library, importlib.import_module(library.module)))
        except Exception as error:  # not installed, no driver, or the library's own exception
            if device_kind == "hpu" and shutil.which("hl-smi"):
                found.insert(0, HlSmiSensors())
            else:
                why = f"{library.package}: {error or type(error).__name__}"
                absent.append({"kind": device_kind, "device": None, "sensor": "all", "why": why})
    elif device_kind != "cpu":
        absent.append({"kind": device_kind, "device": None, "sensor": "all", "why": "no sensor library is known"})
    return found, absent + [{"kind": s.kind, **asdict(m)} for s in found for m in s.missing]
