"""Activation checkpointing: parts of a model that run again in the backward pass.

A part that runs again computes the same values: batch norms use the batch's statistics, and the masks of stochastic
depth are those of the step (`drop_path.PathMasks`). The blocks of every family derive from `Recomputing`; those of an
outside model are found by its layout, and the random state is kept for them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .contract import layout_of


class Recomputing(nn.Module):
    """A module with parts that can run again in the backward pass, instead of keeping what they computed."""

    recomputes = False

    def in_part(self, part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """`part(x)`, of which only `x` is kept for the backward pass where this module recomputes."""
        if not self.recomputes:
            return part(x)
        # No random state to preserve: masks of stochastic depth are drawn before the step, nothing else is random.
        output: Tensor = _run_again(self, part, x, preserve_rng_state=False)
        return output


def recompute_activations(model: nn.Module) -> None:
    """Let every part of the model that can run again do so."""
    for module in model.modules():
        if isinstance(module, Recomputing):
            module.recomputes = True
    layout = layout_of(model)
    for name in (stage[0] for stage in layout.stages if layout.outside):
        stage = model.get_submodule(name)
        for block in stage.children() if isinstance(stage, nn.Sequential | nn.ModuleList) else (stage,):
            block.forward = partial(_run_again, block, block.forward)


def _run_again(block: nn.Module, part: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """`part(*inputs)`, of which only the inputs are kept for the backward pass; `options` are also those of PyTorch."""
    if not torch.is_grad_enabled():
        options.pop("preserve_rng_state", None)
        return part(*inputs, **options)
    if not torch.compiler.is_compiling():  # compiled code updates statistics in the forward pass only
        # Contexts of the first run and of the recomputation, which must not update statistics a second time.
        options["context_fn"] = lambda: (nullcontext(), _unchanged_statistics(block))
    return checkpoint(part, *inputs, use_reentrant=False, **options)


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
