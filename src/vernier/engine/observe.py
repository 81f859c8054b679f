"""The observers of a run: the loop sends them every event, and none of them can change the run.

The console and the trackers are in `report.live`; the event file and the sensors are attached here.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from vernier.plugins import only_plugin
from vernier.records.events import Event, StartEvent, WarningEvent
from vernier.records.telemetry import SensorSetup, TelemetryRecord, encode_telemetry
from vernier.store import EventLog, RunDir

from .processes.launch import Topology

Images = npt.NDArray[np.uint8]


class Observer(Protocol):
    def emit(self, event: Event) -> None:
        """Take one event of the run."""
        ...

    def progress(self, phase: str, done: int, total: int) -> None:
        """Take note of how far something long is; never recorded."""
        ...


@runtime_checkable
class PictureObserver(Protocol):
    """An observer that also keeps pictures."""

    def pictures(self, tag: str, images: Images) -> None:
        """uint8 [images, height, width, channels]."""
        ...


@runtime_checkable
class ClosableObserver(Protocol):
    """An observer that has files or connections of its own, such as a tracker."""

    def close(self) -> None:
        """Write what is left; a second call does nothing."""
        ...


class Observers:
    """All observers of a run as one."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = list(observers)
        self._logs: list[EventLog] = []

    def add(self, observer: Observer) -> None:
        self._observers.append(observer)

    def watch(self, log: EventLog | None) -> None:
        """Warn, once, when this log cannot be written."""
        if log is not None:
            self._logs.append(log)

    def emit(self, event: Event) -> None:
        for observer in self._observers:
            observer.emit(event)
        for log in self._logs:
            if message := log.pop_warning():
                self.emit(WarningEvent(step=getattr(event, "step", None) or 0, message=message))

    def close(self) -> None:
        """Close the observers that write, before the run directory is removed."""
        for observer in self._observers:
            if isinstance(observer, ClosableObserver):
                observer.close()

    def close_logs(self) -> None:
        """Close the watched logs, and warn of lines that could never be written."""
        messages = [message for log in self._logs if (message := log.close())]
        self._logs = []
        for message in messages:
            self.emit(WarningEvent(step=0, message=message))

    def progress(self, phase: str, done: int, total: int) -> None:
        for observer in self._observers:
            observer.progress(phase, done, total)

    def pictures(self, tag: str, images: Images) -> None:
        """Pictures for the observers that keep them: uint8 [images, height, width, channels]."""
        for observer in self._observers:
            if isinstance(observer, PictureObserver):
                observer.pictures(tag, images)


class Recorder:
    """The observer that writes events to the run's event file."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def emit(self, event: Event) -> None:
        self._log.emit(event)

    def progress(self, phase: str, done: int, total: int) -> None:
        pass


SamplerFactory = Callable[..., AbstractContextManager[object]]
"""What the entry point of `vernier.telemetry` is: called with the kind of device, the uuids of devices and a sink that
has `emit(record)`; by name with `hz`, `session` and `root_pid`, the process whose family is counted as the run. Sensors
are read while the context lasts; its `setup` is a `SensorSetup`."""


class Telemetry:
    """The sensors of a run, sampled into its telemetry file while the context lasts. Create it before the start event.

    Of several processes on a host the first one samples, for the devices of all of them: `uuids`. Devices that the run
    does not compute on are left out.
    """

    def __init__(
        self, run: RunDir, device_kind: str, uuids: Sequence[str | None], hz: float, where: Topology | None = None
    ) -> None:
        where = where or Topology()
        hz = hz if where.local_rank == 0 else 0.0
        self.log = run.telemetry(where.rank) if hz > 0 else None
        session = sum(isinstance(event, StartEvent) for event in run.history_so_far())
        root_pid = os.getppid() if where.local_world > 1 else None
        # Without a package that reads sensors a run has none, as on a host without sensors.
        factory = only_plugin("vernier.telemetry")
        self._sampler: Any = nullcontext()
        if factory is not None:
            self._sampler = factory(device_kind, uuids, self, hz=hz, session=session, root_pid=root_pid)

    @property
    def setup(self) -> SensorSetup:
        """For environment.json."""
        return getattr(self._sampler, "setup", SensorSetup())

    def emit(self, record: TelemetryRecord) -> None:
        if self.log is not None:
            self.log.emit(encode_telemetry(record))

    def __enter__(self) -> None:
        self._sampler.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._sampler.__exit__(*error)
        if self.log is not None:
            self.log.close()
