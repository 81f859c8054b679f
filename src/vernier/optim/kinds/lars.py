"""LARS (You et al. 2017) as MLPerf's submissions and Habana's ResNet-50 use it."""

from typing import Any

from vernier.config import Optim, option
from vernier.frozen import frozen


@frozen
class Lars(Optim):
    """Momentum SGD whose rate is scaled to the norm of the weights, per tensor.

    For a decayed tensor: ratio = trust_coefficient |w| / (|g| + weight_decay |w|), 1 if a norm is zero (no epsilon);
    v = momentum v + lr ratio (g + weight_decay w); w -= v. The rate is inside the momentum. Groups without decay
    (norms and biases: the skip list) take a plain momentum step, ratio 1.
    """

    name: str = option("lars", "LARS, as in MLPerf; weight decay is added to the gradient")
    trust_coefficient: float = option(0.001, "factor of the norm of the weights over that of the gradient", above=0)

    def update(self, weights: Any, states: Any, group: Any) -> None:
        import torch

        from vernier import torch_private as fast

        grads, decay = [p.grad for p in weights], group["weight_decay"]
        if decay == 0:
            updates = fast.foreach_mul(grads, group["lr"])
        else:
            w_norms, g_norms = torch.stack(fast.foreach_norm(weights)), torch.stack(fast.foreach_norm(grads))
            ratios = self.trust_coefficient * w_norms / (g_norms + decay * w_norms)
            ratios = torch.where((w_norms > 0) & (g_norms > 0), ratios, torch.ones_like(w_norms))
            updates = fast.foreach_add(grads, weights, alpha=decay)
            fast.foreach_mul_(updates, list((group["lr"] * ratios).unbind()))
        buffers = [states[p]["momentum_buffer"] for p in weights]
        fast.foreach_mul_(buffers, self.momentum)
        fast.foreach_add_(buffers, updates)
        fast.foreach_sub_(weights, buffers)
