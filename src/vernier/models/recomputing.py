"""Activation checkpointing: parts of a model that run again in the backward pass.

A part that runs again computes the same values: batch norms use the batch's statistics, and the masks of stochastic
depth are those of the step (`drop_path.PathMasks`). The blocks of every family derive from `Recomputing`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Recomputing(nn.Module):
    """A module with parts that can run again in the backward pass, instead of keeping what they computed."""

    recomputes = False

    def in_part(self, part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """`part(x)`, of which only `x` is kept for the backward pass where this module recomputes."""
        if not self.recomputes or not torch.is_grad_enabled():
            return part(x)
        if torch.compiler.is_compiling():  # compiled code updates statistics in the forward pass only
            # No random state to preserve: masks of stochastic depth are drawn before the step, nothing else is random.
            compiled: Tensor = checkpoint(part, x, use_reentrant=False, preserve_rng_state=False)
            return compiled
        output: Tensor = checkpoint(
            part,
            x,
            use_reentrant=False,
            preserve_rng_state=False,
            # Contexts of the first run and of the recomputation, which must not update statistics a second time.
            context_fn=lambda: (nullcontext(), _unchanged_statistics(self)),
        )
        return output


def recompute_activations(model: nn.Module) -> None:
    """Let every part of the model that can run again do so."""
    for module in model.modules():
        if isinstance(module, Recomputing):
            module.recomputes = True


@contextmanager
def _unchanged_statistics(module: nn.Module) -> Iterator[None]:
    """While entered, batch norms update copies of their running statistics, which are then discarded."""
    # Frozen batch norms are in evaluation mode and update nothing.
    norms = [m for m in module.modules() if getattr(m, "track_running_stats", False) and m.training]
    own = [(norm, name, buffer) for norm in norms for name, buffer in norm.named_buffers(recurse=False)]
    for norm, name, buffer in own:
        setattr(norm, name, buffer.clone())
    try:
        yield
    finally:
        for norm, name, buffer in own:
            setattr(norm, name, buffer)
