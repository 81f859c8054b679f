"""A Gaudi host: below the real `pyhlml` module, and as an executable `hl-smi` on the PATH."""

# ruff: noqa: N802 -- the functions have the names of the C library

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab.conftest import put

MODULES = {3: 6, 1: 4, 2: 7, 0: 5, 4: 2, 6: 0, 5: 3, 7: 1}
"""Module id by index, in the order in which hl-smi of a real machine lists them."""
AIP_IS_LOST, NOT_FOUND = 15, 6


def uuid_of(module: int) -> str:
    return f"01P0-HL2080A0-15-TNPS34-{module:02d}-07-05"


def watts_of(module: int) -> int:
    return 200 + 10 * module


class HlmlLibrary:
    """libhlml.so of such a host; modules in `lost` fell off the bus."""

    def __init__(self) -> None:
        self.lost = set[int]()

    def hlml_init(self) -> int:
        return 0

    def hlml_shutdown(self) -> int:
        return 0

    def hlml_device_get_count(self, count: Any) -> int:
        count._obj.value = len(MODULES)
        return 0

    def hlml_device_get_handle_by_index(self, index: int, device: Any) -> int:
        device._obj.value = MODULES[index] + 1
        return 0

    def hlml_device_get_handle_by_UUID(self, uuid: bytes, device: Any) -> int:
        modules = [module for module in MODULES.values() if uuid_of(module).encode() == uuid]
        device._obj.value = modules[0] + 1 if modules else None
        return 0 if modules else NOT_FOUND

    def _fill(self, device: Any, fill: Callable[[int], None]) -> int:
        module = device.value - 1
        if module in self.lost:
            return AIP_IS_LOST
        fill(module)
        return 0

    def hlml_device_get_name(self, device: Any, name: Any, length: Any) -> int:
        return self._fill(device, lambda _: setattr(name._obj, "value", b"hl-225"))

    def hlml_device_get_uuid(self, device: Any, uuid: Any, length: int) -> int:
        return self._fill(device, lambda module: setattr(uuid._obj, "value", uuid_of(module).encode()))

    def hlml_device_get_utilization_rates(self, device: Any, rates: Any) -> int:
        return self._fill(device, lambda module: setattr(rates._obj, "aip", 10 * module))

    def hlml_device_get_memory_info(self, device: Any, memory: Any) -> int:
        return self._fill(device, lambda module: setattr(memory._obj, "used", (module + 1) << 30))

    def hlml_device_get_clock_info(self, device: Any, which: int, clock: Any) -> int:
        return self._fill(device, lambda _: setattr(clock._obj, "value", 1650 if which == 0 else 0))

    def hlml_device_get_temperature(self, device: Any, sensor: int, temperature: Any) -> int:
        return self._fill(device, lambda module: setattr(temperature._obj, "value", 30 + module + 50 * sensor))

    def hlml_device_get_power_usage(self, device: Any, milliwatts: Any) -> int:
        return self._fill(device, lambda module: setattr(milliwatts._obj, "value", 1000 * watts_of(module)))

    def hlml_device_get_power_management_default_limit(self, device: Any, milliwatts: Any) -> int:
        return self._fill(device, lambda _: setattr(milliwatts._obj, "value", 600_000))

    def hlml_device_get_total_energy_consumption(self, device: Any, millijoules: Any) -> int:
        return self._fill(device, lambda module: setattr(millijoules._obj, "value", 5000 * (module + 1)))

    def hlml_device_get_current_clocks_throttle_reasons(self, device: Any, reasons: Any) -> int:
        return self._fill(device, lambda module: setattr(reasons._obj, "value", 0x2 if module == 4 else 0))


def install_hlml(library: HlmlLibrary, patch: Callable[[Any, str, Any], None]) -> None:
    """Let the real pyhlml load this library."""
    patch(ctypes, "CDLL", lambda path: library)


_SCRIPT = """#!/bin/sh
# prints the columns that are asked for, as hl-smi -Q does
[ "$3" = -f ] || {{ echo "hl-smi: unknown option" >&2; exit 1; }}
{first}
old=$IFS; IFS=,
{rows}
"""
_ROW = """line=; for column in $2; do
  case $column in
    index) cell={index};; module_id) cell={module};; uuid) cell={uuid};; name) cell=HL-225;; memory.total) cell=98304;;
    utilization.aip) cell="{util}";; memory.used) cell="{memory}";;
    temperature.aip) cell="{celsius}";; power.draw) cell="{watts}";;
    *) echo "Invalid query: $column" >&2; exit 1;;
  esac
  line="$line${{line:+, }}$cell"
done; echo "$line"
"""


def put_hl_smi(folder: Path, first: str = "", *, units: bool = False) -> Path:
    """An executable hl-smi. `first` are shell commands that it runs before it answers."""
    percent, mebibytes, celsius, watts = (" %", " MiB", " C", " W") if units else ("", "", "", "")
    rows = [
        _ROW.format(
            index=index,
            module=module,
            uuid=uuid_of(module),
            util=f"{10 * module}{percent}",
            memory=f"{672 + module}{mebibytes}",
            celsius=f"{30 + module}{celsius}" if module else "N/A",
            watts=f"{watts_of(module)}{watts}",
        )
        for index, module in MODULES.items()
    ]
    script = put(folder / "hl-smi", _SCRIPT.format(first=first, rows="".join(rows)))
    script.chmod(0o755)
    return script


def path_with(folder: Path) -> str:
    return os.pathsep.join([str(folder), os.environ["PATH"]])
