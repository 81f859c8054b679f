"""A thread that reads the sensors a few times per second and passes the samples on.

Times are those of the one monotonic clock, `t_s`, so that samples and steps can be compared.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from vernier.clock import now_s, thread_cpu_s
from vernier.lab.records.telemetry import LostSensor, Reading, Sample, TelemetryEnd, TelemetryHeader, TelemetryRecord
from vernier.records.environment import SensorSetup

from .sensors import FIELDS, open_sensors

_DEFAULT_HZ = 10.0
_TREE_REFRESH_S = 10.0
METHOD = "vernier-telemetry-1"


class Sampler:
    """Reads the sensors `hz` times per second in its own thread, and gives every record to `emit`, such as a list's
    `append`. Use as a context manager; 0 Hz does nothing at all.

    `uuids` are those of the accelerators in use on this host: the sensors of others are not read. The first record is
    a header: which sensors there are, their units, and which are missing and why. The last one says what sampling cost.
    An accelerator's sensor that fails while running is missing from then on, with a record of why; other sensors end
    the sampling, never the run. CPU time of the process `root_pid` and its children counts as our own; by default that
    of this process alone. `cores`: see `open_sensors`.
    """

    def __init__(
        self,
        device_kind: str,
        uuids: Sequence[str | None],
        emit: Callable[[TelemetryRecord], None],
        *,
        hz: float = _DEFAULT_HZ,
        session: int = 0,
        root_pid: int | None = None,
        cores: Sequence[int] = (),
    ) -> None:
        self._emit, self._hz, self._session = emit, hz, session
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        own = None if root_pid is None else ProcessTree(root_pid)
        self._sensors, missing = open_sensors(device_kind, uuids, own, cores) if hz > 0 else ([], ())
        devices = tuple(device for sensors in self._sensors for device in sensors.devices)
        self.setup = SensorSetup(hz=hz, device_kind=device_kind, devices=devices, missing=missing)

    def __enter__(self) -> "Sampler":
        if self._hz > 0:
            self._emit(
                TelemetryHeader(method=METHOD, session=self._session, t_s=now_s(), fields=FIELDS, **vars(self.setup))
            )
            problem = self._try_sample()
            # Daemon: a driver call that never returns must not keep the process alive after training.
            self._thread = threading.Thread(target=self._run, args=(problem,), name="vernier-telemetry", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        for sensors in self._sensors:
            sensors.close()

    def _run(self, problem: str | None) -> None:
        """Sample until the end, and once more then: with the sample before the thread, samples cover all of it."""
        start_s, done, count = now_s(), False, 1
        due_s = start_s + 1 / self._hz
        while problem is None and not done:
            done = self._done.wait(max(0.0, due_s - now_s()))
            problem = self._try_sample()
            count += 1
            # After a delay the missed samples are skipped: catching up would read the same values many times.
            due_s = max(due_s + 1 / self._hz, now_s())
        # In this thread, so that its own CPU time is the cost of sampling.
        end_s, cpu_s = now_s(), thread_cpu_s()
        self._emit(
            TelemetryEnd(
                session=self._session,
                t_s=end_s,
                problem=problem,
                samples=count,
                seconds=end_s - start_s,
                cpu_s=cpu_s,
                cpu_share_of_a_core=cpu_s / (end_s - start_s),
            )
        )

    def _try_sample(self) -> str | None:
        """Why the sensors cannot be read any more, if so: a driver that goes away must not take the run with it."""
        try:
            self._sample()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _sample(self) -> None:
        for sensors in self._sensors:
            # A reader appends to `missing` while it reads: what is new has failed just now.
            known = len(sensors.missing)
            readings = sensors.read()
            for lost in sensors.missing[known:]:
                self._emit(
                    LostSensor(
                        device_kind=lost.kind,
                        device=lost.device,
                        sensor=lost.sensor,
                        why=lost.why,
                        t_s=round(now_s(), 6),
                        session=self._session,
                    )
                )
            for device, reading in zip(sensors.devices, readings, strict=True):
                # A device that is lost keeps its place, so that readings and devices stay aligned.
                if reading == Reading():
                    continue
                sample: dict[str, Any] = {  # rounded to what a sensor can resolve
                    name: round(float(v), 3) if isinstance(v, int | float) else v for name, v in vars(reading).items()
                }
                sample |= {"device_kind": device.kind, "device": device.index, "session": self._session}
                self._emit(Sample(**sample, t_s=round(now_s(), 6)))


class ProcessTree:
    """A process and all its descendants, refreshed every 10 s: walking /proc is slow."""

    def __init__(self, root_pid: int) -> None:
        self._root = psutil.Process(root_pid)
        self._members: list[psutil.Process] = []
        self._refreshed_s: float | None = None

    def __call__(self) -> list[psutil.Process]:
        if self._refreshed_s is None or now_s() - self._refreshed_s > _TREE_REFRESH_S:
            self._members = [self._root, *self._root.children(recursive=True)]
            self._refreshed_s = now_s()
        return self._members
