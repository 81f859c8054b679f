"""SGD with momentum: PyTorch's own."""

from typing import Any

from vernier.config import Optim, option
from vernier.frozen import frozen


@frozen
class Sgd(Optim):
    """SGD with momentum in PyTorch's form: no dampening, and weight decay is added to the gradient."""

    name: str = option("sgd", "SGD with momentum; weight decay is added to the gradient")
    nesterov: bool = option(False, "Nesterov momentum")

    linear_scaling = True

    def build(self, groups: Any, lr: float, *, fused: bool) -> Any:
        from torch.optim import SGD

        from vernier.torch_private import plain

        return plain(SGD)(groups, lr=lr, momentum=self.momentum, nesterov=self.nesterov, fused=fused)
