"""Samples of the sensors: telemetry.jsonl. Which sensors a run reads is in `records.environment`."""

import contextlib
from collections.abc import Iterable
from dataclasses import field, fields
from typing import Any, ClassVar

from vernier.frozen import frozen
from vernier.records.codec import DamagedRecord, decode, omitted
from vernier.records.environment import SensorSetup

ALL_SENSORS = "all"
"""Stands for every sensor of a device, or of a kind of device, where none can be read."""


@frozen
class TelemetryHeader(SensorSetup):
    """The first record of a session. `fields` explains the readings of a sample."""

    record: ClassVar[str] = "header"
    method: str = ""
    session: int = 0
    t_s: float = 0.0
    fields: dict[str, str] = field(default_factory=dict)


@frozen
class Reading:
    """What the sensors of one device say at one moment; None: not read. Units are in the names."""

    # Left out of the file when not read: most devices have half of these, at ten samples per second.
    util_pct: float | None = omitted()
    own_pct: float | None = omitted()
    others_pct: float | None = omitted()
    steal_pct: float | None = omitted()
    mem_used_bytes: float | None = omitted()
    rss_bytes: float | None = omitted()
    clock_mhz: float | None = omitted()
    memory_clock_mhz: float | None = omitted()
    temperature_c: float | None = omitted()
    power_w: float | None = omitted()
    power_limit_w: float | None = omitted()
    energy_j: float | None = omitted()
    throttle: tuple[str, ...] | None = omitted()


@frozen
class Sample(Reading):
    """A reading of one device: its kind and index, the session of the run, and the monotonic clock."""

    record: ClassVar[str] = "sample"
    device_kind: str
    device: int
    t_s: float
    session: int = 0

    def row(self) -> dict[str, float]:
        """The readings by name, as in the table of a study: numbers only."""
        # Without the reasons of throttling, which are texts.
        readings = {f.name: getattr(self, f.name) for f in fields(Reading)}
        return {name: value for name, value in readings.items() if isinstance(value, int | float)}


@frozen
class LostSensor:
    """A sensor that could be read at first and fails from this moment on, as when a device vanishes."""

    record: ClassVar[str] = "lost"
    device_kind: str
    device: int | None
    sensor: str
    why: str
    t_s: float
    session: int = 0


@frozen
class TelemetryEnd:
    """The last record of a session: what sampling cost, and what ended it early."""

    record: ClassVar[str] = "end"
    session: int = 0
    t_s: float = 0.0
    problem: str | None = None
    samples: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    cpu_share_of_a_core: float = 0.0


TelemetryRecord = TelemetryHeader | Sample | LostSensor | TelemetryEnd
_KINDS: dict[str, type[TelemetryRecord]] = {
    cls.record: cls for cls in (TelemetryHeader, Sample, LostSensor, TelemetryEnd)
}


def decode_telemetry(trees: Iterable[Any]) -> list[TelemetryRecord]:
    """The records of a file; damaged ones and kinds of a newer version are left out."""
    records: list[TelemetryRecord] = []
    for tree in trees:
        cls = _KINDS.get(str(tree.get("kind")))
        # The last line of a run that was killed is cut off, and a newer version may write other kinds.
        if cls is not None:
            with contextlib.suppress(DamagedRecord):
                records.append(decode(cls, tree))
    return records
