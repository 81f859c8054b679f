"""Exponential moving average of a model's floating-point state, batch-norm statistics included."""

import torch
from torch import nn

from vernier.config import Ema
from vernier.torch_private import foreach_copy_, foreach_lerp_


class WeightAverage:
    """The average of a model's weights. `tensors` is a full state dict: floating-point ones averaged, others copied."""

    def __init__(self, model: nn.Module, ema: Ema, steps_per_epoch: int = 1) -> None:
        self._ema, self._steps_per_epoch = ema, steps_per_epoch
        self._live = {k: v.detach() for k, v in model.state_dict().items()}
        self.tensors = {k: v.clone() for k, v in self._live.items()}
        names = [k for k, v in self._live.items() if v.is_floating_point()]
        self._from, self._to = [self._live[k] for k in names], [self.tensors[k] for k in names]
        # Counters of batch norms and the like, 53 in a ResNet-50: one launch for all.
        others = [k for k in self._live if k not in names]
        self._counters, self._copies = [self._live[k] for k in others], [self.tensors[k] for k in others]

    def update(self, step: int) -> None:
        """Update after optimizer step number `step`, counted from 1; depends on nothing but it and the two sets of
        weights."""
        epoch, within = divmod(step - 1, self._steps_per_epoch)
        if within % self._ema.every_steps:
            return
        foreach_lerp_(self._to, self._from, 1 - self._decay(step, epoch))
        if self._counters:
            foreach_copy_(self._copies, self._counters)

    def _decay(self, step: int, epoch: int) -> float:
        if epoch < self._ema.copy_epochs:
            return 0.0
        if not self._ema.warmup:
            return self._ema.decay
        updates = -(-step // self._ema.every_steps)
        return min(self._ema.decay, (1 + updates) / (10 + updates))

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        for name, value in self.tensors.items():
            value.copy_(tensors[name])
