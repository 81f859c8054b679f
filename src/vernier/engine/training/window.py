"""The steps between two reports: their losses and times, collected by `loop` until it emits a step event.

How long a step took is known in one of four ways (`records.run.StepTiming`). A step lasts until the next one begins, so
the report of a window is part of its last step; evaluations and checkpoints are part of none (`restart`).
"""

from itertools import pairwise
from typing import Any

import torch

from vernier.clock import now_s
from vernier.devices import Device
from vernier.engine.processes.world import World
from vernier.frozen import frozen
from vernier.records.run import StepTiming

LOG_EVERY_S = 0.5


@frozen
class WindowValues:
    """Values of the steps of a window: means over processes, and those of this process (`own`)."""

    losses: list[float]
    own_losses: list[float]
    gradient_norms: list[float]
    """One per step, or none where gradients are not checked."""
    sums: list[float]
    own: list[float]


class StepWindow:
    """Collects steps until they are reported. Losses and, on a device that queues, times stay there until then.

    `each`: synchronise after every step, where single steps could not be timed otherwise.
    """

    def __init__(self, device: Device, every_steps: int, *, each: bool = False) -> None:
        self._device, self._every_steps = device, every_steps
        self._timing: StepTiming = "synchronised" if each and device.step_times == "windows" else device.step_times
        self.losses: list[torch.Tensor] = []
        self._own_losses: list[torch.Tensor] = []
        self._norms: list[torch.Tensor] = []
        self.wait_s: list[float] = []
        self.began_s = 0.0
        """When the next step began, on the clock of telemetry."""
        self._moments: list[Any] = []
        self.restart()

    def restart(self, began_s: float | None = None) -> None:
        """The next step begins now. Only between two windows."""
        self.began_s = now_s() if began_s is None else began_s
        self._moments = [self._device.record_event() if self._timing == "device events" else self.began_s]

    def add(
        self,
        loss: torch.Tensor,
        wait_s: float,
        gradient_norm: torch.Tensor | None = None,
        own_loss: torch.Tensor | None = None,
    ) -> None:
        """A step has been queued; on a device without a queue it is done. `own_loss`: where `loss` is that of all."""
        self.losses.append(loss)
        self._own_losses.append(loss if own_loss is None else own_loss)
        if gradient_norm is not None:
            self._norms.append(gradient_norm)
        self.wait_s.append(wait_s)
        # Before the moment is taken: it is to be the end of the step, not of queueing it.
        if self._timing == "synchronised":
            self._device.synchronize()
        self._moments.append(self._device.record_event() if self._timing == "device events" else now_s())

    def __len__(self) -> int:
        return len(self.losses)

    @property
    def is_full(self) -> bool:
        """Whether it has the set number of steps; true at the same step in every process."""
        return 0 < self._every_steps <= len(self)

    @property
    def overdue(self) -> bool:
        """Whether LOG_EVERY_S have passed by this process's clock; only where no number of steps is set."""
        return not self._every_steps and now_s() - self.began_s >= LOG_EVERY_S

    @property
    def timing(self) -> StepTiming:
        """How the times of its steps are known; one step and its report are synchronised."""
        return "synchronised" if self._timing == "windows" and len(self) == 1 else self._timing

    def read(self, world: World, sums: torch.Tensor, own: torch.Tensor) -> "WindowValues":
        """What was computed in its steps, in one copy from the device. All processes must call it together."""
        # One copy from the device and one all-reduce per window: each of them waits, whatever its size.
        parts = [torch.stack(self.losses), *([torch.stack(self._norms)] if self._norms else []), sums]
        parts += [torch.stack(self._own_losses), own]
        values = torch.cat([part.float() for part in parts]).cpu()
        count, norms = len(self), len(self._norms)
        # The own values behind it are not averaged: they tell which process has a number that is not finite.
        shared = values[: count + norms + len(sums)].clone()
        world.average_([shared])
        return WindowValues(
            losses=shared[:count].tolist(),
            own_losses=values[len(shared) : len(shared) + count].tolist(),
            gradient_norms=shared[count : count + norms].tolist(),
            sums=shared[count + norms :].tolist(),
            own=values[len(shared) + count :].tolist(),
        )

    def close(self, synchronised_s: float) -> list[float]:
        """The seconds of each step, the last one until now; empties the window, and the next step begins now.

        `synchronised_s` is when the device had finished them all.
        """
        ended_s, count = now_s(), len(self)
        if self._timing == "windows":
            step_s = [(ended_s - self.began_s) / count] * count
        elif self._timing == "device events":
            step_s = [self._device.elapsed_s(start, end) for start, end in pairwise(self._moments)]
            # Events know the time on the device alone; the host's report of the window belongs to its last step.
            step_s[-1] += ended_s - synchronised_s
        else:
            step_s = [end - start for start, end in pairwise([*self._moments[:-1], ended_s])]
        self.clear()
        self.restart(ended_s)
        return step_s

    def clear(self) -> None:
        """Forget its steps."""
        self.losses, self._own_losses, self._norms, self.wait_s = [], [], [], []
