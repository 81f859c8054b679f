"""The contract of what reads a run's sensors, and what its samples tell. It plugs in as `vernier.telemetry`.

Samples pass through the core as the lines of telemetry.jsonl, which only the plug-in reads.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from vernier.plugins import only_plugin
from vernier.records.events import Event
from vernier.records.run import EnergyPerImage

Lines = Sequence[dict[str, Any]]


class _Sensors(Protocol):
    """A module, or an object, with these functions."""

    def sampler(
        self,
        device_kind: str,
        uuids: Sequence[str | None],
        emit: Callable[[Any], None],
        *,
        hz: float,
        session: int,
        root_pid: int | None,
    ) -> AbstractContextManager[object]:
        """Samples the sensors of these devices while the context lasts, and passes records to `emit`.

        Processes below `root_pid` are counted as the run. The context's `setup` is a `SensorSetup`.
        """
        ...

    def energy(self, events: Sequence[Event], lines: Lines) -> tuple[EnergyPerImage | None, str | None]:
        """Joules per image of a run, or why they are not known."""
        ...

    def disturbances(self, events: Sequence[Event], lines: Lines, cores: int | None) -> list[str]:
        """What disturbed the steps, as sentences; `cores` are those of the machine."""
        ...


def sensors() -> _Sensors | None:
    """The installed plug-in; None without one, as on a host without sensors."""
    plugin: _Sensors | None = only_plugin("vernier.telemetry")
    return plugin
