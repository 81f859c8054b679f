"""Loss scaling for fp16: small gradients are scaled up, and steps whose gradients overflowed are skipped.

PyTorch's GradScaler does the work. `dynamic` lets the scale grow and shrink. `static` resets it after every step, as
the systems that published with a fixed 128 did, but still skips a step that overflowed instead of ruining the weights.

The scale and the number of skipped steps stay on the device until a window of steps is reported. GradScaler itself
waits for the device once per step, to learn whether to skip it, unless the optimiser's fused kernel decides that.
"""

import torch

from vernier.config import Machine
from vernier.torch_private import overflows, scale_on_device


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
        self._device = device
        self._skipped_before = 0  # in earlier sessions of the run
        self._skipped = torch.zeros((), device=device) if self.enabled else None

    @property
    def scale(self) -> float:
        """The factor on the loss; reading it waits for the device."""
        return float(self._scaler.get_scale())

    @property
    def skipped_steps(self) -> int:
        """Steps skipped so far; reading it waits for the device."""
        return self._skipped_before + (0 if self._skipped is None else int(self._skipped.item()))

    def figures(self) -> torch.Tensor:
        """The scale and the steps skipped in this session, on the device; empty when off. See `read_figures`."""
        if self._skipped is None:
            return torch.zeros(0, device=self._device)
        return torch.stack([scale_on_device(self._scaler), self._skipped])

    def read_figures(self, values: list[float]) -> tuple[float, int] | None:
        """The scale and all skipped steps, from the values of `figures`; None when off."""
        return (values[0], self._skipped_before + int(values[1])) if values else None

    def backward(self, loss: torch.Tensor) -> None:
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale, as clipping needs."""
        self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Update the weights unless a gradient overflowed, then adapt the scale."""
        assert self._skipped is not None
        self._scaler.step(optimizer)
        self._skipped += overflows(self._scaler, optimizer)
        self._scaler.update()
        if self._static is not None:
            self._scaler.update(self._static)

    def state(self) -> dict[str, int | float] | None:
        """For a checkpoint; None when off."""
        return {**self._scaler.state_dict(), "skipped_steps": self.skipped_steps} if self.enabled else None

    def load(self, state: dict[str, int | float] | None) -> None:
        """Continue from a checkpoint's state."""
        if self.enabled and state is not None:
            self._skipped_before = int(state["skipped_steps"])
            self._scaler.load_state_dict({k: v for k, v in state.items() if k != "skipped_steps"})
