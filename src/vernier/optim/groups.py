"""Parameter groups: which parameters get weight decay, and which learn slower. Published systems differ, so both are
settings."""

from collections.abc import Callable
from typing import Any

from torch import nn

from vernier.config import Optim
from vernier.models.contract import layout_of

NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)


Group = dict[str, Any]


def group_of(params: list[nn.Parameter], weight_decay: float, lr_share: float = 1.0) -> Group:
    """Parameters with the same weight decay and the same share of the schedule's learning rate."""
    return {"params": params, "weight_decay": weight_decay, "lr_share": lr_share}


def split_by_decay(model: nn.Module, rule: str) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Split the parameters that require gradients into decayed and exempt ones, in model order."""
    # By identity, since comparing tensors compares their elements.
    norms = {id(p) for m in model.modules() if isinstance(m, NORMS) for p in m.parameters(recurse=False)}
    exempt: Callable[[str, nn.Parameter], bool] = {
        "all": lambda name, p: False,
        "norm-only": lambda name, p: id(p) in norms,
        "norm-and-bias": lambda name, p: id(p) in norms or name.endswith("bias"),
        # Layer scale is a vector with further dimensions of size 1.
        "vectors": lambda name, p: sum(size > 1 for size in p.shape) < 2,
        # By name, as NVIDIA's scripts do: projection norms are called downsample.1 and are therefore decayed.
        "nvidia-name": lambda name, p: "bn" in name,
    }[rule]
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return [p for n, p in named if not exempt(n, p)], [p for n, p in named if exempt(n, p)]


def parameter_groups(model: nn.Module, optim: Optim, *, head_apart: bool = False) -> list[Group]:
    """Group the parameters by weight decay and, with different rates or `head_apart`, by depth.

    The head has the schedule's rate; each depth below it has `layer_decay` times the rate of the one above, and all of
    them have `backbone_lr_share` of it.
    """
    decayed, exempt = split_by_decay(model, optim.decay_rule)
    by_decay = [(decayed, optim.weight_decay), (exempt, 0.0)]
    # `head_apart`: a fused optimizer starts the momentum of a group as a whole, and the head starts first.
    if optim.layer_decay == optim.backbone_lr_share == 1.0 and not head_apart:
        return [group_of(params, decay) for params, decay in by_decay if params]
    layout = layout_of(model)
    depth_of, head = {id(p): layout.depth_of(n) for n, p in model.named_parameters()}, layout.head_depth
    return [
        group_of(
            at_depth, decay, optim.layer_decay ** (head - depth) * (1.0 if depth == head else optim.backbone_lr_share)
        )
        for depth in range(head + 1)
        for params, decay in by_decay
        if (at_depth := [p for p in params if depth_of[id(p)] == depth])
    ]
