"""The steps between two reports: their losses and times, collected by `loop` until it emits a step event."""

import torch

from vernier.engine.processes.world import World

LOG_EVERY_S = 0.5


class StepWindow:
    """Collects steps until they are reported. Losses stay on the device until then."""

    def __init__(self, every_steps: int) -> None:
        self._every_steps = every_steps
        self.losses: list[torch.Tensor] = []
        self.step_s: list[float] = []
        self.wait_s: list[float] = []
        self.own_s: list[float] = []

    def add(self, loss: torch.Tensor, step_s: float, wait_s: float, own_s: float) -> None:
        self.losses.append(loss)
        self.step_s.append(step_s)
        self.wait_s.append(wait_s)
        self.own_s.append(own_s)

    @property
    def is_full(self) -> bool:
        """Whether it has the set number of steps; true at the same step in every process."""
        return 0 < self._every_steps <= len(self.step_s)

    @property
    def overdue(self) -> bool:
        """Whether LOG_EVERY_S have passed by this process's clock; only where no number of steps is set."""
        return not self._every_steps and sum(self.step_s) >= LOG_EVERY_S

    def mean_losses(self, world: World) -> list[float]:
        """The loss of each step, averaged over processes."""
        losses = torch.stack(self.losses)
        world.average_([losses])
        values: list[float] = losses.tolist()
        return values

    def clear(self) -> None:
        self.losses, self.step_s, self.wait_s, self.own_s = [], [], [], []
