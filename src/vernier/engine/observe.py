"""Who watches a run. The loop tells all observers what happened; none of them can change it."""

import os
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from vernier.engine.processes.launch import Topology
from vernier.measure.telemetry.sampler import Sampler
from vernier.records.telemetry import SensorSetup, TelemetryRecord, encode_telemetry
from vernier.store import RunDir


class Observer(Protocol):
    def emit(self, event: dict[str, Any]) -> None:
        """Something happened: `kind` is start, step, epoch, eval, checkpoint, warning or end."""
        ...

    def progress(self, phase: str, done: int, total: int) -> None:
        """Something long is under way; never recorded."""
        ...


@runtime_checkable
class Gallery(Protocol):
    """An observer that also keeps pictures."""

    def pictures(self, tag: str, images: Any) -> None:
        """uint8 [images, height, width, channels]."""
        ...


class Observers:
    """All observers of a run as one."""

    def __init__(self, *watchers: Observer) -> None:
        self._watchers = list(watchers)

    def add(self, watcher: Observer) -> None:
        self._watchers.append(watcher)

    def emit(self, kind: str, **fields: Any) -> None:
        event = {"kind": kind, **fields}
        for watcher in self._watchers:
            watcher.emit(event)

    def progress(self, phase: str, done: int, total: int) -> None:
        for watcher in self._watchers:
            watcher.progress(phase, done, total)

    def pictures(self, tag: str, make: Callable[[], Any]) -> None:
        """Pictures, made only where somebody keeps them."""
        keepers = [watcher for watcher in self._watchers if isinstance(watcher, Gallery)]
        if keepers:
            images = make()
            for keeper in keepers:
                keeper.pictures(tag, images)


class Telemetry:
    """The sensors of a run, sampled into its file while the context lasts. Made before the session is announced.

    Of several processes on a host the first one samples, for all its devices.
    """

    def __init__(self, run: RunDir, device_kind: str, hz: float, where: Topology | None = None) -> None:
        where = where or Topology()
        hz = hz if where.local_rank == 0 else 0.0
        self._log = run.telemetry(where.rank) if hz > 0 else None
        session = sum(event["kind"] == "start" for event in run.read_events())
        root_pid = os.getppid() if where.local_world > 1 else None
        self._sampler = Sampler(device_kind, self, hz=hz, session=session, root_pid=root_pid)

    @property
    def setup(self) -> SensorSetup:
        """For environment.json."""
        return self._sampler.setup

    def emit(self, record: TelemetryRecord) -> None:
        if self._log is not None:
            self._log.emit(encode_telemetry(record))

    def __enter__(self) -> None:
        self._sampler.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._sampler.__exit__(*error)
        if self._log is not None:
            self._log.close()
