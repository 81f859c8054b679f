"""How many bytes of tensors a training step of a network holds at its peak, by arithmetic. Imports no torch.

Walks through the forward and the backward pass over the layers of `cost`: what autograd keeps of each layer, the
gradients that are alive beside it, and the gradients of the weights that are there already. A test compares the result
with what PyTorch allocates. Optimiser, loader and process are added by `measure.planning.memory`.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from .cost import Cost, Layer

_WEIGHT_BYTES = 4
_WEIGHT_COPIES = 2
"""Of a convolution's weights and of their gradient, in a kernel's own layout, while it computes."""


def training_bytes(
    cost: Cost, *, batch: int, value_bytes: int = 4, recompute: bool = False, frozen_parts: int = 0
) -> int:
    """Bytes of activations and gradients at the peak of a step with `batch` images; weights are not included.

    `value_bytes`: 2 where activations are bf16 or fp16, whose weights are cast as well. `recompute`: with activation
    checkpointing. `frozen_parts`: so many parts at the start of the network are not trained and keep nothing.
    """
    trained = [layer for layer in cost.layers if layer.part >= frozen_parts]
    peak = max(values * batch * value_bytes + gradients for values, gradients in _moments(trained, recompute))
    cast_bytes = value_bytes * cost.params if value_bytes < _WEIGHT_BYTES else 0
    images = cost.layers[0].inputs * batch * (_WEIGHT_BYTES if value_bytes < _WEIGHT_BYTES else 0)
    passed = inference_bytes(cost, batch=batch, value_bytes=value_bytes) if frozen_parts else 0
    return max(peak + images, passed) + cast_bytes


def inference_bytes(cost: Cost, *, batch: int, value_bytes: int = 4) -> int:
    """Bytes of activations at the peak of a forward pass of `batch` images without gradients."""
    starts = {layer.part: layer.inputs for layer in reversed(cost.layers)}
    peak = max(starts[layer.part] + layer.inputs + 2 * layer.outputs for layer in cost.layers)
    return batch * (peak * value_bytes + cost.layers[0].inputs * _WEIGHT_BYTES)


def _moments(trained: Sequence[Layer], recompute: bool) -> Iterator[tuple[int, int]]:
    """Layer by layer through the backward pass: values per image that are alive, and bytes of the weights' gradients.

    With `recompute`, only the inputs of the parts before are kept, and this part has just run again.
    """
    parts = [list(layers) for _, layers in groupby(trained, key=attrgetter("part"))]
    gradient_bytes = 0
    for number, part in reversed(list(enumerate(parts))):
        before = parts[:number]
        if recompute:
            kept = part[0].inputs + sum(earlier[0].inputs for earlier in before)
        else:
            kept = trained[0].inputs + sum(_kept(layer) for earlier in before for layer in earlier)
        kept += sum(map(_kept, part))
        for layer in reversed(part):
            into_block = 0 if layer is part[-1] else part[-1].outputs
            gradient_bytes += _WEIGHT_BYTES * layer.params
            copies_bytes = _WEIGHT_COPIES * _WEIGHT_BYTES * layer.params
            yield kept + into_block + 2 * layer.outputs + layer.inputs, gradient_bytes + copies_bytes
            kept -= _kept(layer)


def _kept(layer: Layer) -> int:
    """Values that autograd keeps: the convolution's output for the batch norm, and what the next layer reads."""
    return layer.outputs * (2 if layer.norm and not layer.shortcut else 1) + layer.extra
