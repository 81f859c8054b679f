"""Muon (Jordan 2024) as airbench trains convolutional networks with it: filters by Muon, all other weights by SGD."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from vernier.torch_private import PlainOptimizer

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""A quintic that takes singular values from 0 to 1 close to 1, some beyond: fast rather than exact."""
_ITERATIONS = 3


class Muon(PlainOptimizer):
    """Momentum whose step is made orthogonal, for groups with `filters`; SGD for the other groups. Nesterov in both.

    Filters: v = momentum v + g; w = w sqrt(outputs) / |w|; w -= lr orthogonal(g + momentum v). Their length is fixed,
    which batch norm makes irrelevant, so they have no weight decay. Others: g is g + weight_decay / lr_share w, so that
    a step takes away lr weight_decay of a weight, with `lr` the schedule's, whatever the group's share of it.
    """

    def __init__(self, params: Iterable[Any], *, lr: float, momentum: float, filter_momentum: float) -> None:
        defaults = {"momentum": momentum, "filter_momentum": filter_momentum, "weight_decay": 0.0}
        super().__init__(params, {"lr": lr, **defaults})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    (self._update_filters if group["filters"] else self._update_others)(p, p.grad, group)

    def _update_filters(self, p: torch.Tensor, grad: torch.Tensor, group: Mapping[str, float]) -> None:
        update = self._with_momentum(p, grad, group["filter_momentum"])
        p.mul_(len(p) ** 0.5 / p.norm().clamp_min(1e-12))
        matrix = orthogonalised(update.flatten(1))
        p.sub_(matrix.reshape(update.shape), alpha=group["lr"])

    def _update_others(self, p: torch.Tensor, grad: torch.Tensor, group: Mapping[str, float]) -> None:
        if group["weight_decay"]:
            grad = grad.add(p, alpha=group["weight_decay"] / group["lr_share"])
        p.sub_(self._with_momentum(p, grad, group["momentum"]), alpha=group["lr"])

    def _with_momentum(self, p: torch.Tensor, grad: torch.Tensor, momentum: float) -> torch.Tensor:
        state = self.state[p]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(p)
        buffer: torch.Tensor = state["momentum_buffer"]
        buffer.mul_(momentum).add_(grad)
        return grad.add(buffer, alpha=momentum)


def orthogonalised(matrix: torch.Tensor) -> torch.Tensor:
    """About the nearest orthogonal matrix (U V^T of the singular value decomposition), by Newton-Schulz iterations.

    Its singular values come out at 0.5 to 1.5 and not at 1, which trains as well.
    """
    a, b, c = _NEWTON_SCHULZ
    tall = matrix.shape[0] > matrix.shape[1]
    x: torch.Tensor = (matrix.T if tall else matrix) / (matrix.norm() + 1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x
