"""Loss scaling for fp16: small gradients are scaled up, and steps whose gradients overflowed are skipped.

PyTorch's GradScaler does the work. `dynamic` lets the scale grow and shrink. `static` resets it after every step, as
the systems that published with a fixed 128 did, but still skips a step that overflowed instead of ruining the weights.
"""

import torch

from vernier.config import Machine


class LossScaler:
    """Off unless the precision is fp16. `state` goes into checkpoints."""

    def __init__(self, machine: Machine, device: torch.device) -> None:
        self.enabled = machine.precision == "fp16"
        self._static = machine.loss_scale if machine.loss_scaling == "static" else None
        self._scaler = torch.amp.GradScaler(
            device.type,
            init_scale=machine.loss_scale,
            growth_interval=machine.loss_scale_growth_steps,
            enabled=self.enabled,
        )
        self.skipped_steps = 0

    @property
    def scale(self) -> float:
        """The factor on the loss."""
        return float(self._scaler.get_scale())

    def backward(self, loss: torch.Tensor) -> None:
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale, as clipping needs."""
        self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Update the weights unless a gradient overflowed, then adapt the scale."""
        if not self.enabled:
            optimizer.step()
            return
        before = self.scale
        self._scaler.step(optimizer)
        self._scaler.update()
        self.skipped_steps += self.scale < before
        if self._static is not None:
            self._scaler.update(self._static)

    def state(self) -> dict[str, int | float] | None:
        """For a checkpoint; None when off."""
        return {**self._scaler.state_dict(), "skipped_steps": self.skipped_steps} if self.enabled else None

    def load(self, state: dict[str, int | float] | None) -> None:
        """Continue from a checkpoint's state."""
        if self.enabled and state is not None:
            self.skipped_steps = int(state["skipped_steps"])
            self._scaler.load_state_dict({k: v for k, v in state.items() if k != "skipped_steps"})
