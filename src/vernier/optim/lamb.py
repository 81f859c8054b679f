"""LAMB (You et al. 2020) in the form that timm trains with: bias correction, global gradient clipping outside."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch


class Lamb(torch.optim.Optimizer):
    """Adam whose step is scaled to the norm of the weights, per tensor.

    m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; u = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay
    w; w -= lr |w| / |u| u, with the ratio 1 where a norm is zero, and for tensors without decay (norms and biases).
    """

    def __init__(self, params: Iterable[Any], *, lr: float, beta1: float, beta2: float, eps: float) -> None:
        super().__init__(params, {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)

    def _update(self, p: torch.Tensor, grad: torch.Tensor, group: Mapping[str, float]) -> None:
        state = self.state[p]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.int64)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        state["step"] += 1
        t, beta1, beta2 = int(state["step"]), group["beta1"], group["beta2"]
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        scale = (square / (1 - beta2**t)).sqrt_().add_(group["eps"])
        update = (mean / (1 - beta1**t)).div_(scale)
        if group["weight_decay"]:
            update.add_(p, alpha=group["weight_decay"])
            w_norm, u_norm = p.norm(), update.norm()
            one = torch.ones_like(w_norm)
            update.mul_(torch.where((w_norm > 0) & (u_norm > 0), w_norm / u_norm, one))
        p.sub_(update, alpha=group["lr"])
