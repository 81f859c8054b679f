"""LARS (You et al. 2017) as MLPerf's submissions and Habana's ResNet-50 use it."""

from collections.abc import Callable, Iterable
from typing import Any

import torch


class Lars(torch.optim.Optimizer):
    """Momentum SGD whose rate is scaled, tensor by tensor, to the size of the weights.

    For a decayed tensor: ratio = trust_coefficient |w| / (|g| + weight_decay |w|), 1 where either norm is zero (no epsilon);
    v = momentum v + lr ratio (g + weight_decay w); w -= v. The rate is inside the momentum. Groups without decay
    (norms and biases: the skip list) take a plain momentum step, ratio 1.
    """

    def __init__(self, params: Iterable[Any], *, lr: float, momentum: float, trust_coefficient: float) -> None:
        super().__init__(
            params, {"lr": lr, "momentum": momentum, "trust_coefficient": trust_coefficient, "weight_decay": 0.0}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            live = [p for p in group["params"] if p.grad is not None]
            if not live:
                continue
            weights: list[torch.Tensor] = list(live)
            buffers = [_buffer(self.state[p], p) for p in live]
            updates = _scaled(weights, [p.grad for p in live], group)
            torch._foreach_mul_(buffers, group["momentum"])
            torch._foreach_add_(buffers, updates)
            torch._foreach_sub_(weights, buffers)


def _buffer(state: dict[str, Any], p: torch.Tensor) -> torch.Tensor:
    if "momentum_buffer" not in state:
        state["momentum_buffer"] = torch.zeros_like(p)
    buffer: torch.Tensor = state["momentum_buffer"]
    return buffer


def _scaled(weights: list[torch.Tensor], grads: list[torch.Tensor], group: dict[str, Any]) -> list[torch.Tensor]:
    decay = group["weight_decay"]
    if decay == 0:
        return list(torch._foreach_mul(grads, group["lr"]))
    w_norms = torch.stack(torch._foreach_norm(weights))
    g_norms = torch.stack(torch._foreach_norm(grads))
    ratios = torch.where(
        (w_norms > 0) & (g_norms > 0),
        group["trust_coefficient"] * w_norms / (g_norms + decay * w_norms),
        torch.ones_like(w_norms),
    )
    updates = list(torch._foreach_add(grads, weights, alpha=decay))
    torch._foreach_mul_(updates, list((group["lr"] * ratios).unbind()))
    return updates
