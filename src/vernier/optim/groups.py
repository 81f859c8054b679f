"""Parameter groups: which parameters get weight decay, and which learn slower. Published systems differ, so both are
settings."""

import re
from collections.abc import Callable

from torch import nn

from vernier.config import Optim
from vernier.frozen import frozen

NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)
_BACKBONE = "backbone."  # prefix of a detector's residual network; a classifier's has none
_STEM = ("conv1.", "bn1.")
_HEAD = "fc."
_BLOCK = re.compile(r"layer(\d+)\.(\d+)\.")


@frozen
class ParameterGroup:
    """Parameters with the same weight decay and the same share of the schedule's learning rate."""

    params: list[nn.Parameter]
    weight_decay: float
    lr_share: float = 1.0
    filters: bool = False
    """Filters of convolutions, which Muon updates in its own way; always False for other optimisers."""


def split_by_decay(model: nn.Module, rule: str) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Split the parameters that require gradients into decayed and exempt ones, in model order."""
    # By identity, since comparing tensors compares their elements.
    norms = {id(p) for m in model.modules() if isinstance(m, NORMS) for p in m.parameters(recurse=False)}
    exempt: Callable[[str, nn.Parameter], bool] = {
        "all": lambda name, p: False,
        "norm-only": lambda name, p: id(p) in norms,
        "norm-and-bias": lambda name, p: id(p) in norms or name.endswith("bias"),
        # By name, as NVIDIA's scripts do: projection norms are called downsample.1 and are therefore decayed.
        "nvidia-name": lambda name, p: "bn" in name,
    }[rule]
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return [p for n, p in named if not exempt(n, p)], [p for n, p in named if exempt(n, p)]


def depths(model: nn.Module) -> dict[str, int]:
    """Distance of each parameter from the input: the stem 0, each residual block one more, the head last.

    The head is everything outside the residual network: a classifier's `fc`, a detector's extra levels and heads.
    """
    names = [n for n, _ in model.named_parameters()]
    prefix = _BACKBONE if any(n.startswith(_BACKBONE) for n in names) else ""
    inner = {n: n.removeprefix(prefix) for n in names if n.startswith(prefix)}
    block_of = {n: (int(m[1]), int(m[2])) for n, short in inner.items() if (m := _BLOCK.match(short))}
    # (stage, block) as numbers, so that block 10 follows block 9.
    blocks = sorted(set(block_of.values()))
    depth_of = {name: 1 + blocks.index(block) for name, block in block_of.items()}
    depth_of |= {n: 0 for n, short in inner.items() if short.startswith(_STEM)}
    return {name: depth_of.get(name, len(blocks) + 1) for name in names}


def muon_groups(model: nn.Module, optim: Optim) -> list[ParameterGroup]:
    """The groups of Muon: filters of convolutions, biases and scales below the head, and the head."""
    assert optim.bias_lr is not None, "config.checks lets no Muon be without it"
    assert optim.head_lr is not None, "config.checks lets no Muon be without it"
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    head = [p for n, p in named if n.startswith(_HEAD)]
    filters = [p for n, p in named if p.dim() == 4]
    biases = [p for n, p in named if p.dim() != 4 and not n.startswith(_HEAD)]
    groups = (
        # Muon sets the length of filters in each step, so weight decay would have no effect.
        ParameterGroup(params=filters, weight_decay=0.0, filters=True),
        ParameterGroup(params=biases, weight_decay=optim.weight_decay, lr_share=optim.bias_lr / optim.lr),
        ParameterGroup(params=head, weight_decay=optim.weight_decay, lr_share=optim.head_lr / optim.lr),
    )
    return [group for group in groups if group.params]


def parameter_groups(model: nn.Module, optim: Optim, *, head_apart: bool = False) -> list[ParameterGroup]:
    """Group the parameters by weight decay and, with different rates or `head_apart`, by depth.

    The head has the schedule's rate; each depth below it has `layer_decay` times the rate of the one above, and all of
    them have `backbone_lr_share` of it.
    """
    if optim.name == "muon":
        return muon_groups(model, optim)
    decayed, exempt = split_by_decay(model, optim.decay_rule)
    by_decay = [(decayed, optim.weight_decay), (exempt, 0.0)]
    # `head_apart`: a fused optimizer starts the momentum of a group as a whole, and the head starts first.
    if optim.layer_decay == optim.backbone_lr_share == 1.0 and not head_apart:
        return [ParameterGroup(params=params, weight_decay=decay) for params, decay in by_decay if params]
    depth_of = {id(p): d for (n, p), d in zip(model.named_parameters(), depths(model).values(), strict=True)}
    head = max(depth_of.values())
    return [
        ParameterGroup(
            params=at_depth,
            weight_decay=decay,
            lr_share=optim.layer_decay ** (head - depth) * (1.0 if depth == head else optim.backbone_lr_share),
        )
        for depth in range(head + 1)
        for params, decay in by_decay
        if (at_depth := [p for p in params if depth_of[id(p)] == depth])
    ]
