"""The cost of a network: parameters, and multiply-accumulates per image.

Counted by running the real forward pass on PyTorch's meta device, where tensors have shapes and no contents: exact, and
without the memory or the time of a real run.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vernier.frozen import frozen

_IMAGES = 2  # batch norm in training mode refuses a single value per channel


@frozen
class Cost:
    """Parameters of the network, and multiply-accumulates of one image's forward pass."""

    params: int
    macs: int

    @property
    def gmac(self) -> float:
        return self.macs / 1e9


def cost(model: nn.Module, image_shape: tuple[int, int, int]) -> Cost:
    """Count the cost of one image of [channels, height, width]; the model is not changed, on any device.

    Convolutions and matrix products are counted; additions, batch norm, activations and pooling are not.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    on_meta = {name: tensor.detach().to("meta") for name, tensor in tensors.items()}
    images = torch.empty(_IMAGES, *image_shape, device="meta")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        torch.func.functional_call(model, on_meta, (images,))
    flops_per_mac = 2
    return Cost(
        params=sum(parameter.numel() for parameter in model.parameters()),
        macs=counter.get_total_flops() // flops_per_mac // _IMAGES,
    )
