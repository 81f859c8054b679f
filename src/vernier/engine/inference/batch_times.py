"""How long the batches of an evaluation take. They are timed without making a device that queues wait for each one."""

from itertools import pairwise
from typing import Any

from vernier.devices import Device


class BatchTimes:
    """Collects moments; a batch lasts until the next one begins, loading included, as a step of training does."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._known = device.step_times != "windows"
        self._moments: list[Any] = [device.record_event()]
        self.wait_s: tuple[float, ...] = ()

    def add(self, wait_s: float) -> None:
        """A batch has been queued, after waiting so long for its images."""
        self.wait_s += (wait_s,)
        self._moments.append(self._device.record_event())

    def seconds(self) -> tuple[float, ...] | None:
        """The seconds of each batch, after synchronising; None where the device cannot tell."""
        if not self._known or not self.wait_s:
            return None
        self._device.synchronize()
        return tuple(max(0.0, self._device.elapsed_s(start, end)) for start, end in pairwise(self._moments))
