"""The observers of a run: the loop sends them every event, and none of them can change the run.

The console and the trackers are in `report.live`; the event file and the sensors are attached here.
"""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from vernier.errors import Refusal
from vernier.measure.sensors import sensors
from vernier.own_code import OwnPart
from vernier.records.codec import encode
from vernier.records.environment import SensorSetup
from vernier.records.events import Event, StartEvent, WarningEvent
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
class _PictureObserver(Protocol):
    """An observer that also keeps pictures."""

    def pictures(self, tag: str, images: Images) -> None:
        """uint8 [images, height, width, channels]."""
        ...


@runtime_checkable
class _ClosableObserver(Protocol):
    """An observer that has files or connections of its own, such as a tracker."""

    def close(self) -> None:
        """Write what is left; a second call does nothing."""
        ...


class OwnObserver:
    """Code of a user that gets every event: `f(event)`, or an object with `emit(event)`.

    It cannot change the run: events are frozen, nothing of the run is passed, and if it raises it is left alone.
    """

    def __init__(self, text: str) -> None:
        self._part: OwnPart | None = OwnPart("observers", text, "vernier.observers")
        self._warning = ""

    def emit(self, event: Event) -> None:
        if (part := self._part) is None:
            return
        try:
            part.run(getattr(part.value, "emit", part.value), event)
        except Refusal as error:
            self._part, self._warning = None, f"{error.message} It gets no more events; the run continues"

    def progress(self, phase: str, done: int, total: int) -> None:
        pass

    def pop_warning(self) -> str:
        """Why it was left alone, once."""
        message, self._warning = self._warning, ""
        return message

    close = pop_warning


class _Warns(Protocol):
    """An observer or log with a warning of its own, and another one when it is closed."""

    def pop_warning(self) -> str | None: ...
    def close(self) -> str | None: ...


class Observers:
    """All observers of a run as one."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = list(observers)
        self._logs: list[_Warns] = [each for each in observers if isinstance(each, OwnObserver)]

    def add(self, observer: Observer) -> None:
        self._observers.append(observer)

    def watch(self, log: _Warns | None) -> None:
        """Warn, once, when this log cannot be written."""
        if log is not None:
            self._logs.append(log)

    def emit(self, event: Event) -> None:
        for observer in self._observers:
            observer.emit(event)
        for log in self._logs:
            # Asked after each event: a file refuses when it is written.
            if message := log.pop_warning():
                self.warn(getattr(event, "step", None) or 0, message)

    def warn(self, step: int, message: str) -> None:
        """Emit a warning about a step."""
        self.emit(WarningEvent(step=step, message=message))

    def record(self, event: Event) -> None:
        """Record an event without showing it: the error that follows shows the same."""
        for observer in self._observers:
            if isinstance(observer, Recorder):
                observer.emit(event)

    def close(self) -> None:
        """Close the observers that write, before the run directory is removed."""
        for observer in self._observers:
            if isinstance(observer, _ClosableObserver):
                observer.close()

    def close_logs(self) -> None:
        """Close the watched logs, and warn of lines that could never be written."""
        messages = [message for log in self._logs if (message := log.close())]
        # Emptied first: a warning is an event too, and would be sent to the logs that were just closed.
        self._logs = []
        for message in messages:
            self.warn(0, message)

    def progress(self, phase: str, done: int, total: int) -> None:
        for observer in self._observers:
            observer.progress(phase, done, total)

    def pictures(self, tag: str, images: Images) -> None:
        """Pictures for the observers that keep them: uint8 [images, height, width, channels]."""
        for observer in self._observers:
            if isinstance(observer, _PictureObserver):
                observer.pictures(tag, images)


class Recorder:
    """The observer that writes events to the run's event file."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def emit(self, event: Event) -> None:
        self._log.emit(event)

    def progress(self, phase: str, done: int, total: int) -> None:
        pass


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
        # Sessions of a resumed run share one file; the number tells their samples apart.
        session = sum(isinstance(event, StartEvent) for event in run.history_so_far())
        # Several local processes have one launcher, whose children are the run; a single process is the run itself.
        root_pid = os.getppid() if where.local_world > 1 else None
        self._sampler: Any = nullcontext()
        if (package := sensors()) is not None:
            self._sampler = package.sampler(device_kind, uuids, self.emit, hz=hz, session=session, root_pid=root_pid)

    @property
    def setup(self) -> SensorSetup:
        """For environment.json."""
        return getattr(self._sampler, "setup", SensorSetup())

    def emit(self, record: Any) -> None:
        """Append a record of the sampler, its kind first."""
        if self.log is not None:
            self.log.emit({"kind": record.record, **encode(record)})

    def __enter__(self) -> None:
        self._sampler.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._sampler.__exit__(*error)
        if self.log is not None:
            self.log.close()
