"""Exponential moving average of a model's floating-point state, batch-norm statistics included."""

import torch
from torch import nn

from vernier.config import Ema


class WeightAverage:
    """Follows a model. `tensors` is a full state dict: averaged where floating point, copied where not."""

    def __init__(self, model: nn.Module, ema: Ema) -> None:
        self._ema = ema
        self._live = {k: v.detach() for k, v in model.state_dict().items()}
        self.tensors = {k: v.clone() for k, v in self._live.items()}
        names = [k for k, v in self._live.items() if v.is_floating_point()]
        self._from, self._to = [self._live[k] for k in names], [self.tensors[k] for k in names]
        self._counters = [k for k, v in self._live.items() if not v.is_floating_point()]

    def update(self, step: int) -> None:
        """After optimiser step number `step`, counted from 1."""
        decay = self._ema.decay
        if self._ema.warmup:
            decay = min(decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._to, self._from, 1 - decay)
        for name in self._counters:
            self.tensors[name].copy_(self._live[name])

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        for name, value in self.tensors.items():
            value.copy_(tensors[name])
