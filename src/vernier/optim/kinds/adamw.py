"""AdamW (Loshchilov and Hutter 2019): PyTorch's own."""

from typing import Any

from vernier.config import Optim, option
from vernier.frozen import frozen


@frozen
class AdamW(Optim):
    """Adam with decoupled weight decay, as torch.optim.AdamW: a step takes away lr x weight_decay of a weight."""

    name: str = option("adamw", "Adam; weight decay is decoupled: lr x weight_decay of a weight per step")
    beta2: float = option(0.999, "decay rate of the squared gradients", low=0, high=0.999999)
    eps: float = option(1e-8, "epsilon in the denominator", low=0)

    buffers = ("exp_avg", "exp_avg_sq")

    def build(self, groups: Any, lr: float, *, fused: bool) -> Any:
        from torch.optim import AdamW

        from vernier.torch_private import plain

        return plain(AdamW)(groups, lr=lr, betas=(self.momentum, self.beta2), eps=self.eps, fused=fused)
