"""Stochastic depth: in training, each sample skips some residual branches at random.

The choices are drawn on the host, so they are the same on every device. `PathMasks` draws those of a whole training
step ahead and sends them to the device in one copy, which nothing has to wait for.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vernier.torch_private import foreach_copy_


class DropPath(nn.Module):
    """In training, zeroes a sample's branch with probability `rate`, and scales the others up.

    Without `PathMasks` it draws from PyTorch's default generator of the CPU.
    """

    mask: Tensor | None

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("mask", None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.rate == 0.0 or not self.training:
            return x
        mask = self.draw(torch.empty(x.shape[0], 1, 1, 1)) if self.mask is None else self.mask
        return x * mask.to(x.device, x.dtype)

    def draw(self, out: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Fill `out`, on the host, with 0 for branches that are skipped and 1 / (1 - rate) for the others."""
        # Scaled up, so that the mean over all masks is the branch of evaluation.
        keep = 1.0 - self.rate
        return out.bernoulli_(keep, generator=generator).div_(keep)


class PathMasks:
    """The masks of every `DropPath` of a model, for batches of `batch` samples.

    They are buffers that are not saved. Create them before the model is compiled or traced: `draw` changes their
    contents only, so what was compiled or traced stays valid.
    """

    def __init__(self, model: nn.Module, batch: int, device: torch.device) -> None:
        self._layers = [m for m in model.modules() if isinstance(m, DropPath) and m.rate > 0]
        self._generator, self._shape = torch.Generator(), (len(self._layers), batch, 1, 1, 1)
        # Not views of one tensor: compiled code on some devices cannot take those as inputs.
        self._masks = [torch.ones(self._shape[1:], device=device) for _ in self._layers]
        for layer, mask in zip(self._layers, self._masks, strict=True):
            layer.mask = mask

    def draw(self, seed: int) -> None:
        """Draw for the next forward pass, in the order of the layers; frozen ones, in evaluation mode, draw nothing."""
        if not self._layers:
            return
        self._generator.manual_seed(seed)
        drawn = torch.ones(self._shape)
        for layer, mask in zip(self._layers, drawn, strict=True):
            if layer.training:
                layer.draw(mask, self._generator)
        foreach_copy_(self._masks, list(drawn.to(self._masks[0].device, non_blocking=True)))
