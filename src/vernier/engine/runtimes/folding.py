"""PyTorch's own network for inference: each batch norm folded into the convolution before it.

In evaluation a batch norm is one factor and one summand per channel, so it can be part of the convolution's weights:
the same result but for rounding, without reading and writing every activation once more.
"""

import copy
from itertools import pairwise

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


def fold_batch_norms(model: nn.Module) -> nn.Module:
    """A copy of the model in evaluation mode, with batch norms folded; the model itself where it has none to fold."""
    if not any(_pairs(module) for module in model.modules()):
        return model
    folded = copy.deepcopy(model).eval()
    for module in list(folded.modules()):
        for (conv_name, conv), (norm_name, norm) in _pairs(module):
            module.add_module(conv_name, fuse_conv_bn_eval(conv, norm))
            module.add_module(norm_name, nn.Identity())
    return folded


def _pairs(module: nn.Module) -> list[tuple[tuple[str, nn.Conv2d], tuple[str, nn.BatchNorm2d]]]:
    """Convolutions of a module with the batch norm registered after each: the networks of the catalogue run it next."""
    children = list(module.named_children())
    return [
        ((conv_name, conv), (norm_name, norm))
        for (conv_name, conv), (norm_name, norm) in pairwise(children)
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d) and norm.track_running_stats
    ]
