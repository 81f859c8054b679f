"""A device that queues, on a virtual clock: for tests of what is measured on one.

It computes on the CPU at once; what is simulated is time, at the boundary that a vendor's library has. Whatever is
queued starts when the device is free and runs behind the host's back; an event is a position in that queue.
"""

from typing import Any

from vernier.devices.cpu import Cpu


class VirtualClock:
    """The host's clock: it passes only where a test or the device says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class QueueingCpu(Cpu):
    """`end_step`, called once per step, queues `device_s` of work in `host_s`."""

    step_times = "device events"

    def __init__(self, clock: VirtualClock, *, device_s: float, host_s: float) -> None:
        self.clock, self.device_s, self.host_s = clock, device_s, host_s
        self.free_s = clock.now_s
        self.waits = 0

    def queue(self, seconds: float) -> None:
        """Work that the host does not wait for."""
        self.free_s = max(self.free_s, self.clock.now_s) + seconds

    def end_step(self) -> None:
        self.queue(self.device_s)
        self.clock.now_s += self.host_s

    def record_event(self) -> Any:
        return max(self.free_s, self.clock.now_s)

    def elapsed_s(self, start: Any, end: Any) -> float:
        assert end <= self.clock.now_s, "the event has not happened yet: synchronise first"
        return float(end - start)

    def synchronize(self) -> None:
        self.waits += 1
        self.clock.now_s = max(self.clock.now_s, self.free_s)


class WindowsCpu(QueueingCpu):
    """The same without events."""

    step_times = "windows"

    def record_event(self) -> Any:
        return self.clock.now_s
