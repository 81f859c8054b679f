"""LARS (You et al. 2017) as MLPerf's submissions and Habana's ResNet-50 use it."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from vernier.torch_private import foreach_add, foreach_add_, foreach_mul, foreach_mul_, foreach_norm, foreach_sub_


class Lars(torch.optim.Optimizer):
    """Momentum SGD whose rate is scaled to the norm of the weights, per tensor.

    For a decayed tensor: ratio = trust_coefficient |w| / (|g| + weight_decay |w|), 1 if a norm is zero (no epsilon);
    v = momentum v + lr ratio (g + weight_decay w); w -= v. The rate is inside the momentum. Groups without decay
    (norms and biases: the skip list) take a plain momentum step, ratio 1.
    """

    def __init__(self, params: Iterable[Any], *, lr: float, momentum: float, trust_coefficient: float) -> None:
        defaults = {"lr": lr, "momentum": momentum, "trust_coefficient": trust_coefficient, "weight_decay": 0.0}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            live = [p for p in group["params"] if p.grad is not None]
            if not live:
                continue
            weights: list[torch.Tensor] = list(live)
            buffers = [_buffer(self.state[p], p) for p in live]
            updates = _updates(
                weights, [p.grad for p in live], group["lr"], group["trust_coefficient"], group["weight_decay"]
            )
            foreach_mul_(buffers, group["momentum"])
            foreach_add_(buffers, updates)
            foreach_sub_(weights, buffers)


def _buffer(state: dict[str, torch.Tensor], p: torch.Tensor) -> torch.Tensor:
    if "momentum_buffer" not in state:
        state["momentum_buffer"] = torch.zeros_like(p)
    return state["momentum_buffer"]


def _updates(
    weights: list[torch.Tensor], grads: list[torch.Tensor], lr: float, trust: float, decay: float
) -> list[torch.Tensor]:
    if decay == 0:
        return list(foreach_mul(grads, lr))
    w_norms = torch.stack(foreach_norm(weights))
    g_norms = torch.stack(foreach_norm(grads))
    ratios = torch.where(
        (w_norms > 0) & (g_norms > 0), trust * w_norms / (g_norms + decay * w_norms), torch.ones_like(w_norms)
    )
    updates = list(foreach_add(grads, weights, alpha=decay))
    foreach_mul_(updates, list((lr * ratios).unbind()))
    return updates
