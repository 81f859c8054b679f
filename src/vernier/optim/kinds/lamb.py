"""LAMB (You et al. 2020) in the form that timm trains with: bias correction, global gradient clipping outside."""

from typing import Any

from vernier.config import Optim, option
from vernier.frozen import frozen


@frozen
class Lamb(Optim):
    """Adam whose step is scaled to the norm of the weights, per tensor.

    m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; u = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay
    w; w -= lr |w| / |u| u, with the ratio 1 where a norm is zero, and for tensors without decay (norms and biases).
    """

    name: str = option("lamb", "LAMB with bias correction, as timm's; weight decay is decoupled")
    beta2: float = option(0.999, "decay rate of the squared gradients", low=0, high=0.999999)
    eps: float = option(1e-6, "epsilon in the denominator", low=0)

    buffers = ("exp_avg", "exp_avg_sq")

    def update(self, weights: Any, states: Any, group: Any) -> None:
        import torch

        for p in weights:
            grad, state, beta1, beta2 = p.grad, states[p], self.momentum, self.beta2
            mean, square = state["exp_avg"], state["exp_avg_sq"]
            # On the CPU wherever the weights are: reading it must not wait for the device.
            state.setdefault("step", torch.zeros((), dtype=torch.int64)).add_(1)
            t = int(state["step"])
            mean.lerp_(grad, 1 - beta1)
            square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            scale = (square / (1 - beta2**t)).sqrt_().add_(self.eps)
            update = (mean / (1 - beta1**t)).div_(scale)
            if group["weight_decay"]:
                update.add_(p, alpha=group["weight_decay"])
                w_norm, u_norm = p.norm(), update.norm()
                one = torch.ones_like(w_norm)
                update.mul_(torch.where((w_norm > 0) & (u_norm > 0), w_norm / u_norm, one))
            p.sub_(update, alpha=group["lr"])
